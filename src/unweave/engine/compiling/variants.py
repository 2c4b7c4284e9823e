"""What code is compiled for, and the files that tell other processes which code this machine has compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from unweave.engine.compiling.torch_internals import cache_folder
from unweave.errors import UsageError
from unweave.storage import Lock


class Variant(NamedTuple):
    """What a piece of code is compiled for: a kind of model, a mode, the shapes of a batch."""

    kind: str
    training: bool
    grad: bool
    autocast: bool
    shapes: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def samples(self) -> int:
        """The number of samples in the batch."""
        return self.shapes[0][0][0]

    def of(self, samples: int) -> Variant:
        """Return this variant with another number of samples."""
        return self._replace(shapes=tuple(((samples, *shape[1:]), dtype) for shape, dtype in self.shapes))

    @classmethod
    def parse(cls, entry: Sequence[Any]) -> Variant:
        """Return the variant whose fields went through JSON."""
        kind, training, grad, autocast, shapes = entry
        return cls(kind, training, grad, autocast, tuple((tuple(shape), dtype) for shape, dtype in shapes))


class Marks:
    """Files beside torch's cache: one for each variant that this machine has compiled, and locks of those in work."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._claims: dict[Variant, Lock] = {}

    def path(self, variant: Variant) -> Path | None:
        """Return the file of a variant, or None if torch does not tell where its cache is."""
        if (folder := cache_folder()) is None:
            return None
        text = f"{torch.__version__} {hardware(self.device)} {variant}"
        return folder / "unweave" / hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def has(self, variant: Variant) -> bool:
        """Tell whether this machine has compiled the variant."""
        path = self.path(variant)
        return path is not None and path.exists()

    def put(self, variant: Variant) -> None:
        """Note that this machine has compiled the variant."""
        if (path := self.path(variant)) is not None:
            with suppress(OSError):  # without the file, later processes expect to compile for longer
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

    def claim(self, variant: Variant) -> bool:
        """Claim the right to compile this variant; return False while another process compiles it.

        The workers of a study start together with the same model. One of them compiles; the others run uncompiled until
        it is done, and then find its code in torch's cache.
        """
        path = self.path(variant)
        if path is None or variant in self._claims:
            return True
        try:
            with suppress(OSError):  # without a lock, each process compiles for itself
                path.parent.mkdir(parents=True, exist_ok=True)
                self._claims[variant] = Lock(path.with_suffix(".lock"))
        except UsageError:
            return False
        return True

    def release(self, *variants: Variant) -> None:
        """Let other processes compile these variants."""
        for variant in variants:
            if (claim := self._claims.pop(variant, None)) is not None:
                claim.release()

    def release_all(self) -> None:
        """Let other processes compile what this one has claimed."""
        self.release(*self._claims)


def hardware(device: torch.device) -> str:
    """Return the name of the hardware that code is compiled for."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
