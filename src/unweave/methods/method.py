"""What a method is: a name, its settings, its profiles, and its phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unweave.data import SUBSETS, Partition
from unweave.engine import Phase
from unweave.errors import UsageError, unknown
from unweave.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to unlearn: one object at the end of one file in ``methods/``.

    ``phases`` makes the phases from the settings, in running order. ``profiles`` are named sets of values
    (``released``, ``paper``, ``official``); the first is the default. ``needs`` are the subsets it reads; of several in
    a tuple, which it reads as one, any may be empty, but not all. A method that works on logits and labels, and so has
    no use for a loss of the user's own, says ``takes_loss=False``.
    """

    name: str
    summary: str
    settings: type[Settings]
    phases: Callable[[Any], Sequence[Phase]]
    needs: tuple[str | tuple[str, ...], ...] = SUBSETS
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}})
    takes_loss: bool = True

    def configure(self, *layers: Mapping[str, Any], profile: str | None = None) -> Settings:
        """Return settings: the profile's values, overridden by each layer of values in turn."""
        profile = profile or next(iter(self.profiles))
        if profile not in self.profiles:
            raise unknown(f"profile of {self.name}", profile, self.profiles)
        values = dict(self.profiles[profile])
        for layer in layers:
            values |= layer
        return self.settings.parse(values)

    def check(self, split: Partition) -> None:
        """Refuse a split that lacks what the method reads."""
        for subsets in self.needs:
            some = (subsets,) if isinstance(subsets, str) else subsets
            if not any(len(split[subset]) for subset in some):
                raise UsageError(f"{self.name} needs {' or '.join(some)} data, but the split has none.")
