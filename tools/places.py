"""Where the tools find and put things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"  # the numbers, committed
GALLERY = ROOT / "docs" / "gallery"  # pages built from them, not committed
IMAGES = ROOT / "docs" / "images"  # the pictures that the docs show, committed
TUNED = ROOT / "src" / "unweave" / "lab" / "benchmarks" / "tuned"  # what tuning chose, part of the package
REFERENCE = ROOT / "docs" / "reference"  # pages made from the code, committed
TUTORIALS = ROOT / "docs" / "tutorials"  # notebooks, committed with their outputs
PAPER_COSTS = ROOT / "src" / "unweave" / "lab" / "report" / "data" / "paper-costs.json"
