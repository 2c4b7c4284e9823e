"""YAML from outside, as strict as our JSON: one meaning, no growth, plain values.

What YAML can do beyond JSON is refused: aliases, which can grow without end, merges and repeated keys, of which one
value is dropped in silence, and tags, which name types.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from unweave.storage import require_plain_values

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C is ten times as fast
MERGE = "tag:yaml.org,2002:merge"
DEEPEST = 100  # levels of lists and keys, as in JSON
LONG_NUMBER = re.compile(r"[-+\d_:.]{100,}")  # in base 60 it would take hours to read


class NotPlainError(ValueError):
    """What the text holds is refused. The message goes on after the name of the file."""


def parse_yaml(text: str) -> Any:
    r"""Return the plain values of YAML, or raise an error of one sentence.

    Args:
        text: The content of a file.

    Returns:
        The values.

    Raises:
        NotPlainError: The text could mean two things, or more than plain values.
        yaml.YAMLError: It is not YAML.
        ValueError: A number or a date in it cannot be read.

    >>> parse_yaml("set: {epochs: 2}")
    {'set': {'epochs': 2}}
    >>> parse_yaml("model: a\nmodel: b")
    Traceback (most recent call last):
    unweave.requests.strict_yaml.NotPlainError: has the key 'model' twice. Keep one.
    """
    depth = 0
    for event in yaml.parse(text, Loader=Parser):
        _refuse_event(event)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise NotPlainError("is nested too deeply for a request.")
    loader = _Strict(text)
    try:
        content = loader.get_single_data()
    finally:
        loader.dispose()
    require_plain_values(content)
    return content


def _refuse_event(event: Any) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise NotPlainError(f"has the alias *{event.anchor}. Write the value where it is used.")
    if getattr(event, "tag", None):
        raise NotPlainError(f"has the tag {event.tag!r}. Write the value without it.")
    if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and LONG_NUMBER.fullmatch(event.value):
        raise NotPlainError(f"has the number {event.value[:40]}…, which is too large. Quote it if it is a text.")


class _Strict(Parser):  # type: ignore[misc]
    """A safe loader that takes every key once, and no merges."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if any(key.tag == MERGE for key, _ in node.value):
            raise NotPlainError("has the key '<<', which merges keys. Write each key where it is used.")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) < len(node.value):
            keys: set[Any] = set()
            for place, _ in node.value:
                key = self.construct_object(place, deep=True)
                if key in keys:
                    raise NotPlainError(f"has the key {key!r} twice. Keep one.")
                keys.add(key)
        return found
