"""A training recipe: how the model of a request was trained, so that studies and audits can train others like it.

>>> settings, start = recipe_of({"epochs": 3, "start": "base"})
>>> settings.epochs, start
(3, 'base')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unweave.errors import UsageError
from unweave.methods import DescentSettings

BRIEF = 0.2  # of the recipe's epochs, for the reference of the goal retrain
START = "start"


def recipe_of(given: Mapping[str, Any]) -> tuple[DescentSettings, str | None]:
    """Return the settings of a recipe, and the checkpoint that training began with.

    Args:
        given: Settings of the method ``retrain``, and ``start``: a checkpoint. Without ``start``, training begins with
            random weights.

    Returns:
        Settings and start.

    Raises:
        UsageError: A setting is unknown or has no such value.
    """
    values = {name: value for name, value in given.items() if name != START}
    start = given.get(START)
    if start is not None and not isinstance(start, str):
        raise UsageError(f"The recipe's start is {start!r}, but must be the name of a checkpoint.")
    return DescentSettings.parse(values), start
