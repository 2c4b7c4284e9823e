"""Settings: a dataclass states each default, its range, its help text and its search space, in this one place.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, kw_only=True)
... class AscentSettings(Settings):
...     rate: float = setting(0.01, above=0, search=Around(30), help="Size of a step against the forget data.")
>>> AscentSettings.parse({"rate": "0.1"})
AscentSettings(rate=0.1)
>>> AscentSettings(rate=-1)
Traceback (most recent call last):
unweave.errors.UsageError: rate is -1.0, but must be above 0.
>>> AscentSettings.searched()
{'rate': Around(factor=30)}
"""

from unweave.settings.fields import Settings, default, given, setting
from unweave.settings.search import Around, Between, Choices, Multiples, OneOf, Search, Span

__all__ = [
    "Around",
    "Between",
    "Choices",
    "Multiples",
    "OneOf",
    "Search",
    "Settings",
    "Span",
    "default",
    "given",
    "setting",
]
