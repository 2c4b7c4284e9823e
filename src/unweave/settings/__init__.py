"""Settings: dataclasses that are the only home of a default, its range, its help text and its search space."""

from unweave.settings.fields import Settings, default, given, setting
from unweave.settings.search import Around, Between, Choices, Multiples, OneOf, Span

__all__ = ["Around", "Between", "Choices", "Multiples", "OneOf", "Settings", "Span", "default", "given", "setting"]
