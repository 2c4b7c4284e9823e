"""Everything that docs/results.md shows of a benchmark: `python tools/complete.py BENCHMARK --data DATA --out FOLDER`.

FOLDER/study gets every method with the settings of ``--profiles``, while every method is tuned in FOLDER/tuning; then
the study goes on with what was chosen. Stopped, the same command goes on where it was. `python tools/publish.py
FOLDER/study NAME` puts the study where it is committed. Other words are passed on to `unweave study` and `unweave tune`
alike, such as ``--option model=minilm``, ``--device cuda`` or ``--small``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

UNWEAVE = (sys.executable, "-m", "unweave")
REFERENCES = ("original", "retrain")  # which have nothing to tune


def commands(words: argparse.Namespace, passed_on: list[str]) -> dict[str, list[str]]:
    """Return the three commands: plain cells, tuning, and cells with tuned settings."""
    tuning, tunable = str(words.out / "tuning"), [name for name in words.methods.split(",") if name not in REFERENCES]
    common = [words.benchmark, "--workers", str(words.workers), *passed_on]
    study = ["study", *common, "--methods", words.methods, "--seeds", str(words.seeds), "--keep-models", "originals"]
    study += ["--out", str(words.out / "study")]
    tune = ["tune", *common, "--methods", ",".join(tunable), "--trials", str(words.trials), "--out", tuning]
    return {
        "plain": [*study, *(["--profiles", words.profiles] if words.profiles else [])],
        "tuning": tune,
        "tuned": [*study, "--profiles", "tuned", "--tuned", tuning],
    }


def main() -> int:
    """Run them. A cell that fails is part of the result; a tuning that fails is not."""
    parser = argparse.ArgumentParser(description="Run what docs/results.md shows of one benchmark.")
    parser.add_argument("benchmark")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the study and the tuning")
    parser.add_argument("--profiles", default="", help="of the plain cells; default: each method's first")
    parser.add_argument("--methods", default="all", help="names, joined by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=6, help="of each method")
    parser.add_argument("--workers", type=int, default=1, help="of the study, and as many of the tuning")
    words, passed_on = parser.parse_known_args()
    all_three = commands(words, passed_on)
    with subprocess.Popen([*UNWEAVE, *all_three["tuning"]]) as tuning:
        subprocess.run([*UNWEAVE, *all_three["plain"]], check=False)
    return tuning.returncode or subprocess.run([*UNWEAVE, *all_three["tuned"]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
