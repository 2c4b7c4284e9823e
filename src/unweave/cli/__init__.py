"""The command line: parse, call, print. Results go to standard output, progress and warnings to standard error."""

from unweave.cli.app import main

__all__ = ["main"]
