"""The report as one HTML file that needs no network and runs no script but its own.

Texts from data reach the page in two ways only: escaped into HTML here, or as JSON that cannot end its element, which
the page's script puts into text nodes. A content policy names the three scripts and styles by their hashes, so that
the browser would refuse anything else, and every request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from unweave._version import __version__
from unweave.lab.report.grids import LEGEND, MARKED, Column, Entry, Grid
from unweave.lab.report.results import Results
from unweave.lab.report.sections import Section
from unweave.lab.report.verdict import Verdict

SCRIPTS = ("base", "plane", "tables", "method", "dynamics", "start")
WARNINGS = ("Failed", "Collapsed")
UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def write_page(
    path: Path,
    results: Results,
    verdict: Verdict,
    *,
    content: dict[str, Any],
    studies: Sequence[Section],
    paper: list[Grid] | None,
    picture: Path,
) -> None:
    """Write the page. ``paper`` is None where nobody asked for the paper's numbers."""
    style, script, library = _resource("page/page.css"), _script(), _resource("vendor/chart.umd.min.js")
    title = f"Unlearning report · {results.benchmark}"
    accuracies = next((grid for grid in content["grids"] if grid["name"] == "accuracy"), None)
    page = Template(_resource("page/page.html")).substitute(
        policy=policy(style, library, script),
        version=html.escape(__version__),
        title=html.escape(title),
        style=style,
        eyebrow=html.escape(_eyebrow(results)),
        setting=_setting(results),
        headline=html.escape(verdict.headline),
        points="".join(_point(name, words) for name, words in verdict.points),
        picture=_picture(picture),
        static="".join(f"<h2>{html.escape(grid.title)}</h2>{html_table(grid)}" for grid in content.pop("static")),
        legend=html.escape(f"{LEGEND} {MARKED}" if accuracies else LEGEND),
        studies=_studies(studies),
        paper="" if paper is None else _paper(paper, content["paper_notes"]),
        failures=_failures(results),
        footer=_footer(results),
        data=embed(content),
        library=library,
        script=script,
    )
    path.write_text(page, encoding="utf-8")


