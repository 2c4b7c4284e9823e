"""report.html: one run on one page, for a reader without unweave. It shows no sample unless the caller adds some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unweave._version import __version__
from unweave.data import EVERY
from unweave.evaluation import Predictions, Scores
from unweave.runs import plain_page as html
from unweave.runs.model_card import limits_of

MOST_GROUPS = 60  # rows of the table of groups
MEND = "Choose another method or other settings."
LOOK = "Look at the numbers below before you use the model."
OUTCOMES: dict[tuple[bool | None, bool | None], tuple[str, str]] = {
    (True, True): (
        "The model forgot the data and kept the rest",
        "use the model. Keep this folder: it is your evidence.",
    ),
    (True, False): (
        "The model forgot the data, but lost some of what it should keep",
        "use the model only if you can bear the losses below. If not: {mend} Or retrain.",
    ),
    (False, True): (
        "The model kept the rest, but did not forget enough",
        "do not use it for this request yet. {mend} Or retrain.",
    ),
    (False, False): (
        "The model neither forgot enough nor kept the rest",
        "do not use it. {mend} Or retrain.",
    ),
    (True, None): ("The model forgot the data", f"measure what it kept: that is not known. {LOOK}"),
    (False, None): (
        "The model did not forget enough",
        "do not use it for this request yet. {mend} Or retrain.",
    ),
    (None, True): ("The model kept the rest; whether it forgot is not known", LOOK.lower()),
    (None, False): ("The model lost some of what it should keep; whether it forgot is not known", LOOK.lower()),
    (None, None): ("Whether the model forgot and kept is not known", LOOK.lower()),
}
TERMS = (
    ("Recognised", "the model still gives the right answer to a sample."),
    ("Forget data", "what the model is to forget."),
    ("Adjacent data", "data to keep that resembles the forget data."),
    ("Remote data", "all other data to keep."),
    ("Kept", "adjacent and remote accuracy fell by at most 2 points."),
)
ATTACKS = {
    "mia_svc_confidence": "An attack by confidence takes this share of the forget samples for unseen data.",
    "mia_population_auc": "An attack by losses tells forget samples from unseen ones this well (AUC; 50% is chance).",
}


@dataclass(frozen=True)
class LabelGroup:
    """The samples of one label in one subset, and which share of them is recognised."""

    split: str
    subset: str
    label: str
    samples: int
    before: float | None
    after: float


def run_page(
    config: Mapping[str, Any],
    scores: Scores,
    verdict: str,
    counts: Mapping[str, int],
    *,
    reached: bool | None = None,
    kept: bool | None = None,
    mend: str = MEND,
    names: Mapping[int, str] | None = None,
    more: Sequence[str] = (),
) -> str:
    """Return the page of a run.

    Args:
        config: The configuration of the run.
        scores: What was measured. Groups are shown if it holds the models' outputs.
        verdict: The verdict in words.
        counts: How many samples each subset of the training data has.
        reached: Whether the run reached its goal. None: unknown.
        kept: Whether it kept what it should. None: unknown.
        mend: What to do if it did not, in a sentence.
        names: The names of the labels.
        more: Further sections, which are HTML already.

    Returns:
        HTML.

    >>> config = {"method": "ga", "profile": "default", "settings": {"epochs": 5}, "seed": 0, "precision": "float32"}
    >>> page = run_page(config, Scores({}), "Forgotten: <b>", {"forget": 3}, reached=True, kept=True)
    >>> "Forgotten: &lt;b&gt;" in page, "<h1>The model forgot the data and kept the rest</h1>" in page
    (True, True)
    """
    found = groups(scores, names or {})
    settings = [[str(name), str(value)] for name, value in config.get("settings", {}).items()]
    title, advice = OUTCOMES[reached, kept]
    parts = [
        html.section("The verdict", html.block(verdict), html.terms(TERMS)),
        html.section("Before and after", _accuracies(scores)),
        *([_groups(found)] if found else []),
        *more,
        *([html.section("Attacks", *attacks)] if (attacks := _attacks(scores)) else []),
        html.section("What this does not show", html.points(limits_of(config, scores))),
        html.section("The run", html.table(["", ""], _facts(config, counts))),
        html.section("Settings", html.table(["setting", "value"], settings)),
    ]
    request = config.get("request")
    lead = [html.words(f"Request {request}", kind="soft")] if request else []
    return html.page(title, parts, lead=[*lead, html.words(f"What to do: {advice.format(mend=mend)}", kind="advice")])


def _facts(config: Mapping[str, Any], counts: Mapping[str, int]) -> list[list[str]]:
    data = ", ".join(f"{counts[subset]:,} {subset}" for subset in EVERY if counts.get(subset))
    return [
        ["training data", data],
        ["method", f"{config.get('method')}, profile {config.get('profile')}"],
        ["seed and precision", f"{config.get('seed')}, {config.get('precision')}"],
        ["software", f"unweave {__version__}"],
    ]


def _accuracies(scores: Scores) -> str:
    rows: list[list[html.Entry]] = [
        [metric.split, metric.subset, html.Bar(metric.before), html.Bar(metric.value)]
        for metric in scores.metrics
        if metric.metric == "accuracy" and metric.subset and metric.value is not None
    ]
    said = "Share of samples that the model recognises. Forget data should go down, adjacent and remote data stay."
    return html.table(["data", "subset", "accuracy before", "accuracy after"], rows, caption=said)


def groups(scores: Scores, names: Mapping[int, str]) -> list[LabelGroup]:
    """Return every label's share of recognised samples in every subset, those that changed most first.

    It is empty for tasks whose labels are not one class each, and if the outputs are no longer in memory.
    """
    found: list[LabelGroup] = []
    after, before = scores.observed, scores.before
    for split, subsets in (after.parts if after else {}).items():
        for subset, now in subsets.items():
            if not _has_classes(now):
                continue
            then = before.parts[split][subset] if before else None
            for label in now.labels.unique().tolist():
                of = now.labels == label
                share = float(now.correct[of].float().mean())
                earlier = None if then is None else float(then.correct[of].float().mean())
                name = names.get(int(label), str(label))
                found.append(LabelGroup(split, subset, name, int(of.sum()), earlier, share))
    return sorted(found, key=lambda one: -abs((1.0 if one.before is None else one.before) - one.after))


def _has_classes(predictions: Predictions) -> bool:
    labels = predictions.labels
    plain = labels.ndim == 1 and not labels.is_floating_point() and labels.dtype != torch.bool
    plain = plain and not predictions.task.has_tokens  # whose labels are the numbers of tokens
    return len(labels) > 0 and plain and predictions.recognised is not None


def _groups(found: list[LabelGroup]) -> str:
    rows: list[list[html.Entry]] = [
        [one.split, one.subset, one.label, one.samples, html.Bar(one.before), html.Bar(one.after)]
        for one in found[:MOST_GROUPS]
    ]
    rest = len(found) - len(rows)
    note = f"The {len(rows)} groups that changed most; {rest} more are left out." if rest else "Largest changes first."
    head = ["data", "subset", "label", "samples", "before", "after"]
    return html.section("Groups", html.table(head, rows, caption=f"Share recognised, by label. {note}"))


def _attacks(scores: Scores) -> list[str]:
    rows: list[list[html.Entry]] = [
        [metric.split, ATTACKS[metric.metric], html.Bar(metric.before), html.Bar(metric.value)]
        for metric in scores.metrics
        if metric.metric in ATTACKS and metric.subset == "forget" and metric.value is not None
    ]
    return [html.table(["data", "attack", "before", "after"], rows)] if rows else []


def label_names(model: nn.Module) -> dict[int, str]:
    """Return the names of the classes that a model of transformers knows; empty for others.

    >>> label_names(nn.Linear(2, 2))
    {}
    """
    named = getattr(getattr(model, "config", None), "id2label", None) or {}
    return {int(number): str(name) for number, name in named.items()}
