"""Plain HTML pages: one file, no script, nothing from the network. Every text is escaped.

>>> print(table(["name", "value"], [["<b>", Bar(0.25)]]).partition("<tbody>")[2].partition("</tbody>")[0])
<tr><td>&lt;b&gt;</td><td class="number">25.0%<i style="width:25.0%"></i></td></tr>
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PICTURE = "data:image/"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4a7db555; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; position: relative; }
td.number i { position: absolute; left: 0; bottom: 0; height: 3px; background: var(--bar); }
pre { white-space: pre-wrap; padding: .75rem 1rem; border-left: 4px solid var(--bar); }
img { image-rendering: auto; max-height: 96px; } .scroll { overflow-x: auto; }
"""


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1, shown as a percentage over a bar."""

    share: float | None


@dataclass(frozen=True)
class Picture:
    """A picture inside the page: a data URI of an image."""

    source: str


Entry = str | int | float | Bar | Picture | None


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page: its title and its parts, which are HTML already."""
    named = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{named}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{named}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a heading with parts below it, which are HTML already."""
    return "\n".join([f"<h2>{html.escape(title)}</h2>", *parts])


def words(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def block(text: str) -> str:
    """Return text whose lines stay as they are."""
    return f"<pre>{html.escape(text)}</pre>"


def points(texts: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>"


def table(head: Sequence[str], rows: Iterable[Sequence[Entry]]) -> str:
    """Return a table."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(entry: Entry) -> str:
    if isinstance(entry, Picture):
        safe = entry.source if entry.source.startswith(PICTURE) else ""
        return f'<td><img alt="" src="{html.escape(safe)}"></td>'
    if isinstance(entry, Bar):
        if entry.share is None:
            return '<td class="number">–</td>'
        width = 100 * min(max(entry.share, 0.0), 1.0)
        return f'<td class="number">{entry.share:.1%}<i style="width:{width:.1f}%"></i></td>'
    if isinstance(entry, str):
        return f"<td>{html.escape(entry)}</td>"
    number = "–" if entry is None else f"{entry:,}" if isinstance(entry, int) else f"{entry:.3f}"
    return f'<td class="number">{number}</td>'
