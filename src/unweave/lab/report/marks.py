"""Which values are best: by the direction of the metric, and by the distance to retraining."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from unweave.lab.report.measures import number

Key = TypeVar("Key")
BEST, NEAREST = "best", "nearest"


def marks(
    values: Mapping[Key, float], *, better: str, metric: str, retrained: float | None = None
) -> dict[Key, tuple[str, ...]]:
    """Return the marks of each value: ``best`` by direction, ``nearest`` to the value of the retrained model.

    Values that are equal as printed get the same marks.

    >>> marks({"a": 0.0, "b": 0.2, "c": 0.0}, better="lower", metric="accuracy", retrained=0.1)
    {'a': ('best', 'nearest'), 'b': ('nearest',), 'c': ('best', 'nearest')}
    """
    found: dict[Key, tuple[str, ...]] = dict.fromkeys(values, ())
    values = {key: value for key, value in values.items() if math.isfinite(value)}
    if not values:
        return found
    if better in ("lower", "higher"):
        target = number((min if better == "lower" else max)(values.values()), metric)
        found |= {key: (BEST,) if number(value, metric) == target else () for key, value in values.items()}
    if retrained is not None:
        distances = {key: number(abs(value - retrained), metric) for key, value in values.items()}
        least = number(min(abs(value - retrained) for value in values.values()), metric)
        found |= {key: found[key] + ((NEAREST,) if distances[key] == least else ()) for key in values}
    return found
