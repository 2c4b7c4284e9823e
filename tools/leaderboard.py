"""Write the leaderboard of `docs/leaderboard.md` and the table of `docs/protocol.md`: `python tools/leaderboard.py`.

Rows come from the published studies in `results/`, and from what `unweave submit` wrote to `results/leaderboard`.
"""

from __future__ import annotations

import re
import sys

import gallery
from places import RESULTS, ROOT
from unweave.lab.leaderboard import as_markdown, read_board, rows_of
from unweave.lab.protocol import PROTOCOL
from unweave.lab.report import read_results

PAGE, PROTOCOL_PAGE = ROOT / "docs" / "leaderboard.md", ROOT / "docs" / "protocol.md"
PARTS = ("all", "tuned")  # studies of a benchmark; others are of one method only


def published() -> str:
    """Return the tables of everything that is published."""
    rows = []
    for name in gallery.studies():
        if name.partition("/")[2] in PARTS:
            rows += rows_of([read_results(RESULTS / name)])
    for name in gallery.comparisons():
        rows += rows_of([read_results(study.parent) for study in sorted((RESULTS / name).glob("*/study.json"))])
    return as_markdown([*rows, *read_board(RESULTS / "leaderboard")])


def filled(text: str, mark: str, part: str) -> str:
    """Return the text of a page with this part between its marks."""
    new, found = re.subn(f"(<!-- {mark} -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{part}\n{m[2]}", text, flags=re.S)
    if found != 1:
        raise ValueError(f"The page has {found} places for {mark!r}, but needs one.")
    return new


def pages() -> dict[str, tuple[str, str]]:
    """Return the text of both pages, by name, as it is and as it should be."""
    found = {}
    for page, mark, part in ((PAGE, "leaderboard", published()), (PROTOCOL_PAGE, "protocol", PROTOCOL.markdown())):
        text = page.read_text(encoding="utf-8")
        found[page.name] = (text, filled(text, mark, part))
    return found


if __name__ == "__main__":
    for name, (_, new) in pages().items():
        (ROOT / "docs" / name).write_text(new, encoding="utf-8")
    sys.exit(0)
