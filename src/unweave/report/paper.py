"""The numbers that the paper prints, beside ours, where a benchmark has a counterpart in the paper."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from unweave.report.grids import Column, Entry, Grid, Row
from unweave.report.measures import ARROWS, SPLITS, SUBSETS, Place, Spread
from unweave.report.results import Results

PAPER = "Machine Unlearning under Retain–Forget Entanglement (ICLR 2026)"
CELLS = tuple((split, subset) for split in SPLITS for subset in SUBSETS)
# What stands in the paper under another name than here. Its letter mu is our setting `penalty`.
RENAMED = {"two-stage without W2": ("pgd", "")}
SETTINGS = {"alpha": "alpha", "mu": "penalty"}


@dataclass(frozen=True)
class Counterpart:
    """A benchmark of the paper: its main table, what it was measured on, and how costs were measured."""

    table: str
    dataset: str
    model: str
    setting: str
    costs: bool = False


COUNTERPARTS = {
    ("cifar100", "resnet"): Counterpart(
        "cifar_100_resnet",
        "cifar100",
        "resnet18",
        "CIFAR-100 under its 20 superclasses; ResNet-18 pretrained on ImageNet, 30 epochs of Adam at 2e-5, batches of "
        "128; forget aquarium fish, adjacent the four other fish",
        costs=True,
    ),
    ("cifar100", "vit"): Counterpart(
        "vit_cifar100",
        "cifar100",
        "vit-b",
        "CIFAR-100 under its 20 superclasses; ViT-B; forget aquarium fish, adjacent the four other fish",
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
    """Return the paper's counterpart of a benchmark, by the words of its name.

    >>> counterpart("cifar100-resnet18").table, counterpart("cifar-100_vit").table, counterpart("digits")
    ('cifar_100_resnet', 'vit_cifar100', None)
    """
    name = "".join(letter for letter in benchmark.lower() if letter.isalnum())
    for (dataset, model), found in COUNTERPARTS.items():
        if dataset in name and model in name:
            return found
    return COUNTERPARTS["cifar100", "resnet"] if name == "cifar100" else None


def printed(found: Counterpart) -> dict[tuple[str, str], dict[tuple[str, str], Spread]]:
    """Return the paper's accuracies as fractions, by our (method, variant) and by (split, subset).

    >>> printed(counterpart("cifar100-resnet18"))["two-stage", ""]["train", "forget"].mean
    0.0
    """
    numbers: dict[tuple[str, str], dict[tuple[str, str], Spread]] = {}
    rows = list(csv.DictReader(_data("paper-results.csv").splitlines()))
    # The benchmark's own table first; others fill what it does not have, such as retraining and other settings.
    for row in sorted(rows, key=lambda row: row["table"] != found.table):
        same = (row["dataset"], row["model"]) == (found.dataset, found.model)
        name = _ours(row["variant"])
        if same and name is not None:
            std = float(row["std"]) / 100 if row["std"] else None
            spread = Spread(float(row["mean"]) / 100, std, 3)
            numbers.setdefault(name, {}).setdefault((row["split"], row["subset"]), spread)
    return numbers


def _ours(variant: str) -> tuple[str, str] | None:
    """Return our (method, variant) for the paper's name of a row; None where a study has no such row."""
    if variant in RENAMED:
        return RENAMED[variant]
    method, _, rest = variant.partition(", ")
    setting, _, value = rest.partition("=")
    if not rest:
        return method, ""
    return (method, f"{SETTINGS[setting]}={value}") if setting in SETTINGS else None


def paper_notes(results: Results) -> list[str]:
    """Say what the two columns have in common and what not."""
    found = counterpart(results.benchmark)
    if found is None:
        return [
            f"The paper has no benchmark like {results.benchmark}, so there is nothing to put beside these numbers."
        ]
    summary = results.about.get("summary") or results.about.get("description") or ""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    here = "; ".join(part for part in (str(summary), f"{len(results.seeds)} seeds", versions) if part)
    notes = [
        f"The paper: {PAPER}. {found.setting}; three seeds; standard deviations as printed.",
        f"Here: benchmark {results.benchmark}, {here}; unweave trained the models anew, so the starting points differ.",
    ]
    if any(group.variant.startswith("alpha=") for group in results.groups):
        notes.append("The paper's rows for alpha are on another forget set of CIFAR-100 (bee).")
    start = _start(results, found)
    return notes + ([start] if start else [])


