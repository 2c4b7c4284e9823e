"""Run the cells of a study, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from unweave._version import __version__
from unweave.benchmarks import Benchmark, Task
from unweave.data import pick_device
from unweave.errors import RunError, UsageError
from unweave.evaluation import evaluate
from unweave.files import write_whole
from unweave.methods import find_method
from unweave.run import load_weights, unfinished, unlearn
from unweave.study.cells import Cell, as_settings
from unweave.study.provenance import provenance
from unweave.study.store import Store, describe


def run_study(
    benchmark: Benchmark,
    cells: Sequence[Cell],
    out: Path,
    *,
    device: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Store:
    """Run every cell that is not done yet, then write the table. Call it again to go on where it stopped.

    Several processes may work on one folder: a cell belongs to the process that claimed it first, and a cell whose
    process died is resumed from its checkpoint by the next one.
    """
    store = Store.create(out, benchmark.name, options=benchmark.options)
    study = _Study(benchmark, store, device=device)
    if not all(store.is_done(cell) for cell in cells):
        with store.wait_for("provenance"):
            store.write_provenance(provenance(pick_device(device)))
    for number, cell in enumerate(cells):
        if store.is_done(cell):
            continue
        with store.claim(cell.name) as mine:
            if mine and not store.is_done(cell):
                say(f"{number + 1}/{len(cells)} {cell.name}")
                study.run(cell)
    study.compare_with_retrained(say)
    with store.wait_for("table"):
        store.write_table()
    return store


class _Study:
    """What the cells of one process share: the data and the trained originals."""

    def __init__(self, benchmark: Benchmark, store: Store, *, device: str | None) -> None:
        self.benchmark, self.store, self.device = benchmark, store, device
        self.original = cache(self._original)
        self.task = cache(self._task)

    def run(self, cell: Cell) -> None:
        """Run one cell; a failure is noted and the study goes on."""
        method, folder = find_method(cell.method), self.store.cells / cell.name
        try:
            unlearn(
                self.original(cell.seed),
                self.task().train,
                method,
                profile=cell.profile,
                seed=cell.seed,
                out=folder,
                resume=unfinished(folder).exists(),
                test=self.task().test,
                initial=lambda: self.benchmark.initial(cell.seed),
                device=self.device,
                about={
                    **self.benchmark.about(),
                    "unweave": __version__,
                    "torch": torch.__version__,
                    "cell": describe(cell, cell.profile or next(iter(method.profiles))),
                },
                **as_settings(cell, self.benchmark.settings_for(method, cell.profile)),
            )
        except (RunError, UsageError) as error:
            self.store.note_failure(cell, error)
            return
        self.store.forget_failure(cell)

    def compare_with_retrained(self, say: Callable[[str], None]) -> None:
        """Score every finished cell anew beside the study's retrained models, where it has some.

        A retrained model is compared with those of the other seeds, so that its row is the floor for all others.
        """
        retrained = self.store.finished("retrain")
        for name, labels in self.store.finished().items():
            references = [other for other in retrained if other != name]
            if not references or self.store.is_compared(name, references):
                continue
            with self.store.claim(f"compare.{name}") as mine:
                if not mine or self.store.is_compared(name, references):
                    continue
                say(f"comparing {name} with {len(references)} retrained models")
                task = self.task()
                scores = evaluate(
                    self._model(name),
                    task.train,
                    task.test,
                    reference=[self._model(other) for other in references],
                    original=self.original(labels["seed"]),
                    device=self.device,
                )
                self.store.write_comparison(name, references, scores.to_dict())

    def _model(self, name: str) -> nn.Module:
        return load_weights(self.benchmark.initial(0), self.store.cells / name).eval()

    def _task(self) -> Task:
        return self.benchmark.load()

    def _original(self, seed: int) -> nn.Module:
        """Return the trained original of a seed, training it if no process has yet."""
        name = f"original.seed-{seed}"
        path = self.store.models / f"{name}.safetensors"
        with self.store.wait_for(f"model.{name}"):
            if not path.exists():
                model = self.benchmark.train(self.task(), seed=seed, device=self.device)
                tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()}
                write_whole(path, safetensors.torch.save(tensors))
        with torch.random.fork_rng(devices=[]):
            return load_weights(self.benchmark.initial(seed), path).eval()
