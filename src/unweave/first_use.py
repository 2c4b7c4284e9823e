"""Rooms whose names are imported on first use, so that the help of a command needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def on_first_use(room: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a room.

    Args:
        room: The room's ``__name__``.
        homes: Modules, relative to the room where they begin with a dot, and the names that each defines.

    Returns:
        A function that imports a name, or a module of the room.

    >>> on_first_use("unweave.settings", {".fields": ["Settings"]})("Settings").__name__
    'Settings'
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in modules:
            found = getattr(import_module(modules[name], room), name)
        elif f".{name}" in homes:
            return import_module(f".{name}", room)
        else:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        setattr(sys.modules[room], name, found)
        return found

    return find
