"""Run the evidence for language models on one machine, within a time limit, and pack the numbers. Repeat it to resume.

    python tools/language_evidence.py --model smollm2-135m --data DATA --out evidence [--benchmark tofu]
        [--option forget=forget10] [--methods all] [--goal retrain] [--trials 12] [--seeds 3] [--workers 8]
        [--minutes 9] [--small]

Originals and retrained models are trained while the settings of every method are tuned on other authors: 4 trials each,
then 8, then as many as ``--trials`` says. Whatever number all methods have reached when time is up is what counts. Then
every method runs with its tuned settings and every seed, and ``language_summary`` writes what the targets ask for.

``--goal retrain`` tunes for being as a retrained model is. Of the methods, ``adaptive`` takes as long as training; name
the others in ``--methods`` where time is short.

The folder ``--out`` gets ``study``, ``tuning``, ``tuned`` and ``pack``. In ``pack`` are ``numbers.tar.gz`` (tables,
trials, provenance and the summary), ``said.tar.gz`` (what the models write) and ``answers-N.tar.gz`` (all numbers about
the answers of the first seed's models).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import language_summary
from unweave.lab.benchmarks import profile_of_goal

STEPS = (4, 8)  # trials of each method before the last ones, so that a time limit leaves equal budgets
PIECE = 10 * 2**20  # bytes of answers in one file
REFERENCES = "original,retrain"
NUMBERS = ("results.parquet", "study.json", "provenance.json", "summary.json", "summary.md")
TRIALS = ("trials.csv", "best.json", "tuning.json", "provenance.json")


class Evidence:
    """The folder of the evidence, and the commands that fill it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out = given, given.out
        self.study, self.tuning, self.tuned = (given.out / name for name in ("study", "tuning", "tuned"))
        self.end = time.monotonic() + 60 * given.minutes

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(0.0, self.end - time.monotonic())

    def start(self, command: str, folder: Path, *more: str) -> subprocess.Popen[bytes]:
        """Start a command of unweave, which stops in time and keeps what is finished."""
        given = self.given
        chosen = [f"--option=model={given.model}", f"--option=rate={given.rate}", f"--option=epochs={given.epochs}"]
        chosen = (
            ["--small"] if given.small else [*chosen, f"--option=batch={given.batch}", f"--option=asked={given.asked}"]
        )
        chosen += [f"--option={option}" for option in given.option]
        words = [sys.executable, "-m", "unweave", command, given.benchmark, *chosen, "--data", str(given.data)]
        words += ["--out", str(folder), "--time-limit", f"{self.left:.0f}", *more]
        print(f"[{time.strftime('%H:%M:%S')}, {self.left:.0f} s left]", *words[2:], flush=True)
        return subprocess.Popen(words)

    def run_cells(self, methods: str, *, workers: int, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the study with these methods."""
        seeds = ["--seeds", str(self.given.seeds), "--workers", str(workers), "--keep-models", "originals"]
        return self.start("study", self.study, "--methods", methods, *seeds, *more)

    def tune(self) -> None:
        """Tune step by step, and keep the settings chosen after each step that all methods finished."""
        for trials in [*(step for step in STEPS if step < self.given.trials), self.given.trials]:
            words = ["--methods", self.given.methods, "--trials", str(trials), "--goal", self.given.goal]
            words += ["--workers", str(self.given.workers)]
            if self.left:
                self.start("tune", self.tuning, *words).wait()
            best = self.tuning / "best.json"
            if not best.exists():
                return
            self.tuned.mkdir(exist_ok=True)
            shutil.copy(best, self.tuned)

    def chosen(self) -> dict[str, object]:
        """Return what tuning chose."""
        content: dict[str, object] = json.loads((self.tuned / "best.json").read_text())
        return content

    def run(self) -> bool:
        """Do everything that time allows; return whether all of it is done."""
        self.out.mkdir(parents=True, exist_ok=True)
        references = self.run_cells(REFERENCES, workers=min(self.given.workers, 2 * self.given.seeds))
        self.tune()
        references.wait()
        if not (self.tuned / "best.json").exists():
            print("Not all methods have had their first trials. Run the same command again.")
            return False
        if not self.left:
            return False
        methods = ",".join([*REFERENCES.split(","), *self.chosen()["methods"]])  # type: ignore[misc]
        more = ["--profiles", profile_of_goal(self.given.goal), "--tuned", str(self.tuned)]
        done = self.run_cells(methods, workers=self.given.workers, more=more).wait() == 0
        return done and bool(self.left)

    def pack(self) -> None:
        """Write what is worth carrying away to ``pack``."""
        folder = self.out / "pack"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tarfile.open(folder / "numbers.tar.gz", "w:gz") as archive:
            for place, names in ((self.study, NUMBERS), (self.tuning, TRIALS), (self.tuned, TRIALS)):
                for file in filter(Path.exists, (place / name for name in names)):
                    archive.add(file, f"{place.name}/{file.name}")
            for file in sorted((self.study / "failed").glob("*.json")):
                archive.add(file, f"study/failed/{file.name}")
        with tarfile.open(folder / "said.tar.gz", "w:gz") as archive:
            for file in sorted(self.study.glob("cells/*/said.json")):
                archive.add(file, f"study/{file.relative_to(self.study)}")
        for number, files in enumerate(_pieces(sorted(self.study.glob("cells/*.seed-0/answers.json")))):
            with tarfile.open(folder / f"answers-{number}.tar.gz", "w:gz") as archive:
                for file in files:
                    archive.add(file, f"study/{file.relative_to(self.study)}")
        print(*(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)" for file in sorted(folder.iterdir())), sep="\n")


def _pieces(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield files in groups of some megabytes. Packed, answers take a third."""
    group: list[Path] = []
    for file in files:
        if group and sum(one.stat().st_size for one in [*group, file]) > 3 * PIECE:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description="Run the evidence for language models within a time limit.")
    parser.add_argument("--model", default="", help="folder of a causal model (tools/gguf_weights.py makes one)")
    parser.add_argument("--data", type=Path, required=True, help="folder with tofu/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--benchmark", choices=("tofu-authors", "tofu"), default="tofu-authors")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of the benchmark")
    parser.add_argument("--methods", default="all", help="names joined by commas, or all")
    parser.add_argument("--goal", choices=("erase", "retrain"), default="erase", help="what settings are tuned for")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument(
        "--rate", default="2e-4", help="step size of training; open-unlearning's 1e-5 is for 1B and more"
    )
    parser.add_argument("--epochs", type=int, default=10, help="of training")
    parser.add_argument("--batch", type=int, default=32, help="of training")
    parser.add_argument("--asked", type=int, default=200, help="most questions of a group, except of forget")
    parser.add_argument("--small", action="store_true", help="a rehearsal on a CPU with a tiny model")
    given = parser.parse_args()
    if not (given.small or given.model):
        parser.error("give --model FOLDER, or --small")
    evidence = Evidence(given)
    done = evidence.run()
    if (evidence.study / "results.parquet").exists():
        print(language_summary.write(evidence.study))
    evidence.pack()
    print("Done." if done else "Not everything is done. Run the same command again to continue.")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
