"""Proofs that one sample was in a request, which reveal nothing about the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unweave.data import Partition
from unweave.errors import UsageError
from unweave.record import merkle
from unweave.record.forget_set import ForgetSet
from unweave.storage import COUNT, TEXT, fingerprint, read_array, read_json, read_tensors, require_form

PROOFS_FILE = "forget-proofs.json"
PROOFS = {
    "format": TEXT,
    "version": COUNT,
    "root": TEXT,
    "split_salt": TEXT,
    "samples": [{"row": COUNT, "salt": TEXT, "leaf": TEXT}],
    "forgotten": [COUNT],
}
PROOF = {
    "format": TEXT,
    "version": COUNT,
    "record": TEXT,
    "root": TEXT,
    "count": COUNT,
    "index": COUNT,
    "salt": TEXT,
    "path": [TEXT],
}


def proofs_of(forget: ForgetSet, split_salt: bytes, split: Partition) -> dict[str, Any]:
    """Return the content of the private file of a request."""
    samples = [
        {"row": row, "salt": salt.hex(), "leaf": leaf.hex()}
        for row, salt, leaf in zip(forget.rows, forget.salts, forget.leaves, strict=True)
    ]
    return {
        "format": "unweave-forget-proofs",
        "version": 1,
        "root": forget.root,
        "split_salt": split_salt.hex(),
        "samples": samples,
        "forgotten": split.forgotten.tolist(),
    }


def read_proofs(path: Path) -> dict[str, Any]:
    """Read the private file of a request."""
    return _read(path, PROOFS, "unweave-forget-proofs")


def read_proof(path: Path) -> dict[str, Any]:
    """Read the proof of one sample."""
    return _read(path, PROOF, "unweave-inclusion-proof")


def _read(path: Path, form: Mapping[str, Any], kind: str) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path)
    require_form(content, dict(form), str(path))
    if (content["format"], content["version"]) != (kind, 1):
        raise UsageError(
            f"{path} has the format {content['format']!r}, version {content['version']}, but must have the format "
            f"{kind!r}, version 1."
        )
    return content


def unhex(text: str, where: str) -> bytes:
    """Return the bytes behind hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"{where} is {text[:40]!r}, which is not hexadecimal.") from None


def prove(record: Mapping[str, Any], proofs: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return the proof that the sample at a position of the data set was in the request.

    The proof holds the sample's salt and the siblings on its path to the root. Give it to the sample's holder.
    """
    rows = [sample["row"] for sample in proofs["samples"]]
    if row not in rows:
        raise UsageError(f"Sample {row} was not in this request.")
    leaves = [unhex(sample["leaf"], "leaf") for sample in proofs["samples"]]
    if merkle.root(leaves).hex() != record["forget"]["root"]:
        raise UsageError("The proofs do not belong to this record, or they were changed: the two roots differ.")
    index = rows.index(row)
    return {
        "format": "unweave-inclusion-proof",
        "version": 1,
        "record": record["hash"],
        "root": record["forget"]["root"],
        "count": len(rows),
        "index": index,
        "salt": proofs["samples"][index]["salt"],
        "path": [node.hex() for node in merkle.path(leaves, index)],
    }


def is_included(record: Mapping[str, Any], proof: Mapping[str, Any], content: bytes) -> bool:
    """Tell whether the proof shows that the sample with this content digest was in the request."""
    mine = merkle.leaf(unhex(proof["salt"], "salt"), content)
    path = [unhex(node, "path") for node in proof["path"]]
    wanted = unhex(record["forget"]["root"], "root")
    return proof["count"] == record["forget"]["count"] and merkle.proves(
        mine, proof["index"], proof["count"], path, wanted
    )


def digest_of_file(path: Path, kind: str) -> bytes:
    """Return the content digest of a sample in a file.

    ``kind`` comes from the record. With ``bytes``, the file is the sample. With ``tensors``, the file holds the
    sample's inputs: one NumPy array (.npy), or tensors by name (safetensors).
    """
    if kind == "bytes":
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
    tensors = {"inputs": read_array(path)} if path.suffix == ".npy" else read_tensors(path)
    return bytes.fromhex(fingerprint(tensors))
