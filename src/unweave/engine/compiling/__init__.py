"""Passes that are compiled where it pays and recorded on CUDA: one switch, ``compile`` (``auto``, ``on``, ``off``)."""

from unweave.engine.compiling.captures import Captures
from unweave.engine.compiling.forwards import Compile, Forwards
from unweave.engine.compiling.portable import NAMED, save_code

__all__ = ["NAMED", "Captures", "Compile", "Forwards", "save_code"]
