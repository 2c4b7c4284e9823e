"""Links between the pages of the repository lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.helpers.places import ROOT

DOCS = [page for page in ROOT.glob("docs/**/*.md") if page.parent.parent.name != "gallery"]
PAGES = sorted([*ROOT.glob("*.md"), *DOCS, *ROOT.glob("tools/*.md")])
pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="a source distribution holds no results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_links_to_is_there(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [link.partition("#")[0] for link in links if not link.startswith(("http", "mailto", "#"))]
    assert [link for link in local if not (page.parent / link).exists()] == []
