r"""Run the evidence for language models on one machine, within a time limit, and pack the numbers. Repeat it to resume.

    python tools/language_evidence.py --model smollm2-135m --data DATA --out evidence [--benchmark tofu]
        [--option forget=forget10] [--methods all] [--goal retrain] [--trials 12] [--seeds 3] [--workers 8]
        [--minutes 14] [--final 5] [--compile off] [--small] [--only-pack]

Originals and retrained models are trained while the settings of every method are tuned on other authors, trial by trial
for all methods alike. Tuning ends when every method has had ``--trials`` trials, or when only the ``--final`` minutes
are left: then the first trials count, as many as every method has finished. Every method runs with its tuned settings
and every seed, seed by seed, and ``language_summary`` writes what the targets ask for. The same command resumes
what was stopped, with the settings that it has chosen, if it had. ``--only-pack`` packs what there is.

For SmolLM2-135M and a quarter of an hour of one H200 this is planned and rehearsed on a CPU, but no run of it was
finished there: half of the facts about 10 authors, texts in the model's own form without its default system line (a
quarter shorter), slow methods first, many uncompiled processes at once, and as many questions as one call of
``generate`` takes.

    PYTHONPATH=src python tools/language_evidence.py --model smollm2-135m --data DATA --out evidence --option authors=10
        --option $'template=<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}'
        --rate 4e-4 --epochs 6 --asked 82 --compile off --workers 8 --minutes 12 --final 4.5 --trials 12 --seeds 3
        --methods adaptive,two-stage,unweave,dpo,idk-dpo,altpo,rmu,npo,simnpo,grad-diff,wga,satimp,pdu,undial,ce-u

Name slow methods first: a method's later trials wait for its earlier ones. ``--goal retrain`` tunes for being as a
retrained model is. On a GPU the processes share it through MPS, where that is installed.

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
from unweave.engine import Compute
from unweave.lab.benchmarks import find_benchmark, profile_of_goal
from unweave.lab.study import shared_gpu
from unweave.lab.tuning import Tuning, tuned_methods

GRACE = 30.0  # seconds that the last trials get to end
PACKING = 15.0  # seconds for the summary and for packing
PIECE = 10 * 2**20  # bytes of answers in one file
REFERENCES = "original,retrain"
NUMBERS = ("results.parquet", "study.json", "provenance.json", "times.jsonl", "summary.json", "summary.md")
TRIALS = ("trials.csv", "best.json", "tuning.json", "provenance.json")


class Evidence:
    """The folder of the evidence, and the commands that fill it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out = given, given.out
        self.study, self.tuning, self.tuned = (given.out / name for name in ("study", "tuning", "tuned"))
        self.end = time.monotonic() + 60 * given.minutes - PACKING
        own = {"model": given.model, "rate": given.rate, "epochs": given.epochs}
        own |= {"batch": given.batch, "asked": given.asked}
        self.options = {"small": "true"} if given.small else {name: str(value) for name, value in own.items()}
        self.options |= dict(option.split("=", 1) for option in given.option)

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(0.0, self.end - time.monotonic())

    def start(self, command: str, folder: Path, *more: str, seconds: float) -> subprocess.Popen[bytes]:
        """Start a command of unweave, which stops in time and keeps what is finished."""
        given = self.given
        words = [sys.executable, "-m", "unweave", command, given.benchmark]
        words += [f"--option={name}={value}" for name, value in self.options.items() if name != "small"]
        words += [*(["--small"] if given.small else []), "--data", str(given.data), "--compile", given.compile]
        words += ["--out", str(folder), "--time-limit", f"{seconds:.0f}", *more]
        print(f"[{time.strftime('%H:%M:%S')}, {self.left:.0f} s left]", *words[2:], flush=True)
        return subprocess.Popen(words)

    def run_cells(self, methods: str, *, workers: int, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the study with these methods."""
        seeds = ["--seeds", str(self.given.seeds), "--workers", str(workers), "--keep-models", "originals"]
        return self.start("study", self.study, "--methods", methods, *seeds, *more, seconds=self.left)

    def tune(self) -> None:
        """Tune until all trials are run or the time is needed for the last runs; keep what the first trials chose."""
        given = self.given
        seconds = max(0.0, self.left - 60 * given.final - GRACE)
        words = ["--methods", given.methods, "--trials", str(given.trials), "--goal", given.goal]
        process = self.start("tune", self.tuning, *words, "--workers", str(given.workers), seconds=seconds)
        try:
            process.wait(timeout=seconds + GRACE)
        except subprocess.TimeoutExpired:  # a trial that takes too long does not count
            process.terminate()
            process.wait()
        benchmark = find_benchmark(given.benchmark, data=given.data, options=self.options)
        names = tuned_methods(given.methods.split(","), tokens=True)
        trials = Tuning(benchmark, self.tuning, names, trials=given.trials, goal=given.goal).write_best_of_first(
            self.tuned
        )
        print(f"[{time.strftime('%H:%M:%S')}, {self.left:.0f} s left] {trials} trials of each method count", flush=True)

    def chosen(self) -> list[str]:
        """Return the methods that tuning chose settings for."""
        return [*json.loads((self.tuned / "best.json").read_text())["methods"]]

    def run(self) -> bool:
        """Do everything that time allows; return whether all of it is done."""
        self.out.mkdir(parents=True, exist_ok=True)
        with shared_gpu(Compute()):
            references = self.run_cells(REFERENCES, workers=min(self.given.workers, 2 * self.given.seeds))
            if not (self.tuned / "best.json").exists():  # cells may have been run with what was chosen
                self.tune()
            references.wait()
            if not (self.tuned / "best.json").exists():
                print("Not all methods have had a trial. Run the same command again.")
                return False
            methods = ",".join([*REFERENCES.split(","), *self.chosen()])
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
    parser.add_argument("--minutes", type=float, default=14)
    parser.add_argument(
        "--rate", default="2e-4", help="step size of training; open-unlearning's 1e-5 is for 1B and more"
    )
    parser.add_argument("--epochs", type=int, default=10, help="of training")
    parser.add_argument("--batch", type=int, default=32, help="of training")
    parser.add_argument("--asked", type=int, default=200, help="most questions of a group, except of forget")
    parser.add_argument("--final", type=float, help="minutes for the last runs. Default: a third of --minutes")
    parser.add_argument("--compile", choices=("auto", "on", "off"), default="auto", help="as of unweave study")
    parser.add_argument("--small", action="store_true", help="a rehearsal on a CPU with a tiny model")
    parser.add_argument("--only-pack", action="store_true", help="sum up and pack what there is")
    given = parser.parse_args()
    if not (given.small or given.model):
        parser.error("give --model FOLDER, or --small")
    given.final = given.minutes / 3 if given.final is None else given.final
    evidence = Evidence(given)
    done = not given.only_pack and evidence.run()
    if (evidence.study / "results.parquet").exists():
        print(language_summary.write(evidence.study))
    evidence.pack()
    print("Done." if done else "Not everything is done. Run the same command again to continue.")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
