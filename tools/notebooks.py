"""Execute the tutorials and write their outputs into them: `make notebooks`, or `python tools/notebooks.py NAME ...`.

A notebook is executed from its top in an empty folder, by the Python that runs this file. What differs from run to run
without a reason (times of execution, ids of the kernel) is left out, so that a change in git is a change of a tutorial.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from places import TUTORIALS


def code_of(notebook: dict[str, Any]) -> list[str]:
    """Return the code of a notebook, cell by cell.

    >>> code_of({"cells": [{"cell_type": "markdown", "source": "# A"}, {"cell_type": "code", "source": ["a = ", "1"]}]})
    ['a = 1']
    """
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest_of(notebook: dict[str, Any]) -> str:
    """Return the SHA-256 of a notebook's code. It is kept with the outputs, which a test compares with the code."""
    return hashlib.sha256(json.dumps(code_of(notebook)).encode()).hexdigest()


def execute(file: Path) -> float:
    """Execute a notebook, write it with its outputs, and return the seconds."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=900, record_timing=False, coalesce_streams=True, resources=where)
        client.execute()
    seconds = time.perf_counter() - before
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "executed_code": digest_of(notebook),
    }
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
