"""Execute the tutorials and write their outputs into them: `make notebooks`, or `python tools/notebooks.py NAME ...`.

A notebook is executed from its top in an empty folder, by the Python that runs this file. What differs from run to run
without a reason (times of execution, ids of the kernel) is left out, so that a change in git is a change of a tutorial.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from places import TUTORIALS


def execute(file: Path) -> float:
    """Execute a notebook, write it with its outputs, and return the seconds."""
    notebook = nbformat.read(file, as_version=4)
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=900, record_timing=False, resources={"metadata": {"path": folder}}).execute()
    seconds = time.perf_counter() - before
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    nbformat.write(notebook, file)
    return seconds


def main(names: list[str]) -> None:
    """Execute the named tutorials, or all of them."""
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    # Deprecations that other packages warn of are no part of a tutorial.
    os.environ["PYTHONWARNINGS"] = "ignore"
    for file in sorted(TUTORIALS.glob("*.ipynb")):
        if not names or file.stem in names:
            print(f"{file.stem}: {execute(file):.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
