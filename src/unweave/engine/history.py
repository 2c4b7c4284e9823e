"""Everything that a run logged, one row per step."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from unweave.errors import RunError

# Called with the number of earlier rows and the new rows, whenever rows are read from the device.
Tell: TypeAlias = Callable[[int, Sequence[Mapping[str, Any]]], None]


class History:
    """Rows of logged values. Tensors are read from the device in bulk, when ``rows`` is used.

    Args:
        rows: Rows to begin with.
        tell: A function to call with the number of earlier rows and the new rows, whenever rows are read.

    Raises:
        RunError: A value is not finite (when rows are read).

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
        """Add the values of a step without waiting for the device."""
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
                        "Use a smaller learning rate, and check that the data and the model are free of NaN."
                    )
            self._rows.append({"phase": phase, "step": step, **numbers})
        if self.tell and pending:
            first = len(self._rows) - len(pending)
            self.tell(first, self._rows[first:])
        return self._rows

    def column(self, name: str, *, phase: str | None = None) -> list[float]:
        """Return one logged value at all steps that have it.

        Args:
            name: The name of the value.
            phase: Steps of this phase only.

        Returns:
            The values, in the order of the steps.

        >>> History([{"phase": "a", "step": 0, "x": 1.0}, {"phase": "b", "step": 0, "y": 2.0}]).column("x")
        [1.0]
        """
        return [row[name] for row in self.rows if name in row and phase in (None, row["phase"])]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        phases = ", ".join(f"{count} of {name}" for name, count in Counter(row["phase"] for row in self.rows).items())
        return f"History of {len(self)} steps" + (f": {phases}" if phases else "")

    def _repr_html_(self) -> str:
        names = dict.fromkeys(name for row in self.rows for name in row if name not in ("phase", "step"))
        curves = "".join(f"<tr><th>{html.escape(name)}</th><td>{_curve(self.column(name))}</td></tr>" for name in names)
        return f"<p>{html.escape(repr(self))}</p><table>{curves}</table>"

    def to_jsonl(self) -> str:
        """Return one line of JSON per row."""
        return "".join(json.dumps(row) + "\n" for row in self.rows)


def _curve(values: list[float], *, width: int = 240, height: int = 32) -> str:
    """Return a small SVG plot of the values, followed by the first and the last as text.

    >>> _curve([1.0, 3.0]).startswith("<svg")
    True
    """
    low, high = min(values), max(values)
    across = width / max(1, len(values) - 1)
    up = (height - 2) / (high - low) if high > low else 0.0
    points = " ".join(f"{place * across:.1f},{height - 1 - (v - low) * up:.1f}" for place, v in enumerate(values))
    line = f'<polyline points="{points}" fill="none" stroke="currentColor"/>'
    return f'<svg width="{width}" height="{height}">{line}</svg> {values[0]:.3g} → {values[-1]:.3g}'
