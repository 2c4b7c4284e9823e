"""Compiled forward passes, for those who ask for them or where they pay."""

from unweave.engine.compiling.forwards import Compile, Forwards

__all__ = ["Compile", "Forwards"]
