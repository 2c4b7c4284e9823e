"""Put the tables that come from `results/speed` into docs/speed.md, in the place of those with the same heading.

    python tools/speed_page.py

It names the tables that the page has no place for. The sentences around them are written by hand.
"""

from __future__ import annotations

from page_tables import tables_of
from places import ROOT

PAGE = "docs/speed.md"


def placed(text: str, table: str) -> str | None:
    """Return a page with a table in the place of the one with the same heading, or None if there is none."""
    heading = table.split("\n", 1)[0]
    before, found, after = text.partition(f"\n{heading}\n")
    if not found:
        return None
    rest = after.split("\n")
    rows = next((number for number, line in enumerate(rest) if not line.startswith("|")), len(rest))
    return "\n".join([before, table, *rest[rows:]])


def main() -> None:
    """Write the page again."""
    file = ROOT / PAGE
    text = file.read_text(encoding="utf-8")
    for table in tables_of(PAGE):
        new = placed(text, table)
        if new is None:
            print(f"{PAGE} has no table with this heading:\n\n{table}\n")
        text = new or text
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
