"""What a language model says about questions with known answers: the numbers that every question about it begins with.

A *sheet* holds one model's numbers about one group of questions. It is plain data: it can be saved where the model
runs, and scored elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import CHAT, Data, Samples, answers
from unweave.engine import Compute, Forward
from unweave.errors import UsageError, require_type
from unweave.runtime import pick_device, resolve_precision
from unweave.storage import LIST, NUMBER, TEXT, require_form
from unweave.tasks import IGNORED, Language, explained, prompts_and_answers, token_values, written

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Values: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
TOKENS = [[NUMBER]]
FORM = {  # of a sheet in a file
    "questions": [TEXT],
    "answers": [TEXT],
    "log_probabilities": TOKENS,
    "right": [LIST],
    "expected": TOKENS,
    "spread": TOKENS,
    "paraphrase?": [NUMBER],
    "wrong?": TOKENS,
    "written?": [TEXT],
    "gradient?": [NUMBER],
}
PARAPHRASE, WRONG = "paraphrased_answer", "perturbed_answer"  # columns, called as in TOFU


@dataclass(frozen=True, kw_only=True)
class AnswerSheet:
    """One model's numbers about one group of questions, one entry for each.

    Args:
        questions: The questions.
        answers: The true answers.
        log_probabilities: One number for each token of the true answer, its end token included.
        right: Whether that token is the likeliest.
        expected: The mean log-probability of a token that is drawn from the model in its place.
        spread: The standard deviation of the same.
        paraphrase: The mean token loss of a paraphrase of the answer; empty if there is none.
        wrong: The mean token losses of wrong answers; empty if there are none.
        written: What the model writes; empty if it was not asked to.
        gradient: The mean norm of the gradient of each answer's loss; empty if it was not asked for.

    >>> sheet = AnswerSheet(questions=["q"], answers=["a"], log_probabilities=[[-0.5, -1.5]], right=[[True, False]],
    ...                     expected=[[-1.0, -1.0]], spread=[[0.5, 0.5]])
    >>> sheet.losses.tolist()
    [1.0]
    """

    questions: list[str]
    answers: list[str]
    log_probabilities: list[list[float]]
    right: list[list[bool]]
    expected: list[list[float]]
    spread: list[list[float]]
    paraphrase: list[float] = field(default_factory=list)
    wrong: list[list[float]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    gradient: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def losses(self) -> Values:
        """The mean token loss of every true answer."""
        return np.array([-np.mean(tokens) for tokens in self.log_probabilities])

    def to_dict(self, *, digits: int | None = None) -> dict[str, Any]:
        """Return the sheet as plain data for JSON; numbers with so many decimal ``digits``, or all of them."""
        found = asdict(self)
        return found if digits is None else {name: _rounded(entry, digits) for name, entry in found.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AnswerSheet:
        """Return the sheet from the output of `to_dict`. Raise a `UsageError` if it is not one."""
        require_form(content, FORM, "a sheet")
        if unknown := sorted(set(content) - {name.removesuffix("?") for name in FORM}):
            raise UsageError(f"a sheet has the unknown entry {unknown[0]!r}.")
        sheet = cls(**{name: value for name, value in content.items() if value is not None})
        sheet._require_sizes()
        return sheet

    def _require_sizes(self) -> None:
        """Raise a `UsageError` unless every question has an entry everywhere, and every token all of its numbers."""
        for name, value in vars(self).items():
            is_given = bool(value) or not FORM.get(f"{name}?")
            if is_given and len(value) != len(self.answers):
                raise UsageError(f"a sheet has {len(self.answers)} answers, but {len(value)} entries in {name!r}.")
        for name in ("right", "expected", "spread"):
            for place, (tokens, other) in enumerate(zip(self.log_probabilities, getattr(self, name), strict=True)):
                if not tokens or len(tokens) != len(other):
                    raise UsageError(f"a sheet has {len(other)} tokens in {name}[{place}], not {len(tokens) or 1}.")
        if any(not losses for losses in self.wrong):
            raise UsageError("a sheet has a question without wrong answers, though others have some.")
        if not all(isinstance(one, bool) for tokens in self.right for one in tokens):
            raise UsageError("a sheet has entries in 'right' that are neither true nor false.")


def _rounded(entry: Any, digits: int) -> Any:
    if isinstance(entry, list):
        return [_rounded(one, digits) for one in entry]
    return round(entry, digits) if isinstance(entry, float) else entry


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How questions become tokens: tokenizer, template, columns, and how much may be written."""

    tokenizer: Any
    template: str = CHAT
    prompt: str = "question"
    answer: str = "answer"
    longest: int | None = None
    write: int = 200  # tokens; 0 writes nothing

    def tokens(self, rows: Rows, model: nn.Module, answer: str | None = None) -> dict[str, Tensor]:
        """Return questions with one column of answers as tokens."""
        return answers(
            rows,
            self.tokenizer,
            prompt=self.prompt,
            answer=answer or self.answer,
            template=self.template,
            longest=self.longest,
            model=model,
        )


