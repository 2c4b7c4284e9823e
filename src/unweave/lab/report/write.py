"""Write the report of a study, completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave._version import __version__
from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.report.grids import failure_notes, study_grids
from unweave.lab.report.headline import Headline, verdict
from unweave.lab.report.results import Results
from unweave.lab.report.study_reader import read_results
from unweave.runs import remove_folder
from unweave.storage import Lock

if TYPE_CHECKING:
    from unweave.lab.report.sections import Section

MARK = "report.json"


@dataclass(frozen=True)
class Report:
    """The folder of a report, its page, its verdict, and the cells of the study that failed."""

    folder: Path
    page: Path
    verdict: str
    failures: tuple[str, ...]


def write_report(
    folder: Path, *, against_paper: bool = False, figures: bool = True, live: dict[str, Any] | None = None
) -> Report:
    """Write tables, figures and the page of a study into ``report/`` in its folder. An older report is replaced.

    Args:
        folder: The study's folder.
        against_paper: Whether the paper's numbers stand beside ours.
        figures: Whether to draw the figures as files too. The page draws its own. Without, the files of an older
            report are replaced one by one, so that a page that is open always finds its file.
        live: Makes the page load itself again: after how many ``seconds``, and ``words`` about the study.

    Raises:
        UsageError: The folder holds no study that this version can read. Then nothing is written.
    """
    from unweave.lab.report.sections import sections

    results = read_results(folder)
    target = check_target(folder)
    if figures:
        from unweave.lab.report.study_figures import draw_figures  # slow to import, so after the checks

    said, studies = verdict(results), sections(results, against_paper=against_paper)
    with (_replacing if figures else _refreshing)(target) as partial:
        if figures:
            draw_figures(results, partial / "figures")
        _write_texts(partial, results, said, studies, against_paper=against_paper, live=live)
    return Report(target, target / "index.html", said.text(), tuple(failure_notes(results)))


def check_target(folder: Path) -> Path:
    """Return the folder of a study's report. Raises `UsageError` if something else is there, or matplotlib missing."""
    target = folder / "report"
    if target.exists() and not (target / MARK).exists():
        raise UsageError(f"{target} exists and is not a report. Move it elsewhere.")
    require_package("matplotlib", "A report")
    return target


def _write_texts(
    partial: Path,
    results: Results,
    said: Headline,
    studies: Sequence[Section],
    *,
    against_paper: bool,
    live: dict[str, Any] | None,
) -> None:
    """Write the tables, the page and the note of what they are."""
    from unweave.lab.report.content import page_content
    from unweave.lab.report.formats import comma_separated, latex, markdown
    from unweave.lab.report.page import write_page
    from unweave.lab.report.paper import cost_grid, paper_grid, paper_notes

    grids = study_grids(results)
    beside = [grid for grid in (paper_grid(results), cost_grid(results)) if grid] if against_paper else None
    for grid in [*grids, *(beside or []), *(grid for study in studies for grid in study.grids)]:
        for suffix, write in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
            (partial / "tables" / f"{grid.name}.{suffix}").write_text(write(grid), encoding="utf-8")
    content = page_content(results, grids, said, paper_notes(results) if against_paper else [], live=live)
    picture = partial / "figures" / "trade-off.png"
    write_page(partial / "index.html", results, said, content=content, studies=studies, paper=beside, picture=picture)
    about = {"format": "unweave-report", "schema": 1, "unweave": __version__, "benchmark": results.benchmark}
    about |= {"verdict": said.headline, "advice": said.advice, "points": dict(said.points)}
    about |= {"failed": failure_notes(results)}
    (partial / MARK).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _refreshing(target: Path) -> Iterator[Path]:
    """Yield a new folder whose files take the places of the target's, the page last. Other files of it stay."""
    if not target.exists():
        with _replacing(target) as partial:
            yield partial
        return
    partial = target.with_name(".report.partial")
    with Lock(target.with_name(".report.lock"), wait=True):
        remove_folder(partial)
        try:
            for name in ("tables", "figures"):
                (partial / name).mkdir(parents=True)
            yield partial
            files = [path for path in partial.rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path.name == "index.html"):
                place = target / path.relative_to(partial)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
        finally:
            remove_folder(partial)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a new folder that takes the target's place when it is finished; only then the older one is removed.

    A process at a time. What another one left that was killed is removed first.
    """
    partial, older = (target.with_name(f".report.{word}") for word in ("partial", "older"))
    with Lock(target.with_name(".report.lock"), wait=True):
        for left in (partial, older):
            remove_folder(left)
        try:
            for name in ("tables", "figures"):
                (partial / name).mkdir(parents=True)
            yield partial
            if target.exists():
                target.rename(older)
            partial.rename(target)
        finally:
            for left in (partial, older):
                remove_folder(left)
