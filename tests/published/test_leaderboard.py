"""The leaderboard and the protocol's table are those of the committed numbers and of the code."""

from __future__ import annotations

import importlib

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="a source distribution holds no results")


@pytest.fixture(scope="module")
def pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module("leaderboard").pages()


def test_the_pages_show_what_is_committed(pages):
    for name, (text, right) in pages.items():
        assert text == right, f"{name}: run `python tools/leaderboard.py`"


def test_every_benchmark_has_its_tables(pages):
    text, _ = pages["leaderboard.md"]
    for study in ROOT.glob("results/*/all"):
        assert f"\n## {study.parent.name.removesuffix('-bee')}" in text
