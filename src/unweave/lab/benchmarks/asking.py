"""The answers of a benchmark's models: asked, scored, and kept beside a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from unweave.engine import Compute
from unweave.evaluation import AnswerScores, AnswerSheet, ask, score_answers
from unweave.lab.benchmarks.benchmark import BenchmarkTask
from unweave.storage import write_whole

ANSWERS, ANSWER_SCORES = "answers.json", "answer_scores.json"
LONGEST = 200  # tokens of a written answer


def ask_all(task: BenchmarkTask, model: nn.Module, compute: Compute | None = None) -> dict[str, AnswerSheet]:
    """Ask a model every question of a benchmark, and return what it says by group; nothing without questions."""
    if not task.questions:
        return {}
    longest = max(len(answer) for answer in task.wording.tokenizer(answers_of(task))["input_ids"])
    return ask(
        model,
        task.questions,
        task.wording.tokenizer,
        template=task.wording.template,
        write=min(LONGEST, 2 * longest),  # a model that does not stop would write on to the limit
        compute=compute,
    )


def answers_of(task: BenchmarkTask) -> list[str]:
    """Return the true answers to all questions."""
    return [row["answer"] for rows in task.questions.values() for row in rows]


def keep_answers(
    task: BenchmarkTask, models: Mapping[str, nn.Module], folder: Path, compute: Compute | None = None
) -> AnswerScores:
    """Ask the models, score those of ``unlearned``, and write both to a run's folder.

    Args:
        task: The benchmark's data.
        models: ``unlearned`` and, to compare with, ``original`` and ``retrained``.
        folder: The run's folder. ``answers.json`` has what every model says, ``answer_scores.json`` the numbers.
        compute: Device and precision.
    """
    sheets = {name: ask_all(task, model, compute) for name, model in models.items()}
    scores = score_answers(sheets["unlearned"], before=sheets.get("original"), reference=sheets.get("retrained"))
    content = {name: {group: one.to_dict() for group, one in groups.items()} for name, groups in sheets.items()}
    write_whole(folder / ANSWERS, json.dumps(content).encode(), private=True)
    write_whole(folder / ANSWER_SCORES, json.dumps(scores.to_dict(), indent=2).encode(), private=True)
    return scores
