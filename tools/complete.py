"""Run what docs/results shows of a benchmark: `python tools/complete.py BENCHMARK --data DATA --out FOLDER`.

First, two commands run side by side: a study of every method with the settings of ``--profiles`` in FOLDER/study, and
the tuning of every method in FOLDER/tuning. Then the study runs every method with the tuned settings. After an
interruption, the same command resumes. `python tools/publish.py FOLDER/study NAME` publishes the study. Other arguments
are passed to both `unweave study` and `unweave tune`, such as ``--option model=minilm``, ``--device cuda`` or
``--small``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

UNWEAVE = (sys.executable, "-m", "unweave")
REFERENCES = ("original", "retrain")  # they have no settings to tune


def commands(words: argparse.Namespace, passed_on: list[str]) -> dict[str, list[str]]:
    """Return the three commands: the plain study, the tuning, and the study with tuned settings."""
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
    """Run the commands. A failed cell of the study is a result; if the tuning fails, its exit code is returned."""
    parser = argparse.ArgumentParser(description="Run what docs/results shows of one benchmark.")
    parser.add_argument("benchmark")
    parser.add_argument("--out", type=Path, required=True, help="folder for the study and the tuning")
    parser.add_argument("--profiles", default="", help="profiles of the plain study; default: the first of each method")
    parser.add_argument("--methods", default="all", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=6, help="trials of each method")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the study, and of the tuning")
    words, passed_on = parser.parse_known_args()
    all_three = commands(words, passed_on)
    with subprocess.Popen([*UNWEAVE, *all_three["tuning"]]) as tuning:
        subprocess.run([*UNWEAVE, *all_three["plain"]], check=False)
    return tuning.returncode or subprocess.run([*UNWEAVE, *all_three["tuned"]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
