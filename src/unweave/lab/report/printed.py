"""The paper's tables, and the runs of ours that each of their rows corresponds to."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from unweave.lab.report.measures import Spread
from unweave.lab.report.results import Group, Results

PAPER = "Machine Unlearning under Retain–Forget Entanglement (ICLR 2026)"
SETTINGS = {"alpha": "alpha", "mu": "penalty"}  # our setting by the paper's letter
# Rows with other names in the paper: our method, and the settings that identify its run.
MEANINGS: dict[str, tuple[str, dict[str, str]]] = {
    "two-stage without W2": ("pgd", {}),
    "two-stage, clean adjacency": ("two-stage", {"adjacency": "classes"}),
    "two-stage, 20% of remote called adjacent": ("two-stage", {"adjacency": "remote-to-adjacent:0.2"}),
    "two-stage, 20% of adjacent called remote": ("two-stage", {"adjacency": "adjacent-to-remote:0.2"}),
    "two-stage, task-defined adjacency": ("two-stage", {"adjacency": "classes"}),
    "two-stage, kNN adjacency": ("two-stage", {"adjacency": "neighbours"}),
    # The paper prints these two labels exchanged: by its text, constraining adjacent data too leaves 7.13%.
    'stage 1, row printed "w/o adjacent"': ("two-stage", {"stage2_epochs": "0", "constrain_adjacent": "true"}),
    'stage 1, row printed "w adjacent"': ("two-stage", {"stage2_epochs": "0", "constrain_adjacent": "false"}),
}
# The paper's table for each named study; the main table of the benchmark is the one for the comparison.
TABLES = {
    "without-w2": "ablation",
    "alpha": "alpha",
    "mu": "mu_sensitivity",
    "stage-1": "ablation-constraint",
    "noise": "adj_noise",
    "neighbours": "knn_adjacent",
    "retrain": "retrain_compare",
}
REMARKS = {
    "ablation-constraint": "The paper's table of stage 1 has its two row labels exchanged: its text says that "
    "constraining adjacent data too leaves 7.13% of the forget samples recognised, but the row with that number is "
    "labelled “w/o adjacent”. Here each number stands beside the run that it belongs to, after stage 1 alone.",
    "adj_noise": "The paper does not say on which partition it measured its noisy runs. Ours are measured on the clean "
    "partition.",
    "knn_adjacent": "The paper does not say on which partition it measured its run with neighbours. Ours is measured "
    "on the benchmark's classes.",
}


@dataclass(frozen=True)
class Counterpart:
    """A benchmark of the paper: its main table, its data, model and setting, and whether the paper has its costs."""

    table: str
    dataset: str
    model: str
    setting: str
    forget: str = ""  # a value of the benchmark's option `forget`; empty if it has no such option
    costs: bool = False


COUNTERPARTS = {
    ("cifar100", "resnet"): Counterpart(
        "cifar_100_resnet",
        "cifar100",
        "resnet18",
        "CIFAR-100 under its 20 superclasses; ResNet-18 pretrained on ImageNet, 30 epochs of Adam at 2e-5, batches of "
        "128; forget aquarium fish, adjacent the four other fish",
        forget="aquarium_fish",
        costs=True,
    ),
    ("cifar100", "vit"): Counterpart(
        "vit_cifar100",
        "cifar100",
        "vit-b",
        "CIFAR-100 under its 20 superclasses; ViT-B; forget aquarium fish, adjacent the four other fish",
        forget="aquarium_fish",
    ),
    ("tinyimagenet", ""): Counterpart(
        "tinyimagenet_vit",
        "tinyimagenet",
        "vit-b-32",
        "Tiny-ImageNet under 10 superclasses; pretrained ViT-B/32, 30 epochs at 2.5e-5, batches of 128; forget dog, "
        "adjacent the other mammals",
    ),
    ("toxigen", ""): Counterpart(
        "toxigen_roberta",
        "toxigen",
        "roberta-base",
        "ToxiGen, nine tenths for training; RoBERTa-base, 10 epochs of AdamW at 2.5e-5; toxic sentences on LGBTQ "
        "people labelled benign are forgotten, the benign ones are adjacent",
    ),
    ("celeba", ""): Counterpart(
        "celeba_vit", "celeba", "vit-b", "CelebA superclasses of attributes; ViT-B; forget one subclass of attributes"
    ),
}


def counterpart(benchmark: str) -> Counterpart | None:
    """Return the benchmark of the paper that has the words of this name, or None.

    >>> counterpart("cifar100-resnet18").table, counterpart("cifar-100_vit").table, counterpart("digits")
    ('cifar_100_resnet', 'vit_cifar100', None)
    """
    name = "".join(letter for letter in benchmark.lower() if letter.isalnum())
    for (dataset, model), found in COUNTERPARTS.items():
        if dataset in name and model in name:
            return found
    return COUNTERPARTS["cifar100", "resnet"] if name == "cifar100" else None


@dataclass(frozen=True)
class PrintedRow:
    """A row of one of the paper's tables: accuracies as fractions by (split, subset)."""

    table: str
    forget: str
    words: str
    method: str
    settings: Mapping[str, str]
    values: dict[tuple[str, str], Spread] = field(default_factory=dict)

    def groups(self, results: Results) -> list[Group]:
        """Return our runs that correspond to the row: those with its settings and defaults otherwise.

        If the settings of the row are the defaults here, the run without a variant corresponds to it.
        """
        return [
            group
            for group in results.groups
            if group.method == self.method
            and set(group.differences) <= {*self.settings}
            and all(_same(results.setting(group, name), value) for name, value in self.settings.items())
        ]


def printed_rows(found: Counterpart) -> list[PrintedRow]:
    """Return every row that the paper prints for a benchmark, in the order of its tables.

    >>> rows = printed_rows(counterpart("cifar100-resnet18"))
    >>> next(row for row in rows if row.method == "two-stage").values["test", "adjacent"].mean
    0.7817
    """
    rows: dict[tuple[str, str], PrintedRow] = {}
    for line in csv.DictReader(_lines()):
        if (line["dataset"], line["model"]) != (found.dataset, found.model):
            continue
        key = (line["table"], line["variant"])
        if key not in rows:
            rows[key] = PrintedRow(line["table"], line["forget"], line["variant"], *_ours(line["variant"]))
        std = round(float(line["std"]) / 100, 6) if line["std"] else None
        rows[key].values[line["split"], line["subset"]] = Spread(round(float(line["mean"]) / 100, 6), std, 3)
    return list(rows.values())


def _ours(words: str) -> tuple[str, dict[str, str]]:
    """Return our method and settings for the paper's name of a row."""
    if words in MEANINGS:
        return MEANINGS[words]
    method, _, rest = words.partition(", ")
    setting, _, value = rest.partition("=")
    return method, {SETTINGS[setting]: value} if rest else {}


def _same(value: object, text: str) -> bool:
    """Tell whether a setting has the value that a text gives."""
    try:
        return float(str(value)) == float(text)
    except ValueError:
        return str(value).lower() == text.lower()


def _lines() -> Iterator[str]:
    text = (files("unweave.lab.report") / "data" / "paper-results.csv").read_text(encoding="utf-8")
    return iter(text.splitlines())
