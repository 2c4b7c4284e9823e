"""What a method is: a dataclass of settings with a name, profiles and phases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from unweave.data import SUBSETS, Partition
from unweave.engine import Phase
from unweave.errors import UsageError, unknown
from unweave.settings import Settings

Profiles: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What an upper bound on forget accuracy is computed from, for methods whose runs have one.

    ``bound`` names the formula, which `unweave.evaluation` has. ``settings`` are those of the method that are its
    constants. ``after_phase`` is the number of the phase, from 0, whose final weights the formula compares with; None
    if it needs none. ``any_loss`` is False where a constant is a value of our own loss.
    """

    bound: str
    settings: tuple[str, ...]
    after_phase: int | None = None
    any_loss: bool = True


class Method(Settings, ABC):
    """A way to unlearn: a frozen dataclass in one file of ``methods/``. Its fields are its settings.

    Class variables describe it:

    - ``name`` is what the command line and files call it; ``summary`` is one sentence.
    - ``needs`` are the subsets that it reads. The subsets of a tuple are read as one: some may be empty, not all.
    - ``profiles`` are named sets of values, such as ``paper``. The first is the default and is empty: the defaults of
      the fields are its values. The others state what differs from these.
    - ``on_own_models`` is the profile of a run on a model of the user's own, if it is not the first; "" if it is.
    - ``takes_loss`` is False for a method that works on logits and labels, and so cannot use a loss of the user's own.
    - ``needs_classes`` is True for a method that works on the classes that a label chooses from.
    - ``needs_tokens`` is True for a method that works on the tokens of answers, and so on language models only.
    - ``promise`` says what an upper bound on forget accuracy is computed from, if there is one.

    A subclass may be used by name, as a class, or as an object: ``"ft"``, ``FineTune``, ``FineTune(epochs=3)``.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    needs: ClassVar[tuple[str | tuple[str, ...], ...]] = SUBSETS
    profiles: ClassVar[Profiles] = {"default": {}}
    on_own_models: ClassVar[str] = ""
    takes_loss: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = False
    needs_tokens: ClassVar[bool] = False
    promise: ClassVar[Promise | None] = None

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """Return new phases with these settings, in running order."""

    @classmethod
    def configure(cls, *layers: Mapping[str, Any], profile: str | None = None) -> Self:
        """Return the method with the profile's values, overridden by each layer of values in turn."""
        profile = next(iter(cls.profiles)) if profile is None else profile
        if not isinstance(profile, str) or profile not in cls.profiles:
            raise unknown(f"profile of {cls.name}", profile, cls.profiles)
        values = dict(cls.profiles[profile])
        for layer in layers:
            values |= layer
        return cls.parse(values)

    @classmethod
    def with_profiles(cls, names: Iterable[str]) -> type[Self]:
        """Return the method with further profiles. They are empty here; the caller adds their values as a layer."""
        more: dict[str, Mapping[str, Any]] = {name: {} for name in names if name not in cls.profiles}
        if not more:
            return cls
        return type(cls.__name__, (cls,), {"__doc__": cls.__doc__, "profiles": {**cls.profiles, **more}})

    def nearest_profile(self) -> str:
        """Return the profile that differs from this object in the fewest settings. If several do, return the first."""
        mine = self.to_dict().items()

        def differences(profile: str) -> int:
            return len(mine - self.configure(profile=profile).to_dict().items())

        return min(self.profiles, key=differences)

    def check(self, split: Partition) -> None:
        """Raise if the split lacks data that the method reads."""
        for subsets in self.needs:
            some = (subsets,) if isinstance(subsets, str) else subsets
            if not any(len(split[subset]) for subset in some):
                raise UsageError(f"{self.name} needs {' or '.join(some)} data, but the split has none.")

    @property
    def goal_of_run(self) -> Literal["erase", "retrain"]:
        """What the run aims at: *retrain* for methods with that goal, and for those that do not read forget data."""
        reads = {name for some in self.needs for name in ((some,) if isinstance(some, str) else some)}
        return "retrain" if getattr(self, "goal", "") == "retrain" or "forget" not in reads else "erase"

    def on_record(self) -> dict[str, Any]:
        """Return what a run's configuration says about the method besides its settings."""
        return {}
