"""Every number about a language model's answers, by group, with intervals and the retrained model beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from unweave.data import CHAT
from unweave.engine import Compute
from unweave.errors import UsageError, as_path, as_whole, require_seed, require_type
from unweave.evaluation import answer_attacks as attacks
from unweave.evaluation.answer_probability import probabilities, probabilities_among_options
from unweave.evaluation.answer_sheets import AnswerSheet, Rows, Values, Wording, answer_sheet, write_answers
from unweave.evaluation.forget_quality import forget_quality
from unweave.evaluation.memorisation import exact_memorisation, extraction_strength, unshared_tokens
from unweave.evaluation.metric import CONFIDENCE, Better, Estimate, Metric
from unweave.evaluation.model_utility import GROUPS, harmonic_mean, utility_parts
from unweave.evaluation.rouge import rouge_recalls
from unweave.evaluation.truth_ratio import indifference, truth_ratios, truthfulness
from unweave.storage import OBJECT, read_json, require_form, write_whole

FORGET, HELD_OUT = "forget", "held_out"
SPLIT = "answers"
MOST_RESAMPLES = 100_000
MOST_WRITTEN = 10_000  # tokens


@dataclass(frozen=True, kw_only=True)
class AnswerScores:
    """The measured numbers about answers, such as ``scores["forget"]["extraction_strength"]``.

    Args:
        metrics: The numbers with interval, direction, and the values of the retrained model and the original.
        sheets: What the model said, by group.
        reference: What the retrained model said, by group.
        before: What the original said, by group.

    >>> scores = AnswerScores(metrics=[Metric(metric="rouge", value=0.5, better="lower", split=SPLIT, subset="forget")])
    >>> scores["forget"]["rouge"]
    0.5
    """

    metrics: Sequence[Metric] = ()
    sheets: Mapping[str, AnswerSheet] = field(default_factory=dict)
    reference: Mapping[str, AnswerSheet] = field(default_factory=dict)
    before: Mapping[str, AnswerSheet] = field(default_factory=dict)

    def __getitem__(self, group: str) -> dict[str, float]:
        """Return the numbers of a group; those of the whole model under ``"model"``."""
        subset = "" if group == "model" else group
        return {one.metric: one.value for one in self.metrics if one.subset == subset and one.value is not None}

    def metric(self, name: str, group: str = "") -> Metric:
        """Return a number with its interval, direction, reference and note."""
        for one in self.metrics:
            if (one.metric, one.subset) == (name, group):
                return one
        raise UsageError(f"There is no number {name!r} of {group or 'the whole model'}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values for JSON."""
        return {"metrics": [one.to_dict() for one in self.metrics]}

    def __str__(self) -> str:
        lines = [f"{'group':<15}{'':<26}{'value':>8}{'interval':>16}{'before':>8}{'retrain':>8}"]
        for one in self.metrics:
            if one.value is None:
                continue
            interval = "" if one.low is None or one.high is None else f"{one.low:.3f}–{one.high:.3f}"
            before, retrained = ("" if value is None else f"{value:.3f}" for value in (one.before, one.reference))
            group = one.subset or "model"
            lines.append(f"{group:<15}{one.metric:<26}{one.value:>8.3f}{interval:>16}{before:>8}{retrained:>8}")
        return "\n".join(lines)


def ask(
    model: nn.Module,
    groups: Mapping[str, Rows],
    tokenizer: Any,
    *,
    template: str = CHAT,
    longest: int | None = None,
    write: int = 200,
    gradients: bool = False,
    compute: Compute | None = None,
) -> dict[str, AnswerSheet]:
    """Ask a language model every question, and return what it says, by group.

    Args:
        model: A causal language model of transformers.
        groups: Rows with ``question`` and ``answer`` by name of the group, such as ``forget``, ``adjacent``,
            ``remote``, ``retain``, ``real_authors``, ``world_facts`` and ``held_out``.
        tokenizer: The model's tokenizer.
        template: As in `unweave.answers`.
        longest: The most tokens of a question with its answer.
        write: The most tokens to write after a question; 0 writes nothing, and there is no ROUGE. After questions of
            ``held_out`` nothing is written.
        gradients: Also measure the gradient of each answer's loss, for the gradient attack. It takes a backward pass
            for each question.
        compute: Device and precision.

    Returns:
        A sheet for each group. `score_answers` scores them, also on another machine (`save_answers`).

    Raises:
        UsageError: A group has no rows, or the rows do not fit the tokenizer or the model.

    >>> ask(nn.Linear(1, 1), {}, None)
    Traceback (most recent call last):
    unweave.errors.UsageError: There are no groups of questions. Give at least {'forget': rows}.
    """
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("groups", groups, Mapping, "rows by name of the group")
    require_type("compute", compute, (Compute, type(None)), "a Compute")
    require_type("gradients", gradients, bool, "True or False")
    write = as_whole("write", write, at_least=0)
    if write > MOST_WRITTEN:
        raise UsageError(f"write is {write}, more than {MOST_WRITTEN} tokens. Take fewer.")
    if not groups:
        raise UsageError("There are no groups of questions. Give at least {'forget': rows}.")
    wording = Wording(tokenizer=tokenizer, template=template, longest=longest, write=write)
    home = next((weight.device for weight in model.parameters()), None)
    try:
        found = {}
        for group, rows in groups.items():
            found[group] = answer_sheet(model, rows, replace(wording, write=0), compute=compute)
            if gradients:
                norms = attacks.gradient_scores(model, rows, wording).tolist()
                found[group] = replace(found[group], gradient=norms)
        return _with_texts(found, model, groups, wording)
    finally:
        if home is not None:
            model.to(home)


