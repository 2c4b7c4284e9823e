"""More sentences of the results: other benchmarks than ResNet-18 on CIFAR-100, attacks, times, single classes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from places import RESULTS, TUNED
from sentence_values import at, each, gradients, lost, mean_of, own, share
from sentences import RESULT_PAGES, Sentence

LARGE = "cifar100-resnet18/all"
FIVE, RETRAIN = "cifar100-resnet18/each", "cifar100-resnet18/each-retrain"
FASHION, FEWER, CLINC = "fashion-mnist/all", "fashion-mnist/fewer-gradients", "clinc150/all"
VIT, VIT_TUNED, TINY, CELEBA = "cifar100-vit/all", "cifar100-vit/tuned", "tinyimagenet-vit/all", "celeba-vit/all"
TOXIGEN, TOXIGEN_TUNED = "toxigen-roberta/all", "toxigen-roberta/tuned"
TEN_RETRAIN = "digits/each-retrain"
KEPT = ("adjacent", "remote")


def others() -> Iterator[Sentence]:
    """Yield the sentences."""
    for part in (_large, _five, _small, _vit, _tiny, _celeba, _toxigen, _ten, _tuning):
        yield from part()


def _said(phrase: str, *values: float) -> Sentence:
    return Sentence(RESULT_PAGES, phrase, values)


def _large() -> Iterator[Sentence]:
    near = "two-stage adjacency=neighbours"
    noise = [f"two-stage adjacency={kind}:0.2" for kind in ("remote-to-adjacent", "adjacent-to-remote")]
    stage = "two-stage stage2_epochs=0 constrain_adjacent=true"
    yield _said("instead of the superclass: {:.1f}% of the forget data", at(LARGE, near, "train forget"))
    yield _said(
        "leaves {:.1f}% and {:.1f}% of the forget data recognised", *(at(LARGE, who, "train forget") for who in noise)
    )
    yield _said("that holds adjacent data too leaves {:.1f}% of the forget data", at(LARGE, stage, "train forget"))
    bee = "cifar100-resnet18-bee/all"
    yield _said(
        "without the Wasserstein term {:.1f}% of the bees come back", at(bee, "two-stage alpha=0", "train forget")
    )
    attacked = ("train forget", "mia_svc_confidence")
    yield _said("of a retrained model it is {:.0f}%", 100 * mean_of(LARGE, "retrain", *attacked))
    aucs = [mean_of(LARGE, "unweave", "train forget", f"mia_{kind}_auc") for kind in ("population", "rmia")]
    yield _said(
        "than unseen ones of the class ({:.2f} and {:.2f}), GDR-GMA much less ({:.2f})",
        *aucs,
        mean_of(LARGE, "gdr", "train forget", "mia_population_auc"),
    )
    times = json.loads((RESULTS / "speed/h200/methods.json").read_text())["compile"]["off"]
    parts = [share(times[who]["seconds"], times["retrain"]["seconds"]) for who in ("two-stage", "unweave")]
    yield _said("**Two-stage takes {:.0f}% of retraining's time**", parts[0])
    yield _said("with the same data on the device. `unweave` takes {:.0f}%", parts[1])


def _five() -> Iterator[Sentence]:
    rose = [at(f"{FIVE}/rose", who, "test forget") for who in ("original", "unweave", "two-stage tuned", "salun")]
    yield _said("what is left of the original's {:.0f}% is {:.0f}% (two-stage {:.0f}%, SalUn {:.0f}%)", *rose)
    retrained = each(RETRAIN, "retrain", "train forget")
    yield _said(
        "though a retrained model recognises {:.0f}% of the bottles and {:.0f}% of the roses",
        retrained["bottle"],
        retrained["rose"],
    )
    both = [
        sum(each(RETRAIN, who, f"{part} forget").values()) / 5
        for part in ("train", "test")
        for who in ("unweave", "retrain")
    ]
    yield _said(
        "as many are recognised as by a retrained model ({:.1f}% and {:.1f}%), but of *unseen* ones fewer "
        "({:.1f}% and "
        "{:.1f}%)",
        *both,
    )


def _small() -> Iterator[Sentence]:
    yield _said("as on CIFAR-100; tuned, {:.0f}% and six points", at(CLINC, "pgd tuned", "train forget"))
    yield _said(
        "found settings for SCRUB ({:.0f}% left, {:.0f} points of the other shoes)",
        at(FASHION, "scrub tuned", "train forget"),
        lost(FASHION, "scrub tuned", "test adjacent"),
    )
    yield _said("took {:.1f} million sample gradients for this", gradients(FASHION, "unweave default") / 1e6)
    yield _said(
        "**the same accuracies with {:,.0f} sample gradients** ({:.1f} / {:.1f} / {:.1f}% of training and "
        "{:.1f} / {:.1f} / "
        "{:.1f}% of test data with its defaults, tuned {:.1f} / {:.1f} / {:.1f} and {:.1f} / {:.1f} / {:.1f} "
        "with {:,.0f}",
        gradients(FEWER, "unweave default"),
        *(
            at(FEWER, f"unweave {kind}", f"{part} {subset}")
            for kind in ("default", "tuned")
            for part in ("train", "test")
            for subset in ("forget", *KEPT)
        ),
        gradients(FEWER, "unweave tuned"),
    )


def _vit() -> Iterator[Sentence]:
    yield _said(
        "Ours fits its training data as that one does ({:.1f}%), and knows unseen images as a transformer without "
        "pretraining does: {:.0f} / {:.0f} / {:.0f}%",
        at(VIT, "original", "train remote"),
        *(at(VIT, "original", f"test {subset}") for subset in ("forget", *KEPT)),
    )
    yield _said(
        "nothing is paid. It takes {:,.0f} sample gradients. By ToW with separate factors it is the nearest to "
        "retrained "
        "models ({:.2f}; `unweave` {:.2f}, retraining itself {:.2f})",
        gradients(VIT, "scrub"),
        *(mean_of(VIT, who, "", "tow_split") for who in ("scrub", "unweave", "retrain")),
    )
    yield _said(
        "**SalUn** {:.0f}; it leaves {:.0f}%", lost(VIT, "salun", "test adjacent"), at(VIT, "salun", "train forget")
    )
    yield _said(
        "keeps the neighbours and leaves {:.0f}%, for {:.0f} points of remote training accuracy",
        at(VIT, "munba", "train forget"),
        lost(VIT, "munba", "train remote"),
    )
    yield _said("half a point more of remote unseen ones, with {:,.0f}", gradients(VIT_TUNED, "unweave"))
    yield _said("With its defaults it kept {:.0f}% of the adjacent", at(VIT, "unweave", "train adjacent"))
    yield _said(
        "as released, leaves {:.1f}% and loses {:.0f} points of the unseen neighbours",
        at(VIT_TUNED, "pgd", "train forget"),
        lost(VIT_TUNED, "pgd", "test adjacent"),
    )


def _tiny() -> Iterator[Sentence]:
    yield _said(
        "the original is a weaker model: {:.0f} / {:.0f} / {:.0f}% on unseen images",
        *(at(TINY, "original", f"test {subset}") for subset in ("forget", *KEPT)),
    )
    yield _said("and it fits {:.0f}% of what it is to forget", at(TINY, "original", "train forget"))
    yield _said(
        "it recognises none of them and {:.0f}% of unseen dogs (retraining: {:.0f}%), for {:.0f} points of "
        "adjacent and {:.0f} "
        "of remote test accuracy; of adjacent *training* images it recognises {:.0f}%",
        at(TINY, "unweave tuned", "test forget"),
        at(TINY, "retrain", "test forget"),
        *(lost(TINY, "unweave tuned", f"test {subset}") for subset in KEPT),
        at(TINY, "unweave tuned", "train adjacent"),
    )
    yield _said(
        "it forgets more ({:.0f}% of unseen dogs) and pays with {:.0f} points of the neighbours",
        at(TINY, "unweave default", "test forget"),
        lost(TINY, "unweave default", "test adjacent"),
    )
    yield _said("stage 1 leaves it**: adjacent accuracy {:.0f}%", at(TINY, "two-stage paper", "train adjacent"))
    yield _said("four times as many bring {:.0f}% back", at(TINY, "two-stage paper stage2_epochs=23", "train adjacent"))
    yield _said(
        "buys neighbours ({:.0f}% of unseen ones, {:.0f} points *above* the original) with {:.0f} points of "
        "remote accuracy, and "
        "forgets little: {:.0f}% of unseen dogs are recognised, of the original's {:.0f}%",
        at(TINY, "two-stage tuned", "test adjacent"),
        -lost(TINY, "two-stage tuned", "test adjacent"),
        lost(TINY, "two-stage tuned", "test remote"),
        *(at(TINY, who, "test forget") for who in ("two-stage tuned", "original")),
    )
    yield _said(
        "(FT from {:.0f}% to {:.0f}% of adjacent images)",
        *(at(TINY, who, "train adjacent") for who in ("original", "ft paper")),
    )
    yield _said(
        "a model that never saw a dog calls {:.0f}% of the training dogs mammals, and {:.0f}% of unseen ones",
        *(at(TINY, "retrain", f"{part} forget") for part in ("train", "test")),
    )
    yield _said(
        "GDR-GMA with the printed values is the nearest ({:.2f} split, retraining itself {:.2f})",
        *(mean_of(TINY, who, "", "tow_split") for who in ("gdr paper", "retrain")),
    )


def _celeba() -> Iterator[Sentence]:
    yield _said(
        "The original fits {:.0f} / {:.0f} / {:.0f}% of its training data",
        *(at(CELEBA, "original", f"train {subset}") for subset in ("forget", *KEPT)),
    )
    yield _said(
        "a model that never saw the forget faces recognises {:.0f}% of them. `unweave` forgets every training "
        "face and pays "
        "with {:.0f} points of the neighbours, two-stage leaves {:.0f}% and pays with {:.0f}, both on unseen "
        "faces; PGD leaves "
        "{:.0f}%",
        at(CELEBA, "retrain", "train forget"),
        lost(CELEBA, "unweave default", "test adjacent"),
        at(CELEBA, "two-stage released", "train forget"),
        lost(CELEBA, "two-stage released", "test adjacent"),
        at(CELEBA, "pgd released", "train forget"),
    )
    yield _said(
        "grows from the original's {:.0f} points to {:.0f} (`unweave`), {:.0f} (two-stage) and {:.0f} (PGD). "
        "`unweave` gains "
        "{:.0f} points of remote test accuracy on the way, two-stage loses {:.1f}",
        *(
            at(CELEBA, who, "test adjacent") - at(CELEBA, who, "test forget")
            for who in ("original", "unweave default", "two-stage released", "pgd released")
        ),
        -lost(CELEBA, "unweave default", "test remote"),
        lost(CELEBA, "two-stage released", "test remote"),
    )
    yield _said(
        "keeps {:.0f}% of the unseen neighbours (the original: {:.0f}%) and recognises {:.0f}% of the unseen "
        "forget faces, for "
        "{:.1f} points of remote accuracy",
        at(CELEBA, "two-stage tuned", "test adjacent"),
        at(CELEBA, "original", "test adjacent"),
        at(CELEBA, "two-stage tuned", "test forget"),
        lost(CELEBA, "two-stage tuned", "test remote"),
    )
    yield _said(
        "goes the other way, to {:.0f}% and {:.0f}%",
        *(at(CELEBA, "pgd tuned", f"test {subset}") for subset in ("forget", "adjacent")),
    )
    yield _said(
        "MUNBa tuned ({:.2f}) and SCRUB ({:.2f}) are the nearest to retrained models (retraining itself {:.2f})",
        *(mean_of(CELEBA, who, "", "tow_split") for who in ("munba tuned", "scrub released", "retrain")),
    )


def _toxigen() -> Iterator[Sentence]:
    yield _said(
        "as many steps as there forgets as much ({:.0f}% of unseen ones) and pays with {:.1f} points of the "
        "neighbours; without "
        "the Wasserstein term (PGD), {:.1f}",
        at(TOXIGEN, "two-stage released", "test forget"),
        *(lost(TOXIGEN, f"{who} released", "test adjacent") for who in ("two-stage", "pgd")),
    )
    yield _said("leaves {:.0f}% of the toxic sentences normal", at(TOXIGEN, "retrain", "train forget"))
    yield _said("the original fits its data ({:.1f}%)", at(TOXIGEN, "original", "train forget"))
    yield _said("**GDR-GMA** forgets half, for {:.0f} points", lost(TOXIGEN, "gdr", "test adjacent"))
    yield _said("one seed of three. It takes {:,.0f} sample gradients", gradients(TOXIGEN_TUNED, "scrub"))
    yield _said(
        "recognises the fewest unseen ones ({:.0f}%). It pays with {:.0f} points of unseen neighbours, as "
        "released does, and "
        "{:.0f} of trained ones (released: {:.1f})",
        at(TOXIGEN_TUNED, "two-stage", "test forget"),
        lost(TOXIGEN_TUNED, "two-stage", "test adjacent"),
        lost(TOXIGEN_TUNED, "two-stage", "train adjacent"),
        lost(TOXIGEN, "two-stage released", "train adjacent"),
    )


def _ten() -> Iterator[Sentence]:
    spent = [own(TEN_RETRAIN, who, "gradients")[0] for who in ("unweave", "ft", "l1-sparse", "retrain")]
    yield _said("What tuning chose takes {:,.0f} sample gradients", round(spent[0], -3))
    yield _said("fine-tuning and ℓ1-sparse take {:,.0f} and {:,.0f}", *(round(value, -3) for value in spent[1:3]))
    yield _said("(Retraining itself takes {:,.0f}", round(spent[3], -3))


def _tuning() -> Iterator[Sentence]:
    def chosen(name: str, who: str, what: str = "score") -> float:
        return float(json.loads((TUNED / f"{name}.json").read_text())["methods"][who][what])

    def said(phrase: str, *values: float) -> Sentence:
        return Sentence("docs/tuning.md", phrase, values)

    celeba = {who: chosen("celeba-vit", who) for who in ("unweave", "pgd", "two-stage", "gdr")}
    yield said("`unweave` scores highest: {:.3f} with its defaults, which recognise", celeba["unweave"])
    yield said("PGD ({:.3f}; 30% and 62%), two-stage ({:.3f}) and GDR-GMA ({:.3f} with", *list(celeba.values())[1:])
    yield said(
        "`unweave` scores highest ({:.3f}; {:.3f} with its defaults), then SCRUB with its authors' values "
        "({:.3f}), two-stage "
        "({:.3f}; {:.3f} as released) and PGD ({:.3f} as released)",
        chosen("cifar100-vit", "unweave"),
        chosen("cifar100-vit", "unweave", "default_score"),
        chosen("cifar100-vit", "scrub"),
        chosen("cifar100-vit", "two-stage"),
        chosen("cifar100-vit", "two-stage", "default_score"),
        chosen("cifar100-vit", "pgd"),
    )
    yield said(
        "Two-stage scores highest ({:.3f}; {:.3f} as released), then GDR-GMA with the paper's values ({:.3f}), "
        "SCRUB with its "
        "authors' ({:.3f}) and `unweave` ({:.3f}; {:.3f} with its defaults)",
        chosen("toxigen-roberta", "two-stage"),
        chosen("toxigen-roberta", "two-stage", "default_score"),
        chosen("toxigen-roberta", "gdr"),
        chosen("toxigen-roberta", "scrub"),
        chosen("toxigen-roberta", "unweave"),
        chosen("toxigen-roberta", "unweave", "default_score"),
    )
    tiger, retrain = "cifar100-resnet18", "cifar100-resnet18-retrain"
    yield said(
        "`unweave` scores highest for both goals: {:.3f} with its defaults for *erase*, and {:.3f} for "
        "*retrain*. PGD ({:.3f}) "
        "and two-stage ({:.3f}; {:.3f} as released) follow for *erase*, SCRUB ({:.3f}) and SalUn ({:.3f}) for "
        "*retrain*",
        chosen(tiger, "unweave"),
        chosen(retrain, "unweave"),
        chosen(tiger, "pgd"),
        chosen(tiger, "two-stage"),
        chosen(tiger, "two-stage", "default_score"),
        chosen(retrain, "scrub"),
        chosen(retrain, "salun"),
    )
    yield _said(
        "On 50 held-out forget sentences two-stage ({:.3f}), GDR-GMA ({:.3f}, as printed) and SCRUB ({:.3f}) "
        "were ahead of "
        "`unweave` ({:.3f})",
        *(chosen("toxigen-roberta", who) for who in ("two-stage", "gdr", "scrub", "unweave")),
    )
