"""`unweave record verify`: check a record. The work is imported when it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.auditing import OfBenchmark, Original, SourceName
from unweave.cli.options import (
    AsJson,
    DataFolder,
    Device,
    OptionValues,
    Small,
    SplitFile,
    TestSplitFile,
)
from unweave.cli.record_options import ProofsFile, RecordFile

PublicKey = Annotated[Path | None, typer.Option(help="Public key (PEM) that must have signed the record.")]
Previous = Annotated[list[Path] | None, typer.Option(help="Previous record, then the one before it. Repeatable.")]
ModelAfter = Annotated[
    Path | None,
    typer.Option(help="Model after unlearning: safetensors, or folder of a run. Default: beside the record."),
]
Recompute = Annotated[bool, typer.Option("--recompute", help="Compute the scores again and compare them.")]


def verify(
    file: RecordFile,
    public_key: PublicKey = None,
    previous: Previous = None,
    model: ModelAfter = None,
    original: Original = None,
    benchmark: OfBenchmark = None,
    split: SplitFile = None,
    test_split: TestSplitFile = None,
    source: SourceName = None,
    data: DataFolder = None,
    options: OptionValues = None,
    small: Small = False,
    proofs: ProofsFile = None,
    recompute: Recompute = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Check a record: content, signature, chain and, if given, the model, the data and the scores.

    The weights and files beside the record are checked too. The exit code is 1 if a check fails.
    """
    asked = dict(locals())
    from unweave.cli.record_checks import check_record

    check_record(**asked)
