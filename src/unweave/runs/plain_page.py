"""Plain HTML pages: one file, nothing from the network. Every text is escaped; only tables to search have a script.

>>> print(table(["name", "value"], [["<b>", Bar(0.25)]]).partition("<tbody>")[2].partition("</tbody>")[0])
<tr><th scope="row">&lt;b&gt;</th><td class="number">25.0%<i style="width:25.0%"></i></td></tr>
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from unweave.errors import printable

PICTURE = "data:image/"
SEARCHED = '<div class="searched">'


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1, shown as a percentage over a bar."""

    share: float | None


@dataclass(frozen=True)
class Picture:
    """A picture inside the page: a data URI of an image, and words for those who do not see it."""

    source: str
    words: str = ""


Entry = str | int | float | Bar | Picture | None


def page(title: str, parts: Iterable[str], *, lead: Sequence[str] = ()) -> str:
    """Return a whole page.

    Args:
        title: Its heading.
        parts: Its parts, which are HTML already. Those made by `section` are in its list of contents.
        lead: Parts above the list of contents, which are HTML already.

    Returns:
        HTML.

    >>> "script-src 'none'" in page("A title", [section("One", words("text"))])
    True
    """
    named, body = _shown(title), "\n".join(parts)
    script = _resource("search.js") if SEARCHED in body else ""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else "'none'"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{named}</title>\n<link rel="icon" href="data:,">\n<style>{style()}</style>\n</head>\n'
        '<body>\n<a class="skip" href="#main">Skip to the report</a>\n'
        f"<header>\n<h1>{named}</h1>\n" + "\n".join(lead) + f"\n</header>\n{_contents(body)}"
        f'<main id="main">\n{body}\n</main>\n{f"<script>{script}</script>" if script else ""}</body>\n</html>\n'
    )


def _shown(text: str) -> str:
    """Return a text as HTML shows it. Characters that hide or reorder the text around them are written out."""
    return html.escape(printable(text))


def style() -> str:
    """Return the style of these pages."""
    return _resource("plain.css")


def _resource(name: str) -> str:
    return files("unweave.runs").joinpath("page", name).read_text(encoding="utf-8")


def _contents(body: str) -> str:
    """Return links to the sections of a page; nothing for a page of one."""
    found = re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', body)
    links = "".join(f'<li><a href="#{name}">{words}</a></li>' for name, words in found)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n' if len(found) > 1 else ""


def section(title: str, *parts: str) -> str:
    """Return a heading with parts below it, which are HTML already."""
    name = re.sub(r"\W+", "-", title.lower()).strip("-")
    head = f'<section aria-labelledby="{name}">\n<h2 id="{name}">{_shown(title)}</h2>'
    return "\n".join([head, *parts, "</section>"])


def words(text: str, *, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{_shown(text)}</p>' if kind else f"<p>{_shown(text)}</p>"


def block(text: str) -> str:
    """Return text whose lines stay as they are."""
    return f"<pre>{_shown(text)}</pre>"


def points(texts: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{_shown(text)}</li>" for text in texts) + "</ul>"


def terms(meanings: Iterable[tuple[str, str]]) -> str:
    """Return words with what they mean."""
    return "<dl>" + "".join(f"<dt>{_shown(a)}</dt><dd>{_shown(b)}</dd>" for a, b in meanings) + "</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[Entry]], *, caption: str = "", is_stacked: bool = False) -> str:
    """Return a table. The first entry of a row names it. Without names, a head has no row of its own.

    On a narrow screen, a stacked table shows the cells of a row below each other, each under its column's name.
    """
    rows = list(rows)
    numbers = {place for row in rows for place, entry in enumerate(row) if isinstance(entry, Bar | int | float)}
    top = "".join(_heading(name, number=place in numbers) for place, name in enumerate(head))
    above = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    said = f"<caption>{_shown(caption)}</caption>" if caption else ""
    cells = [[_named(row[0]), *map(_cell, row[1:])] for row in rows]
    if is_stacked:
        cells = [[_with_column(cell, name) for name, cell in zip(head, row, strict=True)] for row in cells]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    kind = ' class="stacked"' if is_stacked else ""
    region = f'class="scroll" tabindex="0" role="region" aria-label="{_shown(caption) or "Table"}"'
    return f"<div {region}><table{kind}>{said}{above}<tbody>{body}</tbody></table></div>"


def searched(head: Sequence[str], rows: Sequence[Sequence[Entry]], *, caption: str) -> str:
    """Return a table to search, and to filter by the first entry of its rows. Without scripts it shows all."""
    kinds = list(dict.fromkeys(str(row[0]) for row in rows))
    options = "".join(f"<option>{_shown(kind)}</option>" for kind in kinds)
    controls = (
        '<div class="controls" role="search"><label>Search <input type="search"></label>'
        f'<label>Show <select><option value="">all</option>{options}</select></label>'
        f'<p role="status">{len(rows)} of {len(rows)} shown.</p></div>'
    )
    return f"{SEARCHED}{controls}{table(head, rows, caption=caption, is_stacked=True)}</div>"


def _with_column(cell: str, name: str) -> str:
    """Return a cell that knows the name of its column."""
    tag = cell[1:3]
    return f'<{tag} data-column="{_shown(name)}"{cell[3:]}'


def _heading(name: str, *, number: bool) -> str:
    if not name:
        return "<td></td>"
    kind = ' class="number"' if number else ""
    return f'<th scope="col"{kind}>{_shown(name)}</th>'


def _named(entry: Entry) -> str:
    """Return the entry that names a row."""
    return f'<th scope="row">{_shown(entry)}</th>' if isinstance(entry, str) else _cell(entry)


def _cell(entry: Entry) -> str:
    if isinstance(entry, Picture):
        safe = entry.source if entry.source.startswith(PICTURE) else ""
        return f'<td><img alt="{_shown(entry.words)}" src="{_shown(safe)}"></td>'
    if isinstance(entry, Bar):
        if entry.share is None:
            return '<td class="number">–</td>'
        width = 100 * min(max(entry.share, 0.0), 1.0)
        return f'<td class="number">{entry.share:.1%}<i style="width:{width:.1f}%"></i></td>'
    if isinstance(entry, str):
        return f"<td>{_shown(entry)}</td>"
    number = "–" if entry is None else f"{entry:,}" if isinstance(entry, int) else f"{entry:.3f}"
    return f'<td class="number">{number}</td>'
