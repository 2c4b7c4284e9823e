"""The sentences of the docs whose numbers come from `results/`: a phrase, and its values in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from places import RESULTS
from sentence_values import apart, at, count_tests, gradients, lost, own, share
from sentences import RESULT_PAGES, Sentence
from sentences_about_others import others
from sentences_about_ranges import ranges
from sentences_about_safety import safety
from sentences_about_speed import speed
from sentences_about_strangers import strangers

FIVE, RETRAIN, SMALLER = (f"cifar100-resnet18/{name}" for name in ("each", "each-retrain", "smaller-step"))
LARGE, LARGE_TUNED = "cifar100-resnet18/all", "cifar100-resnet18/tuned"
TEN, TEN_RETRAIN = "digits/each", "digits/each-retrain"
WHERE = ("test forget", "test adjacent", "test remote")


@cache
def sentences() -> tuple[Sentence, ...]:
    """Return the sentences of all pages."""
    parts = (_readme, _large, _five, _five_retrain, _digits, _ten, _ten_retrain, _sentences, _vit, _toxigen)
    return (
        *(sentence for part in parts for sentence in part()),
        *others(),
        *ranges(),
        *safety(),
        *speed(),
        *strangers(),
    )


def _said(phrase: str, *values: float, page: str = RESULT_PAGES) -> Sentence:
    return Sentence(page, phrase, values)


def _readme() -> Iterator[Sentence]:
    cells = [json.loads(line) for line in (RESULTS / "strangers/judgement.jsonl").read_text("utf-8").splitlines()]
    worst = [max(100 * (cell["before"][place] - cell["after"][place]) for cell in cells) for place in WHERE[1:]]
    yield _said("look-alikes lost {:.1f} points at worst, the rest {:.1f}", *worst, page="README.md")


def _large() -> Iterator[Sentence]:
    ours, theirs = gradients(LARGE, "unweave"), gradients(LARGE, "two-stage")
    yield _said(
        "with {:.0f}% of the sample gradients; of remote training data it keeps two points less", share(ours, theirs)
    )
    yield _said(
        "Two-stage forgets all 500 training images and keeps the other fish at {:.1f}% and the rest at {:.1f}%",
        *(at(LARGE, "two-stage", f"train {subset}") for subset in ("adjacent", "remote")),
    )
    yield _said("without the Wasserstein term {:.1f}% are recognised again", at(LARGE, "pgd", "train forget"))
    yield _said("accuracy: adjacent data {:.1f}%", at(LARGE, "unweave", "test adjacent"))
    yield _said(
        "remote data {:.1f}%, {:.1f} below it (two-stage: {:.1f} below)",
        *(
            at(LARGE, "unweave", "test remote"),
            lost(LARGE, "unweave", "test remote"),
            lost(LARGE, "two-stage", "test remote"),
        ),
    )
    yield _said(
        "(two-stage: 3.6 below). It takes {:,.0f} sample gradients, {:.0f}% of two-stage's {:,.0f}.",
        ours,
        share(ours, theirs),
        theirs,
    )
    yield _said("What it costs is remote *training* data: {:.1f}%, two points", at(LARGE, "unweave", "train remote"))
    yield _said(
        "`unweave` loses {:.1f} points of remote training accuracy, two-stage {:.1f} of remote test accuracy",
        *(lost(LARGE, "unweave", "train remote"), lost(LARGE, "two-stage", "test remote")),
    )
    yield _said(
        "**SCRUB** at 5e-5 is unstable: its three seeds keep {:.0f}%, {:.0f}% and {:.0f}% of the remote training data",
        *sorted((100 * value for value in _seeds(LARGE, "scrub", "train remote")), reverse=True),
    )
    yield _said(
        "It forgets all and loses {:.1f} points of remote test accuracy.", lost(LARGE_TUNED, "unweave", "test remote")
    )
    yield _said(
        "**Two-stage** forgets {:.1f}% and gets all of the neighbours back ({:.1f}% of training images, and "
        "{:.1f}% of unseen "
        "ones, where as released it has {:.1f}%), with twice as many sample gradients as released: {:,.0f}",
        100 - at(LARGE_TUNED, "two-stage", "train forget"),
        at(LARGE_TUNED, "two-stage", "train adjacent"),
        at(LARGE_TUNED, "two-stage", "test adjacent"),
        at(LARGE, "two-stage", "test adjacent"),
        gradients(LARGE_TUNED, "two-stage"),
    )
    yield _said(
        "Of remote test accuracy it loses {:.1f} points (as released {:.1f}). Against `unweave` it keeps, in "
        "the mean of three "
        "seeds of this one class, {:.1f} points less of remote test accuracy and {:.1f} more of remote training "
        "accuracy",
        lost(LARGE_TUNED, "two-stage", "test remote"),
        lost(LARGE, "two-stage", "test remote"),
        lost(LARGE_TUNED, "two-stage", "test remote", "unweave"),
        lost(LARGE_TUNED, "unweave", "train remote", "two-stage"),
    )
    yield _said(
        "**SalUn** is the best of the tuned baselines: {:.1f}% of the training images are left ({:.1f}% with "
        "the printed values)",
        *(at(study, "salun", "train forget") for study in (LARGE_TUNED, LARGE)),
    )


def _seeds(study: str, who: str, place: str) -> list[float]:
    from sentence_values import values

    return [float(value) for value in values(study, who, place)]


def _five() -> Iterator[Sentence]:
    ours = [own(FIVE, "unweave", measure) for measure in ("adjacent", "remote")]
    theirs = [own(FIVE, "two-stage tuned", measure) for measure in ("adjacent", "remote")]
    near = [own(RETRAIN, who, "tow_split")[0] for who in ("unweave", "retrain", "scrub")]
    yield _said(
        "is {:.1f} points of adjacent and {:.1f} of remote test accuracy below the original, where two-stage is "
        "{:.1f} and "
        "{:.1f} below",
        *(-mean for mean, _ in (*ours, *theirs)),
    )
    yield _said("as they are to each other ({:.2f} and {:.2f}; the next method {:.2f})", *near)
    yield _said(
        "its loss distance is {:.1f} times, its RMIA distance {:.1f} times what two retrainings have",
        *(own(RETRAIN, "unweave", name)[0] / own(RETRAIN, "retrain", name)[0] for name in ("losses", "attack")),
    )
    spent = {who: own(FIVE, who, "gradients")[0] for who in ("unweave", "two-stage released", "two-stage tuned")}
    yield _said(
        "in all 15 runs and loses {:.1f} ± {:.1f} points of adjacent and {:.1f} ± {:.1f} of remote test "
        "accuracy**, with "
        "{:.0f}% of the sample gradients of two-stage as released, and {:.0f}% of what tuning gave it",
        *(-ours[0][0], ours[0][1], -ours[1][0], ours[1][1]),
        *(share(spent["unweave"], spent[f"two-stage {kind}"]) for kind in ("released", "tuned")),
    )
    tuned = {name: apart(FIVE, "unweave", name, baseline="two-stage tuned") for name in ("remote", "adjacent")}
    yield _said(
        "**Against two-stage, tuned**: {:.1f} ± {:.1f} points more of remote test accuracy (p = {:.2f}) and "
        "{:.1f} ± {:.1f} of "
        "adjacent, which differs too much between the classes to be more than chance for certain (p = {:.2f})",
        *tuned["remote"],
        *tuned["adjacent"],
    )
    released = {name: apart(FIVE, "unweave", name, baseline="two-stage released") for name in ("remote", "adjacent")}
    yield _said(
        "**Against two-stage as released**: {:.1f} ± {:.1f} (p = {:.2f}) and {:.1f} ± {:.1f} (p = {:.2f})",
        *released["remote"],
        *released["adjacent"],
    )
    yield _said(
        "It recognises {:.1f}% of them, {:.1f} ± {:.1f} points more than two-stage tuned and {:.1f} ± {:.1f} "
        "more than as "
        "released",
        own(FIVE, "unweave", "test_forget")[0],
        *apart(FIVE, "unweave", "test_forget", baseline="two-stage tuned")[:2],
        *apart(FIVE, "unweave", "test_forget", baseline="two-stage released")[:2],
    )
    step = apart(SMALLER, "unweave learning_rate=1e-3", "test_forget", baseline="unweave", variants=True)
    both = [
        own(SMALLER, who, "test_forget", baseline="unweave", variants=True)[0]
        for who in ("unweave learning_rate=1e-3", "unweave")
    ]
    yield _said(
        "{:.1f}% instead of {:.1f}%, which is {:.1f} ± {:.1f} points less (p = {:.2f} among four tests)", *both, *step
    )
    if count_tests(SMALLER, "erase", baseline="unweave", variants=True) != 4:
        raise ValueError("The page says that this table has four tests.")
    yield _said(
        "adjacent accuracy is {:.1f} points above the original's and remote accuracy {:.1f} below (the default: "
        "{:.1f} above, "
        "{:.1f} below)",
        *(
            sign * own(SMALLER, who, name, baseline="unweave", variants=True)[0]
            for who in ("unweave learning_rate=1e-3", "unweave")
            for name, sign in (("adjacent", 1), ("remote", -1))
        ),
    )
    yield _said(
        "PGD, which is two-stage without W₂, has two-stage's score and leaves {:.0f}% of the training images "
        "recognised",
        own(FIVE, "pgd", "train_forget")[0],
    )


def _five_retrain() -> Iterator[Sentence]:
    near = {who: own(RETRAIN, who, "tow_split")[0] for who in ("unweave", "retrain", "salun", "pgd")}
    yield _said(
        "the highest ToW split, {:.3f}, with two retrainings at {:.3f} from each other, but not their losses** "
        "({:.3f} from "
        "retrained models, they {:.3f}) **nor their RMIA distance** ({:.3f} and {:.3f})",
        near["unweave"],
        near["retrain"],
        *(own(RETRAIN, who, name)[0] for name in ("losses", "attack") for who in ("unweave", "retrain")),
    )
    yield _said(
        "SCRUB follows with a ToW that is {:.3f} ± {:.3f} lower (p = {:.2f}), then SalUn ({:.3f}) and PGD ({:.3f})",
        *apart(RETRAIN, "scrub", "tow_split", baseline="unweave"),
        near["salun"],
        near["pgd"],
    )
    yield _said(
        "It takes {:,.0f} sample gradients, the brief training included: a third",
        own(RETRAIN, "unweave", "gradients")[0],
    )
    yield _said(
        "its AUC is {:.3f} from that of retrained models, ℓ1-sparse's {:.3f}, SCRUB's and PGD's {:.3f}, "
        "retraining's own {:.3f}",
        *(own(RETRAIN, who, "attack")[0] for who in ("unweave", "l1-sparse", "scrub", "retrain")),
    )
    yield _said(
        "the first two are {:.3f} ± {:.3f} and {:.3f} ± {:.3f} nearer than `unweave`",
        *apart(RETRAIN, "scrub", "attack", baseline="unweave")[:2],
        *apart(RETRAIN, "pgd", "attack", baseline="unweave")[:2],
    )


def _digits() -> Iterator[Sentence]:
    yield _said(
        "fine-tuning leaves {:.1f}% of the unseen nines instead of {:.1f}%",
        *(at(f"digits/{study}", "ft", "test forget") for study in ("tuned", "all")),
    )


def _ten() -> Iterator[Sentence]:
    by = {
        (kind, name): apart(TEN, f"unweave {kind}", name, baseline="two-stage released")
        for kind in ("default", "tuned")
        for name in ("adjacent", "remote", "test_forget")
    }
    yield _said(
        "keeps {:.1f} ± {:.1f} points more of adjacent (p = {:.2f}) and {:.1f} ± {:.1f} more of remote test "
        "accuracy (p = "
        "{:.2f}), with half of the sample gradients; tuned, {:.1f} ± {:.1f} (p = {:.2f}) and {:.1f} ± {:.1f} (p "
        "= {:.2f}), with a "
        "quarter of them. Both recognise {:.1f}% of unseen images of the digit, two-stage {:.1f}%: {:.1f} ± "
        "{:.1f} and {:.1f} ± "
        "{:.1f} points more",
        *(value for kind in ("default", "tuned") for name in ("adjacent", "remote") for value in by[kind, name]),
        *(own(TEN, who, "test_forget")[0] for who in ("unweave default", "two-stage released")),
        *(value for kind in ("default", "tuned") for value in by[kind, "test_forget"][:2]),
    )
    yield _said("and GDR-GMA pays with {:.0f} points of adjacent accuracy", -own(TEN, "gdr", "adjacent")[0])


def _ten_retrain() -> Iterator[Sentence]:
    yield _said(
        "has the highest ToW ({:.3f}) and the nearest losses. Fine-tuning ({:.3f}) and ℓ1-sparse ({:.3f}) are "
        "not far: the "
        "difference from fine-tuning, digit by digit, is {:.3f} ± {:.3f}. By the RMIA attack ({:.3f}) it is "
        "about as near to "
        "retraining as two retrainings are to each other ({:.3f})",
        *(own(TEN_RETRAIN, who, "tow_split")[0] for who in ("unweave", "ft", "l1-sparse")),
        *apart(TEN_RETRAIN, "ft", "tow_split", baseline="unweave")[:2],
        *(own(TEN_RETRAIN, who, "attack")[0] for who in ("unweave", "retrain")),
    )
    yield _said(
        "its ToW is {:.3f} ± {:.3f} lower than `unweave`'s (p = {:.2f})",
        *apart(TEN_RETRAIN, "two-stage", "tow_split", baseline="unweave"),
    )
    yield _said("Two retrainings are at {:.3f} from each other", own(TEN_RETRAIN, "retrain", "tow_split")[0])


def _sentences() -> Iterator[Sentence]:
    study = "clinc150/all"
    yield _said(
        "The retrained model recognises {:.0f}% of the unseen sentences of an intent that it never saw",
        at(study, "retrain", "test forget"),
    )
    yield _said(
        "leaves nothing of the training sentences and {:.1f}% of the unseen ones (two-stage {:.1f}% and "
        "{:.1f}%), for {:.1f} "
        "points of adjacent test accuracy (two-stage gains {:.1f}) and {:.1f} of remote ({:.1f}). It takes "
        "{:,.0f} sample "
        "gradients, {:.0f}% of two-stage's {:,.0f}.",
        at(study, "unweave default", "test forget"),
        at(study, "two-stage released", "train forget"),
        at(study, "two-stage released", "test forget"),
        lost(study, "unweave default", "test adjacent"),
        -lost(study, "two-stage released", "test adjacent"),
        lost(study, "unweave default", "test remote"),
        lost(study, "two-stage released", "test remote"),
        gradients(study, "unweave default"),
        share(gradients(study, "unweave default"), gradients(study, "two-stage released")),
        gradients(study, "two-stage released"),
    )
    yield _said(
        "(tuned: `unweave` {:.1f}%, two-stage {:.1f}%)",
        *(at(study, f"{who} tuned", "test forget") for who in ("unweave", "two-stage")),
    )
    yield _said(
        "GDR-GMA is the method that tuning helps most: from {:.0f}% to {:.0f}% of adjacent test accuracy",
        *(at(study, f"gdr {profile}", "test adjacent") for profile in ("official", "tuned")),
    )
    study = "fashion-mnist/all"
    yield _said("a model that never saw a sandal calls {:.0f}% of them shoes", at(study, "retrain", "test forget"))
    yield _said(
        "Tuned, it loses {:.1f} points of the other shoes and {:.1f} of everything else; with its defaults "
        "{:.1f} and {:.1f}. "
        "Two-stage, tuned, leaves {:.0f}% and loses {:.1f} and {:.1f} (as released {:.1f} and {:.1f})",
        *(lost(study, f"unweave {profile}", place) for profile in ("tuned", "default") for place in WHERE[1:]),
        at(study, "two-stage tuned", "train forget"),
        *(lost(study, f"two-stage {profile}", place) for profile in ("tuned", "released") for place in WHERE[1:]),
    )


def _vit() -> Iterator[Sentence]:
    study, tuned = "cifar100-vit/all", "cifar100-vit/tuned"
    yield _said(
        "unseen adjacent ones {:.1f} points *above* it and remote ones {:.1f} below; {:.0f}% of unseen aquarium "
        "fish are "
        "recognised (retrained models: {:.0f}%). It takes {:,.0f} sample gradients.",
        -lost(study, "unweave", "test adjacent"),
        lost(study, "unweave", "test remote"),
        at(study, "unweave", "test forget"),
        at(study, "retrain", "test forget"),
        gradients(study, "unweave"),
    )
    yield _said(
        "{:.0f}% of the adjacent training images and {:.0f}% of unseen ones are left (the original: {:.0f}%)",
        at(study, "two-stage", "train adjacent"),
        at(study, "two-stage", "test adjacent"),
        at(study, "original", "test adjacent"),
    )
    yield _said(
        "**Two-stage gains most**: {:.0f}% of the adjacent training images and {:.0f}% of unseen ones (with the "
        "printed values "
        "{:.0f}% and {:.0f}%)",
        *(at(where, "two-stage", f"{part} adjacent") for where in (tuned, study) for part in ("train", "test")),
    )
    yield _said("nearly twice as long. It takes {:,.0f} sample gradients.", gradients(tuned, "two-stage"))


def _toxigen() -> Iterator[Sentence]:
    study, tuned = "toxigen-roberta/all", "toxigen-roberta/tuned"
    yield _said(
        "no training sentence is called normal any more, {:.0f}% of the unseen ones (before: {:.0f}%; "
        "retrained: {:.0f}%), for "
        "{:.1f} points of the unseen adjacent ones, which is one sentence of 44, and {:.1f} of the rest. It "
        "takes {:,.0f} sample "
        "gradients, {:.1f}% of two-stage's.",
        *(at(study, who, "test forget") for who in ("unweave", "original", "retrain")),
        *(lost(study, "unweave", place) for place in WHERE[1:]),
        gradients(study, "unweave"),
        share(gradients(study, "unweave"), gradients(study, "two-stage released")),
    )
    yield _said(
        "{:.0f}% of the sentences are left and {:.0f}% of unseen ones, as many as with `unweave`; of unseen "
        "neighbours it loses "
        "{:.1f} points",
        at(tuned, "scrub", "train forget"),
        at(tuned, "scrub", "test forget"),
        lost(tuned, "scrub", "test adjacent"),
    )
    yield _said(
        "It takes {:,.0f} sample gradients, {:.1f} times `unweave`'s.",
        gradients(tuned, "two-stage"),
        gradients(tuned, "two-stage") / gradients(tuned, "unweave"),
    )