def _start(results: Results, found: Counterpart) -> str:
    """Say by how much the originals differ, before anything is forgotten."""
    theirs = printed(found).get(("original", ""), {})
    parts = []
    for cell in CELLS:
        mine = results.mean(results.reference("original"), Place(*cell, "accuracy"))
        if mine is not None and cell in theirs:
            parts.append(f"{' '.join(cell)} {100 * mine:.1f}% here, {100 * theirs[cell].mean:.1f}% in the paper")
    return f"The originals: {'; '.join(parts)}." if parts else ""


def paper_grid(results: Results) -> Grid | None:
    """Return the table of our accuracies beside the paper's; None where the benchmark has no counterpart."""
    found = counterpart(results.benchmark)
    if found is None:
        return None
    theirs = printed(found)
    ours = {(group.method, group.variant): group for group in results.groups}
    own_table = [name for name in theirs if not name[1]]
    names = list(dict.fromkeys([*own_table, *(name for name in theirs if name in ours)]))
    rows, records = [], []
    for name in names:
        entries: list[Entry] = []
        for split, subset in CELLS:
            mine = results.spread(ours.get(name), Place(split, subset, "accuracy"))
            printed_one = theirs[name].get((split, subset))
            failed = mine is None and name in ours and results.failures_of(ours[name])
            entries += [Entry("failed") if failed else _entry(mine), _entry(printed_one)]
            records.append(_record(name, split, subset, mine, printed_one))
        rows.append(Row(" ".join(part for part in name if part), tuple(entries)))
    columns = [
        Column(f"{subset} {ARROWS['lower' if subset == 'forget' else 'higher']} {side}", split)
        for split, subset in CELLS
        for side in ("ours", "paper")
    ]
    title = f"Accuracy in % beside the paper's · {results.benchmark}"
    return Grid("paper", title, tuple(columns), tuple(rows), records, tuple(paper_notes(results)))


def cost_grid(results: Results) -> Grid | None:
    """Return the table of our costs beside the paper's; None where the paper prints none for the benchmark."""
    found = counterpart(results.benchmark)
    if found is None or not found.costs:
        return None
    costs = json.loads(_data("paper-costs.json"))
    minutes, memory = costs["run_time_minutes_rtx3090_cifar100_resnet18"], costs["gpu_memory_mb_batch128"]
    efficacy = {"two_stage": costs["mia_efficacy_two_stage_cifar100"]}
    plans = [
        ("minutes", Place("", "", "seconds"), minutes, 60.0),
        ("accelerator memory in MB", Place("", "", "peak_memory_bytes"), memory, 1e6),
        ("confidence attack: called non-members", Place("train", "forget", "mia_svc_confidence"), efficacy, 1.0),
    ]
    groups = [group for group in results.groups if not group.variant]
    rows, records = [], []
    for group in groups:
        entries, record = [], dict[str, Any](method=group.method, profile=group.profile)
        for heading, place, theirs, scale in plans:
            mine, printed_one = results.mean(group, place), theirs.get(group.method.replace("-", "_"))
            entries += [_plain(None if mine is None else mine / scale), _plain(printed_one)]
            stem = heading.split(":")[0].replace(" ", "_")
            record |= {f"{stem}_ours": None if mine is None else mine / scale, f"{stem}_paper": printed_one}
        rows.append(Row(results.label(group), tuple(entries)))
        records.append(record)
    columns = tuple(Column(side, heading) for heading, *_ in plans for side in ("ours", "paper"))
    note = "The paper measured time and memory on an RTX 3090 with batches of 128; other hardware gives other numbers."
    return Grid("paper-cost", f"Cost beside the paper's · {results.benchmark}", columns, tuple(rows), records, (note,))


def _record(
    name: tuple[str, str], split: str, subset: str, mine: Spread | None, theirs: Spread | None
) -> dict[str, Any]:
    return {
        "method": name[0],
        "variant": name[1],
        "split": split,
        "subset": subset,
        "ours_mean": mine.mean if mine else None,
        "ours_std": mine.deviation if mine else None,
        "paper_mean": theirs.mean if theirs else None,
        "paper_std": theirs.deviation if theirs else None,
        "difference": mine.mean - theirs.mean if mine and theirs else None,
    }


def _entry(spread: Spread | None) -> Entry:
    return Entry(spread.text("accuracy") if spread else "–")


def _plain(value: float | None) -> Entry:
    return Entry("–" if value is None else f"{value:,.2f}")


def _data(name: str) -> str:
    return (files("unweave.report") / "data" / name).read_text(encoding="utf-8")
