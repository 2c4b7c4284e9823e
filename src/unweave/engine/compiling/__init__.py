"""Passes that are compiled where it pays and recorded on CUDA: one switch, ``compile`` (``auto``, ``on``, ``off``)."""

from unweave.engine.compiling.captures import Captures
from unweave.engine.compiling.forwards import Compile, Forwards

__all__ = ["Captures", "Compile", "Forwards"]