def _with_texts(
    sheets: Mapping[str, AnswerSheet], model: nn.Module, groups: Mapping[str, Rows], wording: Wording
) -> dict[str, AnswerSheet]:
    """Return the sheets with what the model writes. All groups are asked together: a step takes as long for one."""
    asked = [group for group in sheets if group != HELD_OUT and wording.write]  # attacks read no texts
    texts = iter(write_answers(model, [row for group in asked for row in groups[group]], wording))
    return {
        group: replace(sheet, written=[next(texts) for _ in groups[group]]) if group in asked else sheet
        for group, sheet in sheets.items()
    }


def save_answers(sheets: Mapping[str, AnswerSheet], file: str | os.PathLike[str]) -> None:
    """Write what a model said to a JSON file, to score it elsewhere.

    Args:
        sheets: What `ask` returned.
        file: The file. It appears whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_answers({}, f"{folder}/answers.json")
    ...     load_answers(f"{folder}/answers.json")
    {}

    Returns:
        Nothing.

    Raises:
        UsageError: A number is not finite, as of a model that is broken.
        OSError: The file cannot be written.
    """
    require_sheets("sheets", sheets)
    content = {group: sheet.to_dict() for group, sheet in sheets.items()}
    try:
        text = json.dumps(content, allow_nan=False)
    except ValueError:
        raise UsageError("The answers hold numbers that are not finite, so nothing was saved.") from None
    write_whole(as_path("file", file), text.encode(), private=True)  # it quotes what is to be forgotten


def load_answers(file: str | os.PathLike[str]) -> dict[str, AnswerSheet]:
    """Read what `save_answers` wrote.

    Args:
        file: The file.

    Returns:
        The sheets by group.

    Raises:
        UsageError: The file does not hold answers.

    >>> load_answers("nowhere.json")
    Traceback (most recent call last):
    unweave.errors.UsageError: nowhere.json holds no answers: nowhere.json cannot be read: [Errno 2] No such file or...
    """
    try:
        content = read_json(as_path("file", file))
        require_form(content, {"*": OBJECT}, os.fspath(file))
        return {group: AnswerSheet.from_dict(entry) for group, entry in content.items()}
    except UsageError as error:
        raise UsageError(f"{file} holds no answers: {error}") from error


