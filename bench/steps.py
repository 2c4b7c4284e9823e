"""Step times of the digits by the public API, and how they compare with those of another source tree.

    python -m bench.steps [--against CHECKOUT] [--rounds 10] [--pairs 3] [--within 0.03] [--out FOLDER]

Measures a step of stage 1, of stage 2 and of fine-tuning, an evaluation, and a short whole run with its guard. With
``--against``, a process of each tree (`bench.clocked`, with that tree as PYTHONPATH) runs on the same core at the same
time; `bench.sides` says why. The ratio is the median over rounds of this tree's processor time to the other's. Two more
numbers have no noise at all: calls of functions in a step (from Python into Python or C), and digests of the resulting
weights, which tell whether both trees did the same work.

With ``--within 0.03`` the exit status is 1 if a part takes more than 3% longer than in the other tree.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bench import clocked, measure, sides
from bench.sides import Side

OURS = Path(__file__).parents[1] / "src"


def side_of(source: Path) -> Side:
    """Return the side of a source tree."""
    # -P: modules beside this file must not hide modules of other names.
    return Side([sys.executable, "-P", str(Path(clocked.__file__).resolve())], {"PYTHONPATH": str(source)})


def source_of(folder: Path) -> Path:
    """Return the folder that holds the package, of a checkout or of its ``src``."""
    for one in (folder / "src", folder):
        if (one / "unweave" / "__init__.py").is_file():
            return one.resolve()
    raise SystemExit(f"{folder} holds no package unweave. Give the folder of a checkout, or its src.")


def commit_of(folder: Path) -> str | None:
    """Return the commit of a source tree, or None without a history."""
    git = shutil.which("git")
    if git is None:
        return None
    found = subprocess.run([git, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def main() -> None:
    """Measure, print, write; fail if a part is too slow."""
    parser = sides.options("Step times of the digits.", file="steps-cpu.json", rounds=10)
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--within", type=float, help="the most that a part may be slower, such as 0.03")
    words = parser.parse_args()
    if words.within is not None and words.against is None:
        parser.error("--within compares with another tree. Give --against too.")
    source = None if words.against is None else source_of(words.against)
    ours, other = side_of(OURS), side_of(source) if source else None
    sides.measure_sides([side for side in (ours, other) if side], pairs=words.pairs, rounds=words.rounds)
    rows = sides.table(ours, other)
    content: dict[str, Any] = {"rounds": words.rounds, "pairs": words.pairs, "parts": rows}
    sides.show(rows, other="other tree")
    if source and other:
        content["other_commit"] = commit_of(source)
        content["same_weights"] = ours.digests == other.digests and len(ours.digests) == 1
        print("Both trees gave the same weights." if content["same_weights"] else "The trees gave different weights.")
    measure.write(words.out, "steps-cpu", content, torch.device("cpu"))
    if words.within is not None and (slow := sides.slower(rows, than=1 + words.within)):
        raise SystemExit(f"More than {words.within:.0%} slower than the other tree: {', '.join(slow)}.")


if __name__ == "__main__":
    main()
