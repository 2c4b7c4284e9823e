"""The report as one HTML file that needs no network and runs only its own scripts.

Text from data reaches the page in two ways only: escaped by the template, or inside JSON that cannot end its element
and that the page's script puts into text nodes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave._version import __version__
from unweave.errors import printable
from unweave.lab.report.grids import LEGEND, Grid, failure_grid
from unweave.lab.report.headline import Headline
from unweave.lab.report.results import Results
from unweave.lab.report.sections import Section
from unweave.lab.report.templates import render, resource

DOTTED = "A blue dot and bold: the best method in its column. Underlined: the method nearest to retraining."
SCRIPTS = ("base", "marks", "labels", "plane", "tables", "measure", "method", "dynamics", "answers", "live", "start")
WARNINGS = ("Failed", "Collapsed")
CONTENTS = {
    "verdict": "What stands out",
    "trade-off": "The trade-off",
    "tables": "The numbers",
    "compare": "One measure, every method",
    "method": "One method, up close",
    "answers": "The answers",
    "studies": "The studies",
    "paper": "Beside the paper",
    "failed": "Failed",
}
DEFINITIONS = (
    ("Forget data", "what the model is to forget."),
    ("Adjacent data", "data to keep that resembles the forget data."),
    ("Remote data", "all other data to keep."),
    ("Recognised", "the model still gives the right answer to a sample."),
    ("Forgets", "at most 5% of the forget samples are still recognised."),
    (
        "Keeps",
        "adjacent and remote accuracy fall by at most 2 points on average, measured on test data or, without any "
        "that the original knows, on training data. A fall of 2 to 10 points is a price; more ruins the model.",
    ),
    ("Retrain", "a model trained from the start without the forget data: what forgetting would ideally give."),
)


def write_page(
    path: Path,
    results: Results,
    verdict: Headline,
    *,
    content: dict[str, Any],
    studies: Sequence[Section],
    paper: list[Grid] | None,
    picture: Path,
) -> None:
    """Write the page. ``paper`` is None if the paper's numbers were not asked for."""
    static = content.pop("static")
    marked = any(grid["name"] == "accuracy" for grid in content["grids"])
    page = render(
        "report.html",
        style=resource("page/page.css"),
        scripts={"library": resource("vendor/chart.umd.min.js"), "script": _script()},
        version=__version__,
        title=f"Unlearning report · {results.benchmark}",
        eyebrow=_eyebrow(results),
        setting=" · ".join(f"{name}: {text}" for name, text in results.notes.items()),
        verdict=verdict,
        contents=_contents(verdict, studies, paper, results, content),
        definitions=DEFINITIONS,
        warnings=WARNINGS,
        picture=_picture(picture),
        static=static,
        legend=f"{LEGEND} {DOTTED}" if marked else LEGEND,
        studies=studies,
        paper=paper,
        failures=failure_grid(results) if results.failures else None,
        footer=_footer(results),
        content=showable(content),
    )
    path.write_text(page, encoding="utf-8")


def showable(content: Any) -> Any:
    r"""Replace numbers that JSON cannot hold by None, which charts leave out, and write control characters out.

    >>> showable({"loss": (1.5, float("nan")), "answer": "nevil\u202e"})
    {'loss': [1.5, None], 'answer': 'nevil\\u202e'}
    """
    if isinstance(content, dict):
        return {printable(str(key)): showable(entry) for key, entry in content.items()}
    if isinstance(content, list | tuple):
        return [showable(entry) for entry in content]
    if isinstance(content, str):
        return printable(content)
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _contents(
    verdict: Headline, studies: Sequence[Section], paper: list[Grid] | None, results: Results, content: dict[str, Any]
) -> list[tuple[str, str]]:
    """Return the sections of the page. Its script hides what a study has no data for."""
    there = {"studies": bool(studies), "paper": paper is not None, "failed": bool(results.failures)}
    there["answers"] = bool(content["answers"])
    titles = CONTENTS if verdict.points else {**CONTENTS, "verdict": "What the words mean"}
    return [(name, words) for name, words in titles.items() if there.get(name, True)]


def _eyebrow(results: Results) -> str:
    own = [group for group in results.groups if not group.is_reference]
    extra = sum(results.is_extra(group) for group in own)
    counts = [_plural(len(own) - extra, "method"), *([_plural(extra, "variant")] if extra else [])]
    return " · ".join(["unweave", f"benchmark {results.benchmark}", *counts, _plural(len(results.seeds), "seed")])


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _picture(path: Path) -> str:
    """Return the trade-off plot as a picture inside the page, for readers without scripts."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.exists() else ""


def _footer(results: Results) -> list[str]:
    versions = " · ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    return [
        f"Made by unweave {__version__} from the files of the study. {f'Runs: {versions}. ' if versions else ''}"
        "Charts: Chart.js (MIT licence).",
    ]


def _script() -> str:
    """Return the page's script: all files in one block, so that their names stay local to it."""
    return "\n".join(['"use strict";', "{", *(resource(f"page/{name}.js") for name in SCRIPTS), "}"])
