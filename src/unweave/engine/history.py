"""Everything that a run logged, one row per step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from unweave.errors import RunError

# Called with the number of rows before, and the new rows, whenever some were read from the device.
Tell: TypeAlias = Callable[[int, Sequence[Mapping[str, Any]]], None]


class History:
    """Rows of logged values. Tensors are read from the device in bulk, when someone looks.

    >>> history = History()
    >>> history.add("stage 1", 0, {"forget_loss": torch.tensor(2.0), "multiplier": 0.0})
    >>> history.rows
    [{'phase': 'stage 1', 'step': 0, 'forget_loss': 2.0, 'multiplier': 0.0}]
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None, *, tell: Tell | None = None) -> None:
        self._rows = rows or []
        self.tell = tell
        self._pending: list[tuple[str, int, Mapping[str, Tensor | float]]] = []

    def add(self, phase: str, step: int, values: Mapping[str, Tensor | float]) -> None:
        """Note the values of a step without waiting for the device."""
        self._pending.append((phase, step, values))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row so far, as plain numbers. Raises `RunError` at the first value that is not finite."""
        tensors = [value for _, _, row in self._pending for value in row.values() if isinstance(value, Tensor)]
        read = iter(torch.stack([tensor.detach().double() for tensor in tensors]).tolist() if tensors else [])
        pending, self._pending = self._pending, []
        for phase, step, values in pending:
            numbers = {
                name: next(read) if isinstance(value, Tensor) else float(value) for name, value in values.items()
            }
            for name, number in numbers.items():
                if not math.isfinite(number):
                    raise RunError(
                        f"{name.replace('_', ' ')} became {number} in step {step} of {phase}. Nothing was changed. "
                        "Take a smaller learning rate, and check that the data and the model are free of NaN."
                    )
            self._rows.append({"phase": phase, "step": step, **numbers})
        if self.tell and pending:
            first = len(self._rows) - len(pending)
            self.tell(first, self._rows[first:])
        return self._rows

    def column(self, name: str, *, phase: str | None = None) -> list[float]:
        """Return one logged value over the steps where it occurs.

        >>> History([{"phase": "a", "step": 0, "x": 1.0}, {"phase": "b", "step": 0, "y": 2.0}]).column("x")
        [1.0]
        """
        return [row[name] for row in self.rows if name in row and phase in (None, row["phase"])]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_jsonl(self) -> str:
        """Return one line of JSON per row."""
        return "".join(json.dumps(row) + "\n" for row in self.rows)
