"""The base class of settings, and `setting`, which declares one of them.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, kw_only=True)
... class Example(Settings):
...     alpha: float = setting(0.5, at_least=0, at_most=1, help="Share of the Wasserstein term.")
>>> Example.parse({"alpha": "0.25"})
Example(alpha=0.25)
>>> Example(alpha=2.0)
Traceback (most recent call last):
unweave.errors.UsageError: alpha is 2.0, but must be at least 0 and at most 1.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from unweave.errors import UsageError, as_number, plain_value, require_type, short, unknown
from unweave.settings.search import Search


def setting(
    default: Any,
    *,
    help: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    search: Search | None = None,
) -> Any:
    """Declare a setting: its default, its range, its help text and the space that tuning searches."""
    limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "limits": {word: limit for word, limit in limits.items() if limit is not None},
            "search": search,
        },
    )


def default(value: Any) -> Any:
    """Give an inherited setting another default. Its range, help text and search space stay as they are.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Training(Settings):
    ...     epochs: int = setting(10, at_least=0, help="Passes over the data.")
    >>> @dataclass(frozen=True, kw_only=True)
    ... class ShortTraining(Training):
    ...     epochs: int = default(2)
    >>> ShortTraining()
    ShortTraining(epochs=2)
    >>> ShortTraining.describe()[0]["help"]
    'Passes over the data.'
    """
    return _Default(value)


def given(*, help: str) -> Any:
    """Declare what only a user can give, such as a model or a function. It is None by default.

    It is a field but no setting: `Settings.to_dict`, `Settings.describe`, files and the command line do not have it.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Example(Settings):
    ...     epochs: int = setting(10, at_least=0, help="Passes over the data.")
    ...     teacher: Any = given(help="The model to learn from.")
    >>> Example(teacher=print).to_dict()
    {'epochs': 10}
    """
    return dataclasses.field(default=None, repr=False, compare=False, metadata={"help": help, "given": True})


@dataclass(frozen=True)
class _Default:
    """A default that waits for the inherited field that it belongs to."""

    value: Any


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of every method's settings. It checks types and ranges when it is created."""

    def __init_subclass__(cls) -> None:
        """Put new defaults into copies of the inherited fields, before the subclass becomes a dataclass."""
        super().__init_subclass__()
        for name, entry in list(vars(cls).items()):
            if isinstance(entry, _Default):
                setattr(cls, name, dataclasses.field(default=entry.value, metadata=_inherited(cls, name).metadata))

    def __post_init__(self) -> None:
        types = _types(type(self))
        for field in _settings(type(self)):
            value = _checked(field.name, getattr(self, field.name), types[field.name])
            object.__setattr__(self, field.name, value)
            _check_range(field.name, value, field.metadata.get("limits", {}))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Create settings from values that may be text, as on the command line and in files.

        What a user gives (see `given`) is taken as it is.
        """
        types, others = _types(cls), cls.given_names()
        require_type("settings", values, Mapping, "names with values")
        for name, value in values.items():
            if name not in types and name not in others:
                raise unknown("setting", name, types)
            if name in others and isinstance(value, str):
                raise UsageError(f"{name!r} cannot be given as text. Pass it in Python: {cls.__name__}({name}=...).")
        return cls(
            **{name: _from_text(name, value, types[name]) if name in types else value for name, value in values.items()}
        )

    @classmethod
    def given_names(cls) -> tuple[str, ...]:
        """Return the names of the fields that are no settings (see `given`)."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.metadata.get("given"))

    def with_given(self, **values: Any) -> Self:
        """Return these settings with what a user gives. Names that are not fields, and values of None, are skipped."""
        mine = {name: value for name, value in values.items() if name in self.given_names() and value is not None}
        return dataclasses.replace(self, **mine) if mine else self

    @classmethod
    def describe(cls) -> list[dict[str, Any]]:
        """Return the name, type, default, limits, help and search space of every setting, in order."""
        types = _types(cls)
        return [
            {
                "name": field.name,
                "type": _type_name(types[field.name]),
                "default": field.default,
                "limits": _limit_words(field.metadata.get("limits", {})),
                "help": field.metadata.get("help", ""),
                "search": str(field.metadata.get("search") or ""),
            }
            for field in _settings(cls)
        ]

    @classmethod
    def searched(cls) -> dict[str, Search]:
        """Return the search space of every setting that tuning may change."""
        spaces = {field.name: field.metadata.get("search") for field in _settings(cls)}
        return {name: space for name, space in spaces.items() if space is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name."""
        return {field.name: getattr(self, field.name) for field in _settings(type(self))}


_TYPES: dict[type, Mapping[str, Any]] = {}  # of the settings of every class


def _inherited(cls: type, name: str) -> dataclasses.Field[Any]:
    for base in cls.__mro__[1:]:
        if name in (fields := vars(base).get("__dataclass_fields__", {})):
            field: dataclasses.Field[Any] = fields[name]
            return field
    raise TypeError(f"{cls.__name__}.{name} has a new default but inherits no setting of that name. Use setting().")


def _settings(cls: type[Settings]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if not field.metadata.get("given")]


def _types(cls: type[Settings]) -> Mapping[str, Any]:
    if cls not in _TYPES:  # finding them takes a millisecond
        hints = typing.get_type_hints(cls)
        _TYPES[cls] = {field.name: hints[field.name] for field in _settings(cls)}
    return _TYPES[cls]


def _choices(kind: Any) -> tuple[Any, ...] | None:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else None


def _type_name(kind: Any) -> str:
    choices = _choices(kind)
    return " | ".join(str(choice) for choice in choices) if choices else str(kind.__name__)


def _limit_words(limits: Mapping[str, float]) -> str:
    return " and ".join(f"{word} {limit:g}" for word, limit in limits.items())


def _from_text(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, str):
        return value
    if choices := _choices(kind):
        by_text = {str(choice): choice for choice in choices}
        return by_text.get(value.removeprefix("+"), value)
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise UsageError(f"{name} is {value!r}, but must be true or false.")
        return words[value.lower()]
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            raise UsageError(f"{name} is {value!r}, but must be {_article(kind)}.") from None
    return value


def _checked(name: str, value: Any, kind: Any) -> Any:
    value = plain_value(value)  # a number of NumPy or torch counts as one of Python
    if choices := _choices(kind):
        if not isinstance(value, str | int | float) or value not in choices or isinstance(value, bool):
            raise UsageError(f"{name} is {short(value)}, but must be one of {', '.join(map(str, choices))}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return as_number(name, value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{name} is {short(value)}, but must be {_article(kind)}.")
    if kind is float and not math.isfinite(value):
        raise UsageError(f"{name} is {value}, but must be a finite number.")
    return value


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]


def _check_range(name: str, value: Any, limits: Mapping[str, float]) -> None:
    holds = {
        "at least": lambda limit: value >= limit,
        "above": lambda limit: value > limit,
        "at most": lambda limit: value <= limit,
        "below": lambda limit: value < limit,
    }
    if not all(holds[word](limit) for word, limit in limits.items()):
        raise UsageError(f"{name} is {short(value)}, but must be {_limit_words(limits)}.")
