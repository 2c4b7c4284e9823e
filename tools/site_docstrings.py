"""An extension of griffe, which reads the docstrings for the reference: their examples are shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*?(?=\n\n(?! *>>>)|\n(?!\1)|\Z)", flags=re.S | re.M)


class Examples(griffe.Extension):
    """Put the examples of every docstring into blocks of code."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute, if it has one."""
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_as_code, obj.docstring.value)


def _as_code(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```"