def answer_sheet(
    model: nn.Module,
    rows: Rows,
    wording: Wording,
    *,
    compute: Compute | None = None,
    batch_size: int | None = None,
) -> AnswerSheet:
    """Ask a model every question of a group, and return its sheet.

    Args:
        model: A causal language model. It is moved to the device.
        rows: Questions with their answers. ``paraphrased_answer`` and ``perturbed_answer`` (a list) are used if all
            rows have them.
        wording: How questions become tokens.
        compute: Device and precision.
        batch_size: Questions per forward pass.

    Returns:
        The sheet.

    Raises:
        UsageError: There is no question, or the questions do not fit the tokenizer or the model.
    """
    require_type("rows", rows, Sequence, "rows with a question and its answer")
    if not rows:
        raise UsageError("There is no question. Give at least one row with a question and its answer.")
    compute = compute or Compute()
    where = pick_device(compute.device)
    forward = Forward(device=where, precision=resolve_precision(compute.precision, where))
    model.to(where)
    data = wording.tokens(rows, model)
    run = _Run(forward, model, batch_size)
    values = run.token_numbers(data)
    own: dict[str, Any] = {}
    if all(row.get(PARAPHRASE) for row in rows):
        own["paraphrase"] = run.losses(wording.tokens(rows, model, PARAPHRASE))
    if all(row.get(WRONG) for row in rows):
        own["wrong"] = _wrong(rows, wording, run)
    if wording.write:
        own["written"] = write_answers(model, rows, wording)
    return AnswerSheet(
        questions=[row[wording.prompt] for row in rows],
        answers=[row[wording.answer] for row in rows],
        log_probabilities=[row[:, 0].tolist() for row in values],
        right=[row[:, 1].bool().tolist() for row in values],
        expected=[row[:, 2].tolist() for row in values],
        spread=[row[:, 3].tolist() for row in values],
        **own,
    )


@dataclass(frozen=True)
class _Run:
    """Forward passes over texts."""

    forward: Forward
    model: nn.Module
    batch_size: int | None

    def token_numbers(self, data: dict[str, Tensor]) -> list[Tensor]:
        """Return log-probability, whether it is the likeliest, mean and deviation for every token of every answer."""
        width = data["labels"].shape[1] - 1

        def numbers(model: nn.Module, data: Data) -> Tensor:
            values, answer = token_values(model, data, _at_places)
            found = torch.cat([values, answer[..., None].to(values.dtype)], dim=-1)
            return functional.pad(found, (0, 0, 0, width - found.shape[1]))

        found = self._rows(partial(explained, run=numbers), data).double()
        return [row[row[:, -1] > 0][:, :-1] for row in found]

    def losses(self, data: dict[str, Tensor]) -> list[float]:
        """Return the mean token loss of every answer."""
        found: list[float] = self._rows(Language().outputs, data)[:, 0].double().tolist()
        return found

    def _rows(self, function: Any, data: dict[str, Tensor]) -> Tensor:
        samples = Samples(data)
        every = torch.arange(len(samples))
        Language().require_samples(self.model, samples, every)
        labels = Language().label_rows
        return self.forward.rows(function, self.model, samples, every, batch_size=self.batch_size, labels=labels)[
            0
        ].cpu()


def _at_places(logits: Tensor, targets: Tensor) -> Tensor:
    logs = functional.log_softmax(logits, dim=-1)
    own = logs.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    right = (logits.argmax(dim=-1) == targets) & (targets != IGNORED)
    probabilities = logs.exp()
    mean = torch.where(probabilities > 0, probabilities * logs, 0).sum(dim=-1)
    square = torch.where(probabilities > 0, probabilities * logs.square(), 0).sum(dim=-1)
    return torch.stack([own, right.to(own.dtype), mean, (square - mean.square()).clamp(min=1e-6).sqrt()], dim=-1)


def _wrong(rows: Rows, wording: Wording, run: _Run) -> list[list[float]]:
    """Return the mean token losses of every wrong answer to every question."""
    flat = [{wording.prompt: row[wording.prompt], WRONG: other} for row in rows for other in row[WRONG]]
    losses = iter(run.losses(wording.tokens(flat, run.model, WRONG)))
    return [[next(losses) for _ in row[WRONG]] for row in rows]


def write_answers(model: nn.Module, rows: Rows, wording: Wording) -> list[str]:
    """Return what the model writes after every question."""
    if not rows:
        return []
    tokenizer = wording.tokenizer
    prompts = [prompt for prompt, _ in prompts_and_answers(wording.tokens(rows, model))]
    texts = written(model, prompts, pad=tokenizer.pad_token_id, end=tokenizer.eos_token_id, longest=wording.write)
    return [tokenizer.decode(text, skip_special_tokens=True).strip() for text in texts]
