"""Write the report of a study, completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unweave._version import __version__
from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.report.grids import failure_notes, study_grids
from unweave.lab.report.headline import verdict
from unweave.lab.report.study_reader import read_results
from unweave.runs import remove_folder
from unweave.storage import Lock

MARK = "report.json"


@dataclass(frozen=True)
class Report:
    """The folder of a report, its page, its verdict, and the cells of the study that failed."""

    folder: Path
    page: Path
    verdict: str
    failures: tuple[str, ...]


def write_report(folder: Path, *, against_paper: bool = False) -> Report:
    """Write tables, figures and the page of a study into ``report/`` in its folder. An older report is replaced.

    Raises `UsageError`, and writes nothing, if the folder holds no study that this version can read.
    """
    from unweave.lab.report.content import page_content
    from unweave.lab.report.formats import comma_separated, latex, markdown
    from unweave.lab.report.page import write_page
    from unweave.lab.report.paper import cost_grid, paper_grid, paper_notes
    from unweave.lab.report.sections import sections

    results = read_results(folder)
    target = folder / "report"
    if target.exists() and not (target / MARK).exists():
        raise UsageError(f"{target} exists and is not a report. Move it elsewhere.")
    require_package("matplotlib", "A report")
    from unweave.lab.report.study_figures import draw_figures  # slow to import, so after the checks

    said, grids = verdict(results), study_grids(results)
    studies = sections(results, against_paper=against_paper)
    beside = [grid for grid in (paper_grid(results), cost_grid(results)) if grid] if against_paper else None
    with _replacing(target) as partial:
        for grid in [*grids, *(beside or []), *(grid for study in studies for grid in study.grids)]:
            for suffix, write in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
                (partial / "tables" / f"{grid.name}.{suffix}").write_text(write(grid), encoding="utf-8")
        draw_figures(results, partial / "figures")
        notes = paper_notes(results) if against_paper else []
        content = page_content(results, grids, said, notes)
        picture = partial / "figures" / "trade-off.png"
        page = partial / "index.html"
        write_page(page, results, said, content=content, studies=studies, paper=beside, picture=picture)
        about = {"format": "unweave-report", "schema": 1, "unweave": __version__, "benchmark": results.benchmark}
        about |= {"verdict": said.headline, "points": dict(said.points), "failed": failure_notes(results)}
        (partial / MARK).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Report(target, target / "index.html", said.text(), tuple(failure_notes(results)))


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