def embed(content: Any) -> str:
    r"""Return JSON that is safe inside a script element.

    >>> print(embed({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(_finite(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(UNSAFE)


def _finite(content: Any) -> Any:
    """Replace what JSON has no word for: a chart leaves None out, and its text says what it was."""
    if isinstance(content, dict):
        return {str(key): _finite(entry) for key, entry in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(entry) for entry in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def policy(style: str, *scripts: str) -> str:
    """Return a content policy that lets these texts run, and pictures inside the page, and nothing else."""
    allowed = " ".join(_digest(script) for script in scripts)
    rest = "base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {allowed}; {rest}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _eyebrow(results: Results) -> str:
    own = [group for group in results.groups if not group.is_reference]
    extra = sum(results.is_extra(group) for group in own)
    counts = [_plural(len(own) - extra, "method"), *([_plural(extra, "variant")] if extra else [])]
    return " · ".join(["unweave", f"benchmark {results.benchmark}", *counts, _plural(len(results.seeds), "seed")])


def _setting(results: Results) -> str:
    """Return what a reader of the numbers must know of the benchmark."""
    words = " · ".join(f"{name}: {text}" for name, text in results.notes.items())
    return f'<p class="eyebrow">{html.escape(words)}</p>' if words else ""


def _studies(studies: Sequence[Section]) -> str:
    """Return the named studies, each with its question and its tables."""
    if not studies:
        return ""
    parts = []
    for study in studies:
        heading = f"<h3>{html.escape(study.name)}</h3><p>{html.escape(study.summary)}</p>"
        chart = _resource("page/dynamics.html") if study.dynamics else ""
        name = html.escape(study.name)
        parts.append(f'<div class="study" data-study="{name}">{heading}{chart}{_study_tables(study)}</div>')
    return f'<section id="studies"><h2>The studies</h2>{"".join(parts)}</section>'


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _study_tables(study: Section) -> str:
    """Return the tables of a named study, or where they are already."""
    titles = [grid.title.split(" · ")[0] for grid in study.grids]
    if study.everything:
        words = " and ".join(f"“{title}”" for title in titles)
        return f'<p class="note">Its table is above: {html.escape(words)} in <a href="#tables">the numbers</a>.</p>'
    tables = [
        f"<h4>{html.escape(title)}</h4>{html_table(grid)}" for title, grid in zip(titles, study.grids, strict=True)
    ]
    notes = dict.fromkeys(note for grid in study.grids for note in grid.notes if note not in (LEGEND, MARKED))
    return "".join([*tables, *(f'<p class="note">{html.escape(note)}</p>' for note in notes)])


def _point(name: str, words: str) -> str:
    kind = ' class="warn"' if name in WARNINGS else ""
    return f"<div{kind}><dt>{html.escape(name)}</dt><dd>{html.escape(words)}</dd></div>"


def html_table(grid: Grid) -> str:
    """Return a table as HTML, every text escaped."""
    rows = []
    for row in grid.rows:
        cells = "".join(
            f'<td class="{_kind(column, entry)}">{html.escape(entry.text)}</td>'
            for column, entry in zip(grid.columns, row.entries, strict=True)
        )
        name = html.escape(row.name)
        rows.append(f'<tr><th scope="row" title="{name}">{name}</th>{cells}</tr>')
    body = f"<thead>{_headings(grid.columns)}</thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll" tabindex="0"><table data-grid="{html.escape(grid.name)}">{body}</table></div>'


def _headings(columns: Sequence[Column]) -> str:
    """Return the rows of headings: what columns have in common stands over them."""
    # An arrow stays on the line of the word before it.
    words = [re.sub(r" ([↓↑→])", "\u00a0\\1", column.heading) for column in columns]
    names = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in words)
    lower = f'<tr><th scope="col">method</th>{names}</tr>'
    if not any(column.section for column in columns):
        return lower
    parts = [
        f'<th colspan="{len(list(members))}">{html.escape(section)}</th>'
        for section, members in itertools.groupby(columns, key=lambda column: column.section)
    ]
    return f'<tr class="sections"><th></th>{"".join(parts)}</tr>{lower}'


def _kind(column: Column, entry: Entry) -> str:
    return "error" if column.heading == "error" else " ".join(entry.marks)


def _picture(path: Path) -> str:
    """Return the trade-off as a picture, for readers without scripts."""
    if not path.exists():
        return ""
    code = base64.b64encode(path.read_bytes()).decode()
    return f'<img class="static" alt="The trade-off plane" src="data:image/png;base64,{code}">'


def _paper(grids: list[Grid], notes: list[str]) -> str:
    paragraphs = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)
    tables = "".join(f"{html_table(grid)}{_notes(grid, notes)}" for grid in grids)
    return f'<section id="paper"><h2>Beside the paper</h2>{paragraphs}{tables}</section>'


def _notes(grid: Grid, said: list[str]) -> str:
    return "".join(f'<p class="note">{html.escape(note)}</p>' for note in grid.notes if note not in said)


def _failures(results: Results) -> str:
    if not results.failures:
        return ""
    rows = "".join(
        f"<tr><th>{html.escape(results.label(cell.group))}</th><td>{cell.seed}</td>"
        f'<td class="error">{html.escape(cell.error)}</td></tr>'
        for cell in results.failures
    )
    head = '<thead><tr><th>method</th><th>seed</th><th class="error">error</th></tr></thead>'
    words = f"{_plural(len(results.failures), 'cell')} failed and have no numbers above."
    table = f'<div class="scroll" tabindex="0"><table data-grid="failed">{head}<tbody>{rows}</tbody></table></div>'
    return f'<section id="failed"><h2>Failed</h2><p class="alert">{words}</p>{table}</section>'


def _footer(results: Results) -> str:
    versions = " · ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    lines = [
        "Forget: what is to be unlearned. Adjacent: what looks like it and must stay. Remote: everything else.",
        "A method forgets if it still recognises at most 5% of the forget samples; it keeps if its mean adjacent and "
        "remote test accuracy lose at most 2 points against the original's, and collapses if one of them loses more "
        "than 10. (Training accuracy counts where there is no test data.)",
        f"Made by unweave {__version__} from the study's own files. {f'Runs: {versions}. ' if versions else ''}"
        "Charts: Chart.js (MIT licence).",
    ]
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _script() -> str:
    """Return the page's script: its files in one block, so that they share their names with nobody else."""
    return "\n".join(['"use strict";', "{", *(_resource(f"page/{name}.js") for name in SCRIPTS), "}"])


def _resource(name: str) -> str:
    return files("unweave.lab.report").joinpath(*name.split("/")).read_text(encoding="utf-8")
