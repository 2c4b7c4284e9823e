"""Compare every cell with the study's retrained models, then remove the weights that are no longer needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from torch import nn

from unweave.evaluation import Look, Observed, evaluate
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study.cell_progress import CellProgress
from unweave.lab.study.cells import Cell
from unweave.lab.study.originals import Originals
from unweave.lab.study.store import Store
from unweave.lab.study.study_answers import Answering
from unweave.record import certificate_of
from unweave.storage import Lock

Keep = Literal["all", "originals", "none"]


class Comparisons:
    """Scores finished cells against the retrained models. Each process loads and runs a retrained model once.

    A retrained model is compared with those of the other seeds, so its row is the floor for all others.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        store: Store,
        cells: Sequence[Cell],
        originals: Originals,
        look: Callable[[], Look],
        progress: CellProgress,
        answering: Answering,
        *,
        keep: str,
        since: float,
    ) -> None:
        self.benchmark, self.store, self.cells, self.originals = benchmark, store, cells, originals
        self.look, self.progress, self.keep, self.since = look, progress, keep, since
        self.answering = answering
        retrained = [cell for cell in cells if cell.method == "retrain"]
        self.planned = [cell for cell in retrained if not cell.variant] or retrained
        self.reference = cache(self._model)
        self.seen: dict[str, Observed] = {}  # predictions of this process's cells that are not compared yet

    def remember(self, name: str, observed: Observed) -> None:
        """Keep the predictions of a cell's model if the cell is still to be compared."""
        if self.planned or self.store.references_of(name):
            self.seen[name] = observed

    def references_are_there(self) -> bool:
        """Return whether every planned retrained model is done or has failed."""
        return all(self.store.is_settled(cell, since=self.since) for cell in self.planned)

    def compare(self, name: str) -> None:
        """Compare a finished cell, unless it is compared already or another process is comparing it."""
        finished = self.store.finished()
        if name not in finished:  # it failed
            return
        if self.store.comparable(name):
            with Lock.claim(self.store.locks / f"compare.{name}.lock") as claim:
                if claim is not None and (references := self.store.comparable(name)):
                    self._compare_with(name, finished[name]["seed"], references)
        self.answering.complete(name)
        every, known = self.store.references_of(name), self.store.compared_with(name)
        gone = [other for other in (name, *every) if not self.store.weights(other).exists()]
        if gone and set(every) - set(known):
            with_all = "with every retrained model" if known else "with retrained models"
            self.progress.say(f"{name} is not compared {with_all}: the weights of {gone[0]} were removed.")
        if self.keep != "all" and finished[name]["method"] != "retrain" and self._is_final(name):
            self.store.drop_weights(name)

    def end(self) -> None:
        """Remove the originals and the retrained models when every cell is settled, with ``keep="none"``.

        Cells that are added to the study later need them: they start from an original and are compared with the
        retrained models.
        """
        settled = all(self.store.is_settled(cell, since=self.since) for cell in self.cells)
        if self.keep != "none" or not settled or not all(self._is_final(name) for name in self.store.finished()):
            return
        for name in self.store.finished("retrain"):
            self.store.drop_weights(name)
        for path in self.store.models.glob("*.safetensors"):
            path.unlink(missing_ok=True)

    def _compare_with(self, name: str, seed: int, references: list[str]) -> None:
        begun = time.monotonic()
        model, look = self._model(name), self.look()
        if name in self.seen:
            look.remember(model, self.seen.pop(name))
        scores = evaluate(
            model,
            look.train,
            look.test,
            reference=[self.reference(other) for other in references],
            original=self.originals(seed),
            certificate=certificate_of(self.store.configuration(name)),
            look=look,
            compute=self.originals.computing,
        )
        self.store.write_comparison(name, references, scores.to_dict())
        self.store.note_time(f"compare.{name}", time.monotonic() - begun)

    def _is_final(self, name: str) -> bool:
        """Return whether no comparison of a cell is left, now or later."""
        return self.references_are_there() and not self.store.comparable(name)

    def _model(self, name: str) -> nn.Module:
        return self.store.model(name, self.benchmark)
