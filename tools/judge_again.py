"""Score the trials of an older tuning by today's objective: `python tools/judge_again.py TUNING --out FOLDER`.

The objective of tuning for the goal erase changed once, and `unweave tune` does not resume a folder with scores of the
older objective. The trials need not run again, because their held-out accuracies are stored. FOLDER becomes a normal
tuning folder with the same trials, today's scores, and the commands of both in its provenance. The original model is
trained again unless TUNING still has it. ``--data`` and ``--device`` are those of `unweave tune`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from unweave.engine import Compute
from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark, find_benchmark
from unweave.lab.tuning import Space, Tuning, erase_score
from unweave.lab.tuning.objectives import accuracies
from unweave.lab.tuning.searches import Tried, open_storage, require_optuna
from unweave.lab.tuning.tune import TrialRunner
from unweave.storage import provenance


def judge_again(source: Path, out: Path, benchmark: Benchmark, *, device: str | None = None) -> Tuning:
    """Make a tuning folder from the trials of another, with new scores."""
    about = json.loads((source / "tuning.json").read_text())
    if (about["goal"], about["seeds"]) != ("erase", 1):
        raise UsageError(
            f"{source} is a tuning for the goal {about['goal']} with {about['seeds']} seeds. Trials can be judged "
            "again only for the goal erase with one seed, because only then their accuracies are stored."
        )
    if (out / "best.json").exists():
        raise UsageError(f"{out} holds a tuning that is done. Choose another --out.")
    optuna = require_optuna()
    storage = open_storage(source / "optuna.db")
    studies = {
        name: optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)
    }
    for name, study in studies.items():
        if study.user_attrs["space"] != Space.of(benchmark, name, goal="erase").as_kept():
            raise UsageError(f"The settings of {name} or their search space have changed since {source} was made.")
    trials = {name: study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)) for name, study in studies.items()}
    count = max(len(some) for some in trials.values())
    tuning = Tuning(benchmark, out, list(studies), trials=count, goal="erase", seed=about["seed"])
    for path in (source / "models").glob("original.*.safetensors"):
        shutil.copy2(path, tuning.folder.models)
        shutil.copy2(source / "times.jsonl", out)
    computing = Compute(device=device)
    base = TrialRunner(tuning, computing=computing, time_limit=None, since=time.time(), write=None).bases()[0]
    original = accuracies(base.beside)
    for name, search in tuning.searches.items():
        for trial in trials[name][len(search.tried()) :]:
            search.tell(trial.params, judged(Tried(**trial.user_attrs["tried"]), original))
    now = provenance(computing.check()) | {"command": " ".join(["python", "tools/judge_again.py", *sys.argv[1:]])}
    for run in [*json.loads((source / "provenance.json").read_text())["runs"], now]:
        tuning.folder.add_provenance(run)
    tuning.write()
    return tuning


def judged(tried: Tried, original: dict[str, float]) -> Tried:
    """Return the trial with today's score. A failed trial keeps the worst score."""
    if tried.error:
        return tried
    score = erase_score(tried.accuracy, original)
    return dataclasses.replace(tried, score=score, scores=[score])


def main() -> None:
    """Read the command line, and print the settings that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuning", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data")
    parser.add_argument("--device")
    asked = parser.parse_args()
    about: dict[str, Any] = json.loads((asked.tuning / "tuning.json").read_text())
    benchmark = find_benchmark(about["benchmark"], data=asked.data, options=about["options"])
    best = judge_again(asked.tuning, asked.out, benchmark, device=asked.device).best or {"methods": {}}
    for name, found in best["methods"].items():
        print(f"{name:12} trial {found['trial']} ({found['origin']}): {found['score']:.4f}")


if __name__ == "__main__":
    main()
