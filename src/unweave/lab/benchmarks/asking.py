"""The answers of a benchmark's models: asked, scored, and kept beside a run."""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from unweave.api import Result, report_page
from unweave.engine import Compute
from unweave.evaluation import AnswerScores, AnswerSheet, ask, score_answers
from unweave.lab.benchmarks.benchmark import BenchmarkTask
from unweave.runs import answers_section
from unweave.storage import PAGE, write_whole

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


def keep_answers(task: BenchmarkTask, result: Result, folder: Path, compute: Compute | None = None) -> AnswerScores:
    """Ask the model of a run and its original, score the answers, and write both to the run's folder.

    Args:
        task: The benchmark's data.
        result: The run.
        folder: Its folder. ``answers.json`` has what both models say, ``answer_scores.json`` the numbers, and
            ``report.html`` a table of the answers.
        compute: Device and precision.
    """
    sheets = {"unlearned": ask_all(task, result.model, compute), "original": ask_all(task, result.original, compute)}
    scores = score_answers(sheets["unlearned"], before=sheets["original"])
    content = {name: {group: one.to_dict() for group, one in groups.items()} for name, groups in sheets.items()}
    section = answers_section(sheets["original"], sheets["unlearned"])
    for name, text in {
        ANSWERS: json.dumps(content),
        ANSWER_SCORES: json.dumps(scores.to_dict(), indent=2),
        PAGE: report_page(result, section),
    }.items():
        write_whole(folder / name, text.encode(), private=True)
    return scores
