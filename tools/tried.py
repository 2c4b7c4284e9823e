"""Run the experiments of docs/what-we-tried-unweave.md: `python tools/tried.py TABLE --out FOLDER`.

Tables:

- ``erase``: settings and variants for the goal erase
- ``targets``: how high the forget losses must be, with each of the ten digits forgotten
- ``few``: few adjacent samples
- ``dial``: between the goals
- ``references``: estimates of a retrained model's forget losses, and the results of aiming at them, with each of the
  ten digits forgotten
- ``fashion``: some of these on a small part of Fashion-MNIST; needs ``--data``
- ``cifar`` and ``cifar-retrain``: both goals on CIFAR-100 at 64 px on a GPU; need ``--data``, ``--device cuda``, and
  ``--originals``, a folder of ``unweave study cifar100-resnet18 --option size=64 --methods original --keep-models all``

FOLDER/TABLE.csv has one row for each run, and FOLDER/provenance.json says where they come from. Runs in the table are
not repeated, so the same command resumes. ``--show`` prints the tables of docs/what-we-tried-unweave.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import trials
from unweave import RunError, RunWarning
from unweave.data import SUBSETS
from unweave.storage import provenance

TABLES = {
    "erase": trials.erase,
    "targets": trials.targets,
    "dial": trials.dial,
    "references": trials.references,
    "fashion": trials.fashion,
    "few": trials.few,
    "cifar": trials.cifar,
    "cifar-retrain": trials.cifar_retrain,
}
ERASE = ("erase", "targets", "few", "cifar")  # tables for the goal erase
ACCURACIES = tuple(f"{part}_{subset}" for part in ("train", "test") for subset in SUBSETS)
COLUMNS = (
    "variant",
    "forget",
    "seed",
    *ACCURACIES,
    "bound",
    "tow_split",
    "w2",
    "apart",
    "guess_w2",
    "gradients",
    "error",
)
Row = dict[str, Any]


def complete(table: str, folder: Path, place: trials.Place) -> None:
    """Run the experiments that are not in the table yet."""
    file = folder / f"{table}.csv"
    done = {(row["variant"], row["forget"], int(row["seed"])) for row in read(file)}
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, COLUMNS)
        if opened.tell() == 0:
            writer.writeheader()
        for cell, run in TABLES[table](place):
            if (cell["variant"], str(cell["forget"]), cell["seed"]) in done:
                continue
            try:
                row = run()
            except RunError as error:
                row = {"error": " ".join(str(error).split())}
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in (cell | row).items()})
            opened.flush()


def read(file: Path) -> list[Row]:
    """Return the rows of a table; none if there is no table."""
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def show(table: str, folder: Path) -> str:
    """Return a table in Markdown: means over seeds and digits."""
    heads = ["train f / a / r", "test f / a / r"] + (
        ["bound"] if table in ERASE else ["ToW split", "W₂ to retrained", "predictions apart"]
    )
    heads += (["W₂ of the estimate"] if table in ("references", "fashion") else []) + ["sample gradients"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    groups: dict[str, list[Row]] = {}
    for row in read(folder / f"{table}.csv"):
        groups.setdefault(row["variant"], []).append(row)
    for variant, rows in groups.items():
        good = [row for row in rows if not row["error"]]
        failed = f" ({len(rows) - len(good)} of {len(rows)} diverged)" if len(good) < len(rows) else ""
        if not good:
            lines.append(f"| {variant}{failed} |" + " |" * len(heads))
            continue
        cells = [
            " / ".join(_mean(good, f"{part}_{subset}", percent=True) for subset in SUBSETS)
            for part in ("train", "test")
        ]
        names = ["bound"] if table in ERASE else ["tow_split", "w2", "apart"]
        names += ["guess_w2"] if table in ("references", "fashion") else []
        cells += [_mean(good, name, percent=name in ("bound", "apart")) for name in names]
        cells.append(f"{statistics.mean(float(row['gradients']) for row in good):,.0f}")
        lines.append(f"| {variant}{failed} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(rows: list[Row], name: str, *, percent: bool) -> str:
    values = [float(row[name]) for row in rows if row[name] != ""]
    if not values:
        return "–"
    mean = statistics.mean(values)
    return f"{100 * mean:.1f}" if percent else f"{mean:.2f}"


def main() -> None:
    """Complete a table, or print all of them."""
    parser = argparse.ArgumentParser(description="Run the experiments of docs/what-we-tried-unweave.md.")
    parser.add_argument("table", nargs="?", choices=TABLES)
    parser.add_argument("--data", help="folder of the data sets, for other tables than those on the digits")
    parser.add_argument("--originals", type=Path, help="folder of a study with its originals")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--show", action="store_true", help="print the tables in Markdown without running anything")
    words = parser.parse_args()
    if words.show:
        print("\n".join(show(table, words.out) for table in TABLES if (words.out / f"{table}.csv").exists()))
        return
    if not words.table:
        parser.error("name a table, or give --show")
    warnings.simplefilter("ignore", RunWarning)  # the table shows what was hardly forgotten
    torch.set_num_threads(1)
    words.out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python tools/tried.py", *sys.argv[1:]])
    file = words.out / "provenance.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    complete(words.table, words.out, trials.Place(words.data, words.originals, words.device))
    seeds = sorted({int(row["seed"]) for row in read(words.out / f"{words.table}.csv")})
    known[words.table] = provenance(torch.device(words.device)) | {"command": command, "seeds": seeds}
    file.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
