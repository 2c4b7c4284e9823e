"""Sentences of the results that say from what to what: over methods, over classes, over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sentence_values import at, each, lost, mean_of, own, values
from sentences import RESULT_PAGES, Sentence

LARGE, LARGE_TUNED, TIME = (f"cifar100-resnet18/{name}" for name in ("all", "tuned", "time"))
FIVE, RETRAIN = "cifar100-resnet18/each", "cifar100-resnet18/each-retrain"
VIT, VIT_TUNED, FASHION, CLINC = "cifar100-vit/all", "cifar100-vit/tuned", "fashion-mnist/all", "clinc150/all"
TOXIGEN, TOXIGEN_TUNED = "toxigen-roberta/all", "toxigen-roberta/tuned"


def ranges() -> Iterator[Sentence]:
    """Yield the sentences."""
    for part in (_overview, _large, _five, _others):
        yield from part()


def _said(phrase: str, *numbers: float) -> Sentence:
    return Sentence(RESULT_PAGES, phrase, numbers)


def _ends(numbers: Iterable[float]) -> tuple[float, float]:
    found = list(numbers)
    return min(found), max(found)


def _overview() -> Iterator[Sentence]:
    yield _said("it pays for that with {:.1f} points of adjacent accuracy", lost(TOXIGEN, "unweave", "test adjacent"))
    yield _said(
        "with the transformer on CIFAR-100 ({:.0f}% left) and on ToxiGen ({:.0f}%)",
        at(VIT, "scrub", "train forget"),
        at(TOXIGEN_TUNED, "scrub", "train forget"),
    )


def _large() -> Iterator[Sentence]:
    gone = 100 - at(LARGE, "munba official", "train forget")
    yield _said("With its authors' settings (`official`) it forgets {:.0f}%", gone)
    paid = {
        subset: _ends(lost(LARGE_TUNED, who, f"test {subset}") for who in ("ft", "l1-sparse", "scrub"))
        for subset in ("remote", "adjacent")
    }
    yield _said(
        "pay with {:.0f} to {:.0f} points of remote test accuracy and {:.0f} to {:.0f} of adjacent",
        *paid["remote"],
        *paid["adjacent"],
    )
    noise = [f"two-stage adjacency={kind}:0.2" for kind in ("remote-to-adjacent", "adjacent-to-remote")]
    yield _said(
        "lose {:.1f} to {:.1f} points of its test accuracy: adjacent batches",
        *_ends(lost(LARGE, who, "test adjacent", "two-stage") for who in noise),
    )
    seconds = {who: float(values(TIME, who, "", "seconds").mean()) for who in ("ft", "pgd", "two-stage", "unweave")}
    yield _said(
        "took {:.0f} s (fine-tuning), {:.0f} s (PGD), {:.0f} s (two-stage",
        *(seconds[who] for who in ("ft", "pgd", "two-stage")),
    )
    yield _said("on random images) and {:.1f} s (`unweave`", seconds["unweave"])


def _five() -> Iterator[Sentence]:
    before = each(FIVE, "original", "test adjacent")
    paid = {
        who: [before[name] - value for name, value in each(FIVE, who, "test adjacent").items()]
        for who in ("two-stage tuned", "two-stage released", "unweave")
    }
    three = ("bee", "bus", "rose")
    ends = [
        _ends(before[name] - each(FIVE, f"two-stage {kind}", "test adjacent")[name] for name in three)
        for kind in ("tuned", "released")
    ]
    yield _said(
        "where two-stage pays with {:.0f} to {:.0f} points of the neighbours' accuracy (as released {:.0f} to {:.0f}) "
        "and `unweave` with at most {:.0f}",
        *ends[0],
        *ends[1],
        max(paid["unweave"]),
    )
    names = ("aquarium_fish", "bee", "bottle", "bus", "rose")
    least = min(mean_of(f"{RETRAIN}/{name}", "unweave", "", "tow_split") for name in names)
    yield _said("It is above {:.2f} for every class", int(100 * least) / 100)
    sides = [-own(RETRAIN, "l1-sparse", measure)[0] for measure in ("adjacent", "remote")]
    yield _said("ℓ1-sparse pays with {:.0f} to {:.0f} points of test accuracy", *_ends(sides))


def _others() -> Iterator[Sentence]:
    little = ("ft official", "l1-sparse official", "munba official", "ssd official")
    yield _said(
        "as near to retraining as it gets (ToW {:.2f} to {:.2f}, retraining itself {:.2f})",
        *_ends(mean_of(FASHION, who, "", "tow_split") for who in little),
        mean_of(FASHION, "retrain", "", "tow_split"),
    )
    yield _said(
        "SalUn loses next to nothing and leaves {:.0f} to {:.0f}% of the training images",
        *_ends(at(FASHION, f"salun {profile}", "train forget") for profile in ("official", "tuned")),
    )
    within = max(lost(VIT, "unweave", f"train {subset}") for subset in ("adjacent", "remote"))
    yield _said("training images within {:.1f} points of the original", within)
    yield _said(
        "forget most of it and take {:.0f} to {:.0f} points of the unseen neighbours",
        *_ends(lost(VIT, who, "test adjacent") for who in ("delete", "gdr")),
    )
    yield _said(
        "pay with {:.0f} to {:.0f} points of remote test accuracy. **GA**",
        *_ends(lost(VIT_TUNED, who, "test remote") for who in ("ft", "l1-sparse", "gdr", "munba", "salun")),
    )
    seeds = sorted(100 * values(VIT, "ssd", "test adjacent"))
    yield _said("lose their neighbours ({:.1f} and {:.0f}% of unseen ones are left)", *seeds[:2])
    yield _said(
        "Seed by seed it keeps {:.1f} ± {:.1f} points less",
        *_over_seeds(TOXIGEN_TUNED, "scrub", "unweave", "test adjacent"),
    )


def _over_seeds(study: str, one: str, other: str, place: str) -> tuple[float, float]:
    """Return the mean difference of two methods in points, and half of its interval over the seeds."""
    from scipy import stats

    apart = 100 * (values(study, one, place) - values(study, other, place))
    return float(apart.mean()), float(stats.t.ppf(0.975, len(apart) - 1) * stats.sem(apart))
