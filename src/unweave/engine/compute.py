"""Where and how a run computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, get_args

import torch

from unweave.data import KeepData, as_keep_data
from unweave.engine.compiling import Compile
from unweave.errors import as_whole, plain_value, require_type, unknown
from unweave.runtime import Precision, limited_to, parse_bytes, pick_device, resolve_precision, sharding


@dataclass(frozen=True)
class Compute:
    """The device of a run and how to use it. These options change results by rounding at most.

    Args:
        device: Where to compute, such as ``"cpu"`` or ``"cuda:1"``. None: the best available.
        precision: The precision of forward and backward passes; weights and gradients stay in float32. ``"auto"`` is
            bfloat16 on CUDA and float32 elsewhere.
        compile: Whether to compile forward passes and, on CUDA, to record and repeat them: ``"on"``, ``"off"``, or only
            where it saves more time than it takes (``"auto"``).
        micro_batch: The most samples to differentiate at once. A larger batch is split, with the same results and one
            more forward pass. A device that runs out of memory splits batches without being asked. Not available in
            training mode of normalisation.
        max_memory: The most memory that torch may take on a CUDA device, such as ``"8GB"``. Batches are split to fit.
            The driver's own memory for the process comes on top.
        shard: Whether to shard the weights across processes (FSDP2). None: as ``accelerate launch`` is configured.
        keep_data: Where to keep samples after reading them: on the device if they fit (``"auto"``), always on the
            device (``"device"``) or never (``"host"``).

    Raises:
        UsageError: A value is not one of those above.

    >>> Compute("cpu", micro_batch=64).check()
    device(type='cpu')
    """

    device: str | torch.device | None = None
    _: KW_ONLY
    precision: Precision = "auto"
    compile: Compile = "auto"
    micro_batch: int | None = None
    max_memory: int | str | None = None
    shard: bool | None = None
    keep_data: KeepData = "auto"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("way to compile", self.compile, get_args(Compile)),
            ("precision", self.precision, get_args(Precision)),
        ):
            if not isinstance(value, str) or value not in known:
                raise unknown(name, value, known)
        require_type("device", self.device, (str, torch.device, type(None)), 'a device, such as "cpu"')
        require_type("shard", self.shard, (bool, type(None)), "true, false or None")
        as_keep_data(self.keep_data)
        if self.micro_batch is not None:
            object.__setattr__(self, "micro_batch", as_whole("micro_batch", self.micro_batch, at_least=1))
        if self.max_memory is not None:
            object.__setattr__(self, "max_memory", plain_value(self.max_memory))
            parse_bytes(self.max_memory)

    @contextmanager
    def limiting(self) -> Iterator[None]:
        """Keep to ``max_memory`` in a ``with`` block."""
        with limited_to(None if self.max_memory is None else parse_bytes(self.max_memory), pick_device(self.device)):
            yield

    def check(self) -> torch.device:
        """Return the device, or raise a `UsageError` if it cannot be used here."""
        where = pick_device(self.device)
        resolve_precision(self.precision, where)
        return where

    @property
    def cuts_weights(self) -> bool:
        """Whether the weights are sharded across the processes of this run."""
        return sharding.is_wanted(self.shard)

    @property
    def looking(self) -> dict[str, Any]:
        """The arguments for looking at models."""
        return {"device": self.device, "precision": self.precision, "keep_data": self.keep_data}

    @property
    def working(self) -> dict[str, Any]:
        """The arguments for training in a benchmark."""
        return {"device": self.device, "precision": self.precision, "compile": self.compile}
