"""Choose the baselines' settings on `digits` (`python tools/sweep_digits.py`).

Every method gets a small grid around its official values. The judge is the harmonic mean of what was forgotten and
what was kept (1 − forget, adjacent, remote accuracy) on held-out training data: a fifth of the training part that the
model is not trained on. The test part is never read, and the seed is none of those that results are reported for.
"""

from __future__ import annotations

import itertools
import statistics

import numpy as np

from unweave import RunError, Split, evaluate, unlearn
from unweave.benchmarks import find_benchmark
from unweave.benchmarks.benchmark import Task
from unweave.methods import find_method

SEED = 100
GRIDS = {
    "ft": {"learning_rate": [0.01, 0.03, 0.1], "epochs": [10, 20]},
    "ga": {"optimizer": ["adam"], "learning_rate": [1e-4, 2e-4, 4e-4], "epochs": [3, 5, 7]},
    "l1-sparse": {"learning_rate": [0.01, 0.03], "sparsity": [5e-4, 2e-3, 5e-3], "epochs": [10]},
    "scrub": {"learning_rate": [5e-4, 1e-3, 2e-3], "weight_decay": [0.0], "forget_epochs": [3, 5], "epochs": [7, 12]},
    "ssd": {"selection": [0.5, 1.0, 2.0, 5.0, 10.0], "dampening": [0.1, 0.3, 1.0]},
    "salun": {"learning_rate": [0.013, 0.03, 0.1], "epochs": [10, 20]},
    "delete": {"learning_rate": [1e-5, 2e-5, 5e-5, 1e-4], "epochs": [10, 20]},
    "gdr": {"learning_rate": [1e-4, 5e-4, 1e-3], "epochs": [10, 20, 40]},
    "munba": {"learning_rate": [0.01, 0.03, 0.1, 0.3], "epochs": [10, 20]},
}


def part(split: Split, rows: np.ndarray) -> Split:
    """Return a split of only these rows."""
    inputs, labels = split.samples.dataset.data
    place = {row: index for index, row in enumerate(rows.tolist())}
    found = {name: [place[row] for row in split[name].tolist() if row in place] for name in ("forget", "adjacent")}
    return Split((inputs[rows], labels[rows]), **found)


def main() -> None:
    """Print the best of every grid."""
    benchmark = find_benchmark("digits")
    whole = benchmark.load()
    order = np.random.default_rng(SEED).permutation(len(whole.train.samples))
    fifth = len(order) // 5
    kept, held = part(whole.train, np.sort(order[fifth:])), part(whole.train, np.sort(order[:fifth]))
    task = Task(train=kept, test=held, label_names=whole.label_names)
    original = benchmark.train(task, seed=SEED, device="cpu")
    for name, grid in GRIDS.items():
        tried = []
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            if name != "ssd":
                settings["batch_size"] = 64
            try:
                result = unlearn(original, kept, method=find_method(name), seed=SEED, device="cpu", **settings)
            except RunError:
                continue
            scores = evaluate(result.model, kept, held, device="cpu")["test"]
            forget, adjacent, remote = (scores[subset]["accuracy"] for subset in ("forget", "adjacent", "remote"))
            judged = statistics.harmonic_mean([1 - forget, adjacent, remote])
            tried.append((judged, settings, forget, adjacent, remote))
        best = max(tried, key=lambda row: row[0])
        print(f"{name:<10} {best[0]:.3f}  forget {best[2]:.2f} adjacent {best[3]:.2f} remote {best[4]:.2f}  {best[1]}")


if __name__ == "__main__":
    main()
