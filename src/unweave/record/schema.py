"""The form of a record. A file of another form is refused in one sentence before anything is done with it."""

from __future__ import annotations

from typing import Any

from unweave.errors import UsageError
from unweave.files import canonical

FORMAT = {"format": "unweave-record", "version": 1}

_TEXT, _NUMBER, _COUNT = "a text", "a number", "a whole number"
_KINDS: dict[str, tuple[type, ...]] = {
    _TEXT: (str,),
    _NUMBER: (int, float),
    _COUNT: (int,),
    "an object": (dict,),
    "a list": (list,),
}
_CHANGE = {"before?": _NUMBER, "after?": _NUMBER}
# What is relied on: an entry that ends in "?" may be null or absent, "*" stands for any name. docs/record.md says what
# each means.
SECTIONS: dict[str, Any] = {
    "request": {"id": _TEXT, "text": _TEXT},
    "previous?": {"hash": _TEXT, "id": _TEXT},
    "times": {"begun": _TEXT, "finished": _TEXT, "seconds": _NUMBER},
    "model": {"before": _TEXT, "after": _TEXT, "tensors": "an object"},
    "split": {"hash": _TEXT, "samples": _COUNT, "forget": _COUNT, "adjacent": _COUNT, "remote": _COUNT},
    "forget": {"count": _COUNT, "root": _TEXT, "content": _TEXT},
    "configuration": {"method": _TEXT, "profile": _TEXT, "settings": "an object", "seed": _COUNT},
    "software": {"unweave": _TEXT},
    "hardware": {"device": _TEXT},
    "seeds": {"run": _COUNT, "evaluation": _COUNT},
    "scores": {
        "metrics": [
            {
                "metric": _TEXT,
                "split": _TEXT,
                "subset": _TEXT,
                "value?": _NUMBER,
                "low?": _NUMBER,
                "high?": _NUMBER,
                "before?": _NUMBER,
            }
        ]
    },
    "cost": {"seconds": _NUMBER},
    "certificate": {"bound?": _NUMBER, "words": _TEXT, "conditions": "an object"},
    "drift": [{"id": _TEXT, "train?": {"*": _CHANGE}, "test?": {"*": _CHANGE}}],
    "stated_limits": [_TEXT],
}
SCHEMA = {
    **SECTIONS,
    "sections": "an object",
    "hash": _TEXT,
    "signature?": {"algorithm": _TEXT, "public_key": _TEXT, "value": _TEXT},
}
NAMES = [name.removesuffix("?") for name in SECTIONS]


def require_record(content: Any, where: str) -> dict[str, Any]:
    """Return the content as a record, or say what it lacks."""
    if not isinstance(content, dict) or content.get("format") != FORMAT["format"]:
        raise UsageError(f'{where} is no record: it lacks the entry "format": "{FORMAT["format"]}".')
    if content.get("version") != FORMAT["version"]:
        raise UsageError(f"{where} has version {content.get('version')!r}; this unweave reads {FORMAT['version']}.")
    require(content, SCHEMA, where)
    try:
        canonical(content)
    except ValueError as error:
        raise UsageError(f"{where} holds what cannot be hashed: {error}") from error
    return content


def require(content: Any, shape: Any, where: str) -> None:
    """Refuse content of another form than a shape: a kind, a list of one shape, or shapes by name.

    >>> require({"id": 7}, {"id": "a text"}, "it")
    Traceback (most recent call last):
    unweave.errors.UsageError: it.id is 7, but must be a text.
    """
    if isinstance(shape, str):
        is_number = shape in (_NUMBER, _COUNT)
        # JSON knows whole numbers of any length, and true is one to Python.
        odd = is_number and (isinstance(content, bool) or (isinstance(content, int) and abs(content) > 2**63))
        if not isinstance(content, _KINDS[shape]) or odd:
            raise UsageError(f"{where} is {_short(content)}, but must be {shape}.")
    elif isinstance(shape, list):
        require(content, "a list", where)
        for number, entry in enumerate(content):
            require(entry, shape[0], f"{where}[{number}]")
    else:
        require(content, "an object", where)
        for name, inner in shape.items():
            key = name.removesuffix("?")
            if name != key and content.get(key) is None:
                continue
            if key not in content and key != "*":
                raise UsageError(f"{where} lacks the entry {key!r}.")
            for chosen in content if key == "*" else (key,):
                require(content[chosen], inner, f"{where}.{chosen}")


def _short(content: Any) -> str:
    text = type(content).__name__ if isinstance(content, dict | list) else repr(content)
    return text if len(text) <= 40 else f"{text[:40]}…"
