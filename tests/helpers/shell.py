"""The command line, called in this process: torch is loaded once for all tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from unweave.cli import main


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str


@pytest.fixture
def shell(monkeypatch, capsys):
    """Return a function that calls a command and returns its exit code and what it printed."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return Called(int(ended.value.code or 0), found.out, found.err)

    return call
