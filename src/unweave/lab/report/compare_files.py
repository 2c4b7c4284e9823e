"""Write the files of a comparison: its tables, and a plot for each goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.report.compare import Comparison
from unweave.lab.report.compare_grids import grids
from unweave.lab.report.formats import comma_separated, latex, markdown
from unweave.lab.report.results import Results
from unweave.storage import write_whole


def write_comparison(found: Comparison, studies: Sequence[Results], folder: Path) -> list[Path]:
    """Write tables (Markdown, LaTeX, CSV) and plots (PNG, SVG) into a folder. Files of the same names are replaced."""
    require_package("matplotlib", "The figures of a comparison")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder. Choose another --out.")
    from unweave.lab.report.compare_planes import draw_planes  # slow to import, so after the check

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for grid in grids(found):
        for suffix, write in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
            files.append(folder / f"{grid.name}.{suffix}")
            write_whole(files[-1], write(grid).encode())
    return files + draw_planes(found, studies, folder)
