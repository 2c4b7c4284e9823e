"""Fingerprints of models and samples: SHA-256 over names, types, shapes and bytes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unweave.data import Partition
from unweave.errors import UsageError
from unweave.record import merkle
from unweave.record.deletion_request import Content
from unweave.runtime import own_random_numbers, seed_host
from unweave.storage import fingerprint, sha256

SALT_BYTES = 32


# Samples


def sample_tensors(split: Partition, row: int) -> dict[str, Tensor]:
    """Return the inputs of a sample by name, without its label. Random transforms get a fixed seed."""
    with own_random_numbers():
        seed_host(0)
        data = split.samples.read(torch.tensor([row]))
    inputs = {k: v for k, v in data.items() if k != "labels"} if isinstance(data, Mapping) else {"inputs": data[0]}
    return {name: tensor[0] for name, tensor in _named(inputs)}


def _named(data: Any, name: str = "") -> list[tuple[str, Tensor]]:
    if isinstance(data, Tensor):
        return [(name, data)]
    entries = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, tuple | list) else ()
    return [found for key, entry in entries for found in _named(entry, f"{name}.{key}" if name else str(key))]


def salted_split(split: Partition, salt: bytes) -> str:
    """Return the fingerprint of a split. The salt keeps others from guessing the positions."""
    return sha256(salt + split.hash.encode())


@dataclass(frozen=True)
class ForgetSet:
    """The forget samples of a request: positions in the data set, salts, and leaves of the Merkle tree."""

    rows: list[int]
    salts: list[bytes]
    leaves: list[bytes]

    @classmethod
    def of(cls, split: Partition, content: Content | None = None, *, salts: list[bytes] | None = None) -> ForgetSet:
        """Hash every forget sample with its own salt. Salts are drawn unless they are given.

        ``content`` returns the content of the sample at a position, for instance the bytes of its file. By default
        the content is the fingerprint of the sample's input tensors.
        """
        rows = split.forget.tolist()
        salts = salts or [secrets.token_bytes(SALT_BYTES) for _ in rows]
        leaves = [merkle.leaf(salt, content_digest(split, row, content)) for row, salt in zip(rows, salts, strict=True)]
        return cls(rows, salts, leaves)

    @property
    def root(self) -> str:
        """The Merkle root over all samples."""
        return merkle.root(self.leaves).hex()


def content_digest(split: Partition, row: int, content: Content | None) -> bytes:
    """Return the digest of a sample's content."""
    if content is None:
        return bytes.fromhex(fingerprint(sample_tensors(split, row)))
    found = content(row)
    if not isinstance(found, bytes):
        raise UsageError(f"content= returned {type(found).__name__} for sample {row}, but must return bytes.")
    return hashlib.sha256(found).digest()
