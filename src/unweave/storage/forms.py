"""The form of JSON from outside: it is checked before use, and rejected with an error of one sentence."""

from __future__ import annotations

from typing import Any

from unweave.errors import UsageError

TEXT, NUMBER, COUNT, OBJECT, LIST = "a text", "a number", "a whole number", "an object", "a list"
LARGEST = 1e100  # of what is measured; sums and squares of larger numbers would overflow
_KINDS: dict[str, tuple[type, ...]] = {
    TEXT: (str,),
    NUMBER: (int, float),
    COUNT: (int,),
    OBJECT: (dict,),
    LIST: (list,),
}


def require_form(content: Any, form: Any, where: str) -> None:
    """Raise a `UsageError` if content has another form: a kind, a list of entries of one form, or forms by name.

    An entry whose name ends in "?" may be null or absent. The name "*" stands for every name.

    >>> require_form({"id": 7}, {"id": TEXT}, "it")
    Traceback (most recent call last):
    unweave.errors.UsageError: it.id is 7, but must be a text.
    """
    if isinstance(form, str):
        if not _is_of_kind(content, form):
            raise UsageError(f"{where} is {_short(content)}, but must be {form}.")
    elif isinstance(form, list):
        require_form(content, LIST, where)
        for number, entry in enumerate(content):
            require_form(entry, form[0], f"{where}[{number}]")
    else:
        require_form(content, OBJECT, where)
        for name, inner in form.items():
            key = name.removesuffix("?")
            for chosen in content if key == "*" else (key,):
                if name != key and content.get(chosen) is None:
                    continue
                if chosen not in content:
                    raise UsageError(f"{where} lacks the entry {chosen!r}.")
                require_form(content[chosen], inner, f"{where}.{chosen}")


def _is_of_kind(content: Any, kind: str) -> bool:
    if kind in (NUMBER, COUNT):  # JSON allows whole numbers of any length, and Python counts True as a number
        too_long = isinstance(content, int | float) and abs(content) > (2**63 if isinstance(content, int) else LARGEST)
        return isinstance(content, _KINDS[kind]) and not isinstance(content, bool) and not too_long
    return isinstance(content, _KINDS[kind])


def _short(content: Any) -> str:
    text = type(content).__name__ if isinstance(content, dict | list) else repr(content)
    return text if len(text) <= 40 else f"{text[:40]}…"
