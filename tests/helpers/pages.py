"""What the docs' pages show: their Python examples; and the commands that they may name."""

from __future__ import annotations

import re
import textwrap


def python_blocks(path):
    """Return the Python examples of a Markdown file, indented ones included."""
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    assert blocks
    return [textwrap.dedent(body) for _, body in blocks]


def commands(group, path="unweave"):
    """Yield every command of a group of commands, with its name."""
    for name, found in group.commands.items():
        if inner := getattr(found, "commands", None):
            yield from commands(found, f"{path} {name}") if inner else ()
        else:
            yield f"{path} {name}", found