def score_answers(
    sheets: Mapping[str, AnswerSheet],
    *,
    reference: Mapping[str, AnswerSheet] | None = None,
    before: Mapping[str, AnswerSheet] | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> AnswerScores:
    """Score what a model said.

    Args:
        sheets: What the model said, by group (`ask`).
        reference: What a retrained model said to the same questions.
        before: What the original said to the same questions.
        resamples: Number of bootstrap resamples; 0 gives no intervals.
        seed: Seed of the resamples.

    Returns:
        Every number by group, with its interval, and those of the retrained model and the original beside it.

    Raises:
        UsageError: The models were asked different questions.

    >>> sheet = AnswerSheet(questions=["q"], answers=["a b"], log_probabilities=[[-0.1, -0.3, -0.2]],
    ...                     right=[[True, False, True]], expected=[[0.0] * 3], spread=[[1.0] * 3], written=["a c"])
    >>> found = score_answers({"forget": sheet}, resamples=0)["forget"]
    >>> {name: round(value, 3) for name, value in found.items()}
    {'probability': 0.819, 'rouge': 0.5, 'exact_memorisation': 0.5, 'extraction_strength': 0.0}
    """
    reference, before = ({} if given is None else given for given in (reference, before))
    for name, given in (("sheets", sheets), ("reference", reference), ("before", before)):
        require_sheets(name, given)
    resamples, seed = as_whole("resamples", resamples, at_least=0), require_seed(seed)
    if resamples > MOST_RESAMPLES:
        raise UsageError(f"resamples is {resamples}, but more than {MOST_RESAMPLES} change nothing. Take fewer.")
    _require_same_questions(sheets, reference, before)

    def numbers(of: Mapping[str, AnswerSheet], resamples: int) -> list[Metric]:
        found = [one for group, sheet in of.items() for one in _of_group(group, sheet, resamples, seed)]
        return found + _of_attacks(of, reference, resamples, seed) + _of_model(of, resamples, seed)

    theirs, mine = ({one.place: one.value for one in numbers(of, 0)} for of in (reference, before))
    metrics = [
        one.beside(reference=theirs.get(one.place), before=mine.get(one.place)) for one in numbers(sheets, resamples)
    ]
    metrics += _against_retraining(sheets, reference, before, resamples, seed)
    return AnswerScores(metrics=metrics, sheets=sheets, reference=reference, before=before)


def bootstrapped(statistic: Callable[..., float], samples: Sequence[Values], *, resamples: int, seed: int) -> Estimate:
    """Return a statistic of independent samples, with its percentile bootstrap interval.

    >>> bootstrapped(np.mean, [np.array([1.0, 1.0])], resamples=10, seed=0)
    Estimate(value=1.0, low=1.0, high=1.0)
    """
    value = float(statistic(*samples))
    if not resamples:
        return Estimate(value)
    chance = np.random.default_rng(seed)
    drawn = [
        statistic(*(sample[chance.integers(0, len(sample), len(sample))] for sample in samples))
        for _ in range(resamples)
    ]
    edge = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(drawn, [edge, 100 - edge])
    return Estimate(value, float(low), float(high))


def _of_group(group: str, sheet: AnswerSheet, resamples: int, seed: int) -> list[Metric]:
    """Return the numbers of one group."""
    parts: dict[str, Values] = {"probability": probabilities(sheet)}
    if sheet.wrong and not sheet.paraphrase:
        parts["probability_among_options"] = probabilities_among_options(sheet)
    if sheet.written:
        parts["rouge"] = rouge_recalls(sheet)
    parts["exact_memorisation"] = exact_memorisation(sheet)
    parts["extraction_strength"] = extraction_strength(sheet)
    gone = group == FORGET
    better: Better = "lower" if gone else "higher"
    found = [_mean(name, values, group, better, resamples, seed) for name, values in parts.items()]
    if sheet.wrong:
        form = indifference if gone else truthfulness
        found.append(_mean("truth_ratio", form(truth_ratios(sheet)), group, "higher", resamples, seed))
    return found


def _mean(name: str, values: Values, group: str, better: Better, resamples: int, seed: int, note: str = "") -> Metric:
    there = values[~np.isnan(values)]
    if len(there) == 0:
        note = f"No {group} answer has such tokens."
        return Metric.absent(name, better=better, note=note, split=SPLIT, subset=group)
    estimate = bootstrapped(lambda some: float(np.mean(some)), [there], resamples=resamples, seed=seed)
    return Metric.of(name, estimate, better=better, split=SPLIT, subset=group, note=note)


def _of_attacks(
    sheets: Mapping[str, AnswerSheet], reference: Mapping[str, AnswerSheet], resamples: int, seed: int
) -> list[Metric]:
    """Return the attacks that tell forget answers from held-out ones."""
    if FORGET not in sheets or HELD_OUT not in sheets:
        return []
    pairs = {
        "mia_loss": [attacks.loss_scores(sheets[group]) for group in (FORGET, HELD_OUT)],
        "mia_zlib": [attacks.zlib_scores(sheets[group]) for group in (FORGET, HELD_OUT)],
        "mia_min_k": [attacks.min_k_scores(sheets[group]) for group in (FORGET, HELD_OUT)],
        "mia_min_k_plus": [attacks.min_k_plus_scores(sheets[group]) for group in (FORGET, HELD_OUT)],
    }
    if sheets[FORGET].gradient and sheets[HELD_OUT].gradient:
        pairs["mia_gradient"] = [np.array(sheets[group].gradient) for group in (FORGET, HELD_OUT)]
    if {FORGET, HELD_OUT} <= set(reference) and sheets is not reference:
        pairs["mia_reference"] = [
            attacks.reference_scores(sheets[group], reference[group]) for group in (FORGET, HELD_OUT)
        ]
    return [
        Metric.of(
            f"{name}_auc",
            attacks.familiarity(*scores, resamples=resamples, seed=seed),
            better="reference",
            split=SPLIT,
            subset=FORGET,
        )
        for name, scores in pairs.items()
    ]


def _of_model(sheets: Mapping[str, AnswerSheet], resamples: int, seed: int) -> list[Metric]:
    """Return model utility, if all of its groups were asked."""
    if not set(GROUPS) <= set(sheets) or not all(sheets[group].written and sheets[group].wrong for group in GROUPS):
        return []
    parts = list(utility_parts(sheets).values())
    estimate = bootstrapped(
        lambda *some: harmonic_mean([float(np.mean(part)) for part in some]), parts, resamples=resamples, seed=seed
    )
    return [Metric.of("model_utility", estimate, better="higher", split=SPLIT)]


def _against_retraining(
    sheets: Mapping[str, AnswerSheet],
    reference: Mapping[str, AnswerSheet],
    before: Mapping[str, AnswerSheet],
    resamples: int,
    seed: int,
) -> list[Metric]:
    """Return the numbers that need a retrained model: forget quality, PrivLeak, memorisation of unshared tokens."""
    found: list[Metric] = []
    mine, theirs = sheets.get(FORGET), reference.get(FORGET)
    if mine is None or theirs is None:
        return found
    if mine.wrong and theirs.wrong:
        quality = forget_quality(truth_ratios(mine), truth_ratios(theirs))
        numbers = {"forget_quality": quality.p_value, "forget_quality_log10": quality.log10}
        found += [
            Metric(
                metric=name, value=value if np.isfinite(value) else None, better="higher", split=SPLIT, subset=FORGET
            )
            for name, value in numbers.items()
        ]
        found.append(Metric(metric="ks_statistic", value=quality.statistic, better="lower", split=SPLIT, subset=FORGET))
    if HELD_OUT in sheets and HELD_OUT in reference:
        aucs = [
            attacks.familiarity(*(attacks.min_k_scores(of[group]) for group in (FORGET, HELD_OUT)), resamples=0).value
            for of in (sheets, reference)
        ]
        leak = attacks.privacy_leak(*aucs)
        found.append(Metric(metric="privacy_leak", value=leak, better="reference", split=SPLIT, subset=FORGET))
    if FORGET in before:
        only = unshared_tokens(before[FORGET], theirs)
        one = _mean("exact_memorisation_unshared", exact_memorisation(mine, only), FORGET, "lower", resamples, seed)
        values = [exact_memorisation(sheet, only) for sheet in (theirs, before[FORGET])]
        beside = [float(np.nanmean(some)) if not np.isnan(some).all() else None for some in values]
        found.append(one.beside(reference=beside[0], before=beside[1]))
    return found


def require_sheets(name: str, sheets: Any) -> None:
    """Raise a `UsageError` for what is no sheets by name of their group."""
    require_type(name, sheets, Mapping, "sheets by name of the group")
    for group, sheet in sheets.items():
        require_type("the name of a group", group, str, "a text")
        require_type(f"{name}[{group!r}]", sheet, AnswerSheet, "an AnswerSheet, as `ask` returns it")
        _require_finite(f"{name}[{group!r}]", sheet)


def _require_finite(name: str, sheet: AnswerSheet) -> None:
    """Raise a `UsageError` for numbers that no score can be computed from."""
    for entry in ("log_probabilities", "expected", "spread", "paraphrase", "wrong", "gradient"):
        for place, numbers in enumerate(getattr(sheet, entry)):
            try:
                fine = bool(np.isfinite(numbers).all())
            except (TypeError, ValueError):
                raise UsageError(f"{name} has no numbers as {entry!r} of answer {place}.") from None
            if not fine:
                raise UsageError(
                    f"{name} has a number that is not finite as {entry!r} of answer {place}. The model is broken: it "
                    "gives NaN or infinite values."
                )


def _require_same_questions(*models: Mapping[str, AnswerSheet]) -> None:
    first, *others = models
    for other in others:
        for group in set(first) & set(other):
            if first[group].questions != other[group].questions or first[group].answers != other[group].answers:
                raise UsageError(f"The models were asked different {group} questions. Ask all of them the same ones.")
