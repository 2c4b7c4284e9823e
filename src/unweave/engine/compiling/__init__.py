"""Compiled forward passes, opt-in or where they pay: one switch, ``compile`` (``auto``, ``on`` or ``off``)."""

from unweave.engine.compiling.forwards import Compile, Forwards

__all__ = ["Compile", "Forwards"]
