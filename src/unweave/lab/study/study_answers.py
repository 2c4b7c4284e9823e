"""What the language models of a study answer: asked once for each cell, and scored beside the study's references.

- ``cells/NAME/answers.json``: what the cell's model says to every question
- ``cells/NAME/said.json``: the texts of it alone, for the report
- ``cells/NAME/answer_scores.json``: the numbers about it, and which models they are compared with
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from torch import nn

from unweave.data import SUBSETS
from unweave.engine import Compute
from unweave.evaluation import AnswerSheet, load_answers, score_answers
from unweave.lab.benchmarks import ANSWER_SCORES, ANSWERS, Benchmark, BenchmarkTask, ask_all
from unweave.lab.study.store import SAID, Store
from unweave.lab.study.study_files import SCORES, of_cell
from unweave.storage import TEXT, Lock, write_whole

DIGITS = 5  # of stored numbers: a study has many models
Sheets = Mapping[str, AnswerSheet]


class Answering:
    """Asks and scores the models of a study. Other models than language models have no questions, and nothing is done.

    A cell is compared with the original and the retrained model of its seed. A retrained model is compared with that of
    another seed, so its numbers are the floor for all others.
    """

    def __init__(
        self, benchmark: Benchmark, store: Store, task: Callable[[], BenchmarkTask], *, computing: Compute
    ) -> None:
        self.benchmark, self.store, self.task, self.computing = benchmark, store, task, computing
        self.sheets = lru_cache(maxsize=8)(self._sheets)

    def ask(self, name: str, model: nn.Module) -> None:
        """Ask the model of a cell, and keep what it says."""
        if self._has_questions():
            with Lock(self._lock(name), wait=True):
                self._ask(name, model)

    def complete(self, name: str) -> None:
        """Ask a cell that was not asked, because its process died, and score it unless that is done."""
        if not self._has_questions():
            return
        with Lock(self._lock(name), wait=True):
            if not self._answers(name).exists() and self.store.weights(name).exists():
                self._ask(name, self.store.model(name, self.benchmark))
            if self._answers(name).exists():
                self._score(name)

    def _has_questions(self) -> bool:
        return self.benchmark.has_tokens and bool(self.task().questions)

    def _lock(self, name: str) -> Path:
        return self.store.locks / f"answers.{name}.lock"

    def _answers(self, name: str) -> Path:
        return self.store.cells / name / ANSWERS

    def _ask(self, name: str, model: nn.Module) -> None:
        if not self._answers(name).exists():  # another process may have asked meanwhile
            sheets = ask_all(self.task(), model, self.computing)
            content = {group: sheet.to_dict(digits=DIGITS) for group, sheet in sheets.items()}
            texts = {
                subset: {name: content[subset][name] for name in ("questions", "answers", "written")}
                for subset in SUBSETS
                if subset in content
            }
            write_whole(self.store.cells / name / SAID, json.dumps(texts).encode())
            write_whole(self._answers(name), json.dumps(content).encode())

    def _score(self, name: str) -> None:
        beside = self._beside(name)
        file = self.store.cells / name / ANSWER_SCORES
        if file.exists() and of_cell(file, {**SCORES, "beside?": {"*": TEXT}}).get("beside") == beside:
            return
        others = {kind: self.sheets(other) for kind, other in beside.items()}
        scores = score_answers(self.sheets(name), before=others.get("original"), reference=others.get("retrain"))
        content = {**scores.to_dict(), "beside": beside}
        write_whole(file, (json.dumps(content, indent=2) + "\n").encode())

    def _beside(self, name: str) -> dict[str, str]:
        """Return the cells that a cell is compared with, by method."""
        every = self.store.finished()
        seed = every[name]["seed"]
        found: dict[str, str] = {}
        for kind in ("original", "retrain"):
            there = {
                other: labels["seed"]
                for other, labels in every.items()
                if labels["method"] == kind and not labels["variant"] and other != name
            }
            there = {other: its for other, its in there.items() if self._answers(other).exists()}
            same = [other for other, its in there.items() if its == seed]
            if kind == "original" and same:
                found[kind] = same[0]
            elif kind == "retrain" and there:
                found[kind] = (same or list(there))[0]
        return found

    def _sheets(self, name: str) -> Sheets:
        return load_answers(self._answers(name))
