"""The deletion record: evidence of an unlearning run that a third party can check. ``docs/record.md`` describes it.

>>> DeletionRequest(id="2031-17", text="All photographs of the aquarium, by mail of 3 May.").id
'2031-17'
"""

from typing import TYPE_CHECKING

from unweave.first_use import on_first_use

if TYPE_CHECKING:  # for editors and type checkers, the names of `__getattr__`
    from unweave.record import merkle, signing
    from unweave.record.agreement import check_chain, check_counts, check_times
    from unweave.record.certificates import AfterPhase, certificate_of, model_after, not_kept
    from unweave.record.checks import Check
    from unweave.record.deletion_request import DeletionRequest
    from unweave.record.exact import EXACT_FILE, check_exact, read_exact, with_exact
    from unweave.record.finished import FinishedRun, now
    from unweave.record.forget_set import ForgetSet, content_digest, sample_tensors
    from unweave.record.forgotten import SPLIT, TEST_SPLIT, forgotten_by, forgotten_tests
    from unweave.record.on_record import write
    from unweave.record.proofs import PROOFS_FILE, digest_of_file, is_included, prove, read_proof, read_proofs
    from unweave.record.recomputed import check_scores
    from unweave.record.record import NAME, make_record
    from unweave.record.rounding import published_rows
    from unweave.record.sample_check import check_sample
    from unweave.record.schema import require_record
    from unweave.record.sealing import read_record
    from unweave.record.signing import generate, load_public, name_of
    from unweave.record.verify import (
        check_beside,
        check_content,
        check_forget,
        check_model,
        check_original,
        check_signature,
        check_split,
    )
    from unweave.record.words import changes, describe, describe_drift, is_rounded, spread
    from unweave.record.writing import write_record
    from unweave.storage import fingerprint

__all__ = [
    "EXACT_FILE",
    "NAME",
    "PROOFS_FILE",
    "SPLIT",
    "TEST_SPLIT",
    "AfterPhase",
    "Check",
    "DeletionRequest",
    "FinishedRun",
    "ForgetSet",
    "certificate_of",
    "changes",
    "check_beside",
    "check_chain",
    "check_content",
    "check_counts",
    "check_exact",
    "check_forget",
    "check_model",
    "check_original",
    "check_sample",
    "check_scores",
    "check_signature",
    "check_split",
    "check_times",
    "content_digest",
    "describe",
    "describe_drift",
    "digest_of_file",
    "fingerprint",
    "forgotten_by",
    "forgotten_tests",
    "generate",
    "is_included",
    "is_rounded",
    "load_public",
    "make_record",
    "merkle",
    "model_after",
    "name_of",
    "not_kept",
    "now",
    "prove",
    "published_rows",
    "read_exact",
    "read_proof",
    "read_proofs",
    "read_record",
    "require_record",
    "sample_tensors",
    "signing",
    "spread",
    "with_exact",
    "write",
    "write_record",
]

if not TYPE_CHECKING:
    __getattr__ = on_first_use(
        __name__,
        {
            ".merkle": (),
            ".signing": ("generate", "load_public", "name_of"),
            ".agreement": ("check_chain", "check_counts", "check_times"),
            ".certificates": ("AfterPhase", "certificate_of", "model_after", "not_kept"),
            ".checks": ("Check",),
            ".deletion_request": ("DeletionRequest",),
            ".exact": ("EXACT_FILE", "check_exact", "read_exact", "with_exact"),
            ".finished": ("FinishedRun", "now"),
            ".forget_set": ("ForgetSet", "content_digest", "sample_tensors"),
            ".forgotten": ("SPLIT", "TEST_SPLIT", "forgotten_by", "forgotten_tests"),
            ".on_record": ("write",),
            ".proofs": ("PROOFS_FILE", "digest_of_file", "is_included", "prove", "read_proof", "read_proofs"),
            ".recomputed": ("check_scores",),
            ".record": ("NAME", "make_record"),
            ".rounding": ("published_rows",),
            ".sample_check": ("check_sample",),
            ".schema": ("require_record",),
            ".sealing": ("read_record",),
            ".verify": (
                "check_beside",
                "check_content",
                "check_forget",
                "check_model",
                "check_original",
                "check_signature",
                "check_split",
            ),
            ".words": ("changes", "describe", "describe_drift", "is_rounded", "spread"),
            ".writing": ("write_record",),
            "unweave.storage": ("fingerprint",),
        },
    )
