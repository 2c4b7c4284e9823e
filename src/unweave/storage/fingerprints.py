"""Fingerprints of tensors: SHA-256 over names, types, shapes and bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unweave.storage.files import sha256
from unweave.storage.json_files import canonical


def tensor_digests(tensors: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Return the type, the shape and the digest of the bytes of every tensor, by name.

    >>> tensor_digests({"bias": torch.zeros(2)})["bias"][:2]
    ['float32', [2]]
    """
    found = {}
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest = hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()
        found[name] = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), digest]
    return found


def digest_of(digests: Mapping[str, list[Any]]) -> str:
    """Return one digest over the digests of many tensors."""
    return sha256(canonical(dict(digests)))


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return one fingerprint of named tensors, such as the weights and buffers of a model or the tensors of a sample.

    >>> fingerprint({"a": torch.zeros(2), "b": torch.ones(1)}) == fingerprint({"b": torch.ones(1), "a": torch.zeros(2)})
    True
    >>> fingerprint({"a": torch.zeros(2)}) == fingerprint({"a": torch.zeros(2, 1)})
    False
    """
    return digest_of(tensor_digests(tensors))
