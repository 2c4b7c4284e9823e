"""The part of a run's page that shows what a language model answered before and after."""

from __future__ import annotations

from collections.abc import Mapping

from unweave.evaluation import AnswerSheet
from unweave.runs import plain_page as html

MOST_QUESTIONS = 100  # of a group of questions
LONGEST_TEXT = 1000  # characters of a question or an answer
NOTHING = "(nothing)"


def answers_section(before: Mapping[str, AnswerSheet], after: Mapping[str, AnswerSheet]) -> str:
    """Return a table to search: question, true answer, and what the model wrote before and after.

    In every group, questions whose answer changed come first.

    Args:
        before: What the original model says, by group of questions.
        after: What the unlearned model says to the same questions.

    Returns:
        HTML. It is empty if the models wrote nothing.

    >>> numbers = {"log_probabilities": [[-0.5]], "right": [[True]], "expected": [[-1.0]], "spread": [[0.5]]}
    >>> old, new = (
    ...     AnswerSheet(questions=["Who?"], answers=["Ann"], written=[text], **numbers) for text in ("Ann", "Bob")
    ... )
    >>> "The answers to 1 of 1 questions changed." in answers_section({"forget": old}, {"forget": new})
    True
    """
    rows: list[list[html.Entry]] = []
    changed, all_questions = 0, 0
    for group, sheet in after.items():
        earlier = before.get(group)
        if not sheet.written or earlier is None or not earlier.written:
            continue
        found = list(zip(sheet.questions, sheet.answers, earlier.written, sheet.written, strict=True))
        found.sort(key=lambda row: row[2] == row[3])
        changed += sum(old != new for _, _, old, new in found)
        all_questions += len(found)
        rows += [[group, *(_cut(text) for text in row)] for row in found[:MOST_QUESTIONS]]
    if not rows:
        return ""
    note = f"The answers to {changed:,} of {all_questions:,} questions changed."
    if 0 < changed < all_questions:
        note += " They come first in every group."
    if len(rows) < all_questions:
        note += f" At most {MOST_QUESTIONS} questions of a group are shown; answers.json has all."
    return html.section(
        "Answers",
        html.words(f"{note} This page shows training data: keep it private."),
        html.searched(
            ["questions of", "question", "true answer", "before", "after"], rows, caption="What the model wrote."
        ),
    )


def _cut(text: str) -> str:
    return (text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…") or NOTHING
