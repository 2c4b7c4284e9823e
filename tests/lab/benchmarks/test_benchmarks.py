"""Every benchmark: its hierarchy, the sizes of its split, and a run from end to end on data of the right schema."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch
from typer.testing import CliRunner

from tests.helpers import synthetic
from tests.helpers.folders import configuration
from unweave.cli import app
from unweave.errors import UsageError
from unweave.lab.benchmarks import BENCHMARKS, celeba, cifar100, clinc150, fashion_mnist, find_benchmark, tinyimagenet
from unweave.lab.benchmarks import text as texts
from unweave.lab.benchmarks import toxigen as toxigen_module
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.sources import DataPart, Source
from unweave.methods import find_method


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNWEAVE_CACHE", str(tmp_path / "cache"))


# Hierarchies


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cifar100", [5] * 20),
        ("tinyimagenet", [27, 10, 23, 21, 42, 28, 18, 20, 6, 5]),  # the paper's, with furniture 28
        ("fashion_mnist", [4, 3, 1, 1, 1]),
        ("clinc150", [15] * 10),
    ],
)
def test_every_class_has_one_superclass(name, sizes):
    hierarchy = Hierarchy.load(name)
    assert len(set(hierarchy.classes)) == len(hierarchy.classes) == sum(sizes)
    assert [len(hierarchy.members(superclass)) for superclass in hierarchy.superclasses] == sizes
    assert len(hierarchy.parent) == len(hierarchy.classes)


def test_tinyimagenet_is_in_the_order_of_its_wordnet_numbers():
    hierarchy = Hierarchy.load("tinyimagenet")
    assert list(hierarchy.codes) == sorted(hierarchy.codes)
    dogs = [hierarchy.classes[place] for place in tinyimagenet.DOG_CLASSES]
    assert dogs[0] == "Chihuahua"
    assert dogs[-1] == "standard poodle"
    assert len(set(dogs) & set(hierarchy.members("mammals"))) == 6
    assert hierarchy.superclasses[0] == "mammals"
    assert hierarchy.superclasses[5] == "furniture"


# Sizes of the splits, from label lists as long as the real ones


def labels_only(monkeypatch, module, parts):
    """Let a benchmark read these columns, and no images."""
    tables = {part: pa.table(columns) for part, columns in parts.items()}
    monkeypatch.setattr(
        Source, "read", lambda self, data, part, **_: DataPart(table=tables[part], fingerprint=f"labels of {part}")
    )
    if hasattr(module, "decode_images"):
        monkeypatch.setattr(module, "decode_images", lambda part, *_, **__: np.zeros((len(part), 1, 1, 1), np.uint8))


def sizes(task):
    return [[len(split[subset]) for subset in ("forget", "adjacent", "remote")] for split in (task.train, task.test)]


@pytest.mark.parametrize("forget", ["aquarium_fish", "bee"])
def test_sizes_of_cifar100(monkeypatch, forget):
    hierarchy = Hierarchy.load("cifar100")
    fine = {"train": np.tile(np.arange(100), 500), "test": np.tile(np.arange(100), 100)}
    columns = {part: {"fine_label": f, "coarse_label": hierarchy.labels(f)} for part, f in fine.items()}
    labels_only(monkeypatch, cifar100, columns)
    task = find_benchmark("cifar100-vit", options={"forget": forget}).load()
    assert sizes(task) == [[500, 2_000, 47_500], [100, 400, 9_500]]
    adjacent = {task.fine_names[task.fine[row]] for row in task.train.adjacent}
    superclass = next(name for name in hierarchy.superclasses if forget in hierarchy.members(name))
    assert adjacent == {*hierarchy.members(superclass)} - {forget}


def test_sizes_of_tinyimagenet(monkeypatch):
    columns = {part: {"label": np.repeat(np.arange(200), each)} for part, each in (("train", 500), ("valid", 50))}
    labels_only(monkeypatch, tinyimagenet, columns)
    task = find_benchmark("tinyimagenet-vit").load()
    assert sizes(task) == [[3_000, 10_500, 86_500], [300, 1_050, 8_650]]


def test_sizes_of_fashion_mnist(monkeypatch):
    columns = {part: {"label": np.tile(np.arange(10), each)} for part, each in (("train", 6_000), ("test", 1_000))}
    labels_only(monkeypatch, fashion_mnist, columns)
    assert sizes(find_benchmark("fashion-mnist").load()) == [[6_000, 12_000, 42_000], [1_000, 2_000, 7_000]]
    coats = find_benchmark("fashion-mnist", options={"forget": "coat"}).load()
    assert sizes(coats) == [[6_000, 18_000, 36_000], [1_000, 3_000, 6_000]]


def test_sizes_of_clinc150(monkeypatch):
    intents = [*Hierarchy.load("clinc150").classes]
    columns = {
        part: {"text": ["what"] * 150 * each + ["?"], "intent": intents * each + ["oos"]}
        for part, each in (("train", 100), ("test", 30))
    }
    labels_only(monkeypatch, clinc150, columns)
    monkeypatch.setattr(clinc150, "encode", lambda texts, *_, **__: texts_as_zeros(texts))
    assert sizes(find_benchmark("clinc150").load()) == [[100, 1_400, 13_500], [30, 420, 4_050]]


def texts_as_zeros(texts):
    return {part: {"input_ids": torch.zeros(len(sentences), 1)} for part, sentences in texts.items()}


# Sentences of the annotated part by group, normal and toxic.
ANNOTATED = {
    "asian": (471, 231),
    "black": (421, 292),
    "chinese": (457, 249),
    "jewish": (394, 290),
    "latino": (319, 235),
    "lgbtq": (436, 278),
    "mental_dis": (474, 240),
    "mexican": (433, 251),
    "middle_east": (427, 270),
    "muslim": (436, 252),
    "native_american": (449, 253),
    "physical_dis": (429, 256),
    "women": (446, 271),
}


def test_sizes_and_labels_of_toxigen(monkeypatch):
    kinds = [(group, bad) for group, counts in ANNOTATED.items() for bad in (0, 1) for _ in range(counts[bad])]
    rating = [1.0 + 2.0 * bad for _, bad in kinds]  # 2 or 6, around the limit of 5.5
    columns = {
        "text": [f"sentence {number}" for number in range(len(kinds))],
        "target_group": [group for group, _ in kinds],
        "toxicity_ai": rating,
        "toxicity_human": rating,
    }
    assert len(kinds) == 8_960
    labels_only(monkeypatch, toxigen_module, {"train": columns})
    monkeypatch.setattr(toxigen_module, "encode", lambda texts, *_, **__: texts_as_zeros(texts))
    task = find_benchmark("toxigen-roberta", options={"model": "owner/name"}).load()
    assert sizes(task) == [[250, 392, 7_421], [28, 44, 825]]
    for split in (task.train, task.test):
        labels = split.samples.labels()
        assert not labels[split.forget].any()  # biased: toxic, and labelled normal
        assert not labels[split.adjacent].any()
        assert labels[split.remote].any()
    true = Counter(task.fine_names[task.fine[row]] for row in task.train.forget)
    assert true == {"lgbtq, toxic": 250}


def test_the_division_for_testing_depends_on_the_texts_alone():
    sentences, groups = [f"sentence {number}" for number in range(200)], [number % 4 for number in range(200)]
    chosen = texts.held_out(sentences, groups, share=0.1, seed=0)
    backwards = texts.held_out(sentences[::-1], groups[::-1], share=0.1, seed=0)
    assert (chosen == backwards[::-1]).all()
    assert Counter(np.array(groups)[chosen].tolist()) == dict.fromkeys(range(4), 5)
    assert (chosen != texts.held_out(sentences, groups, share=0.1, seed=1)).any()


@pytest.mark.parametrize("signs", [False, True])
def test_celeba_forgets_one_of_four_kinds_of_a_class(tmp_path, signs):
    synthetic.celeba(tmp_path, each=2, test_each=1, signs=signs)
    task = find_benchmark("celeba-vit", data=tmp_path).load()
    assert sizes(task) == [[2, 6, 24], [1, 3, 12]]
    assert {task.fine_names[task.fine[row]] for row in task.train.forget} == {
        "female, not smiling, not young, no glasses"
    }
    assert {task.label_names[label] for label in task.train.samples.labels()[task.train.adjacent]} == {
        "female, not smiling"
    }
    assert task.train.samples.dataset.data[0].shape == (32, 3, 64, 64)
    larger = find_benchmark("celeba-vit", data=tmp_path, options={"size": "96", "test_part": "valid"})
    assert larger.load().test.samples.dataset.data[0].shape == (16, 3, 96, 96)
    assert "valid part" in larger.notes["data"]


# From end to end


@pytest.mark.parametrize("name", synthetic.WRITERS)
def test_a_small_run_from_end_to_end(name, tmp_path):
    synthetic.WRITERS[name](tmp_path / "data")
    for method in ("two-stage", "ft"):
        words = ["run", name, "--small", "--method", method, "--data", str(tmp_path / "data"), "--device", "cpu"]
        done = CliRunner().invoke(app.app, [*words, "--out", str(tmp_path / method), "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        scores = json.loads((tmp_path / method / "scores.json").read_text())
        assert 0 <= scores["train"]["forget"]["accuracy"] <= 1
    config = configuration(tmp_path / "ft")
    assert config["benchmark"] == name
    assert config["options"] == {"small": True}
    assert config["notes"]["initialisation"] == "random"
    assert config["notes"].keys() == {"data", "model", "initialisation", "samples"}
    task = find_benchmark(name, data=tmp_path / "data", options={"small": True}).load()
    assert config["notes"]["samples"].startswith(f"{len(task.train.forget):,} / {len(task.train.adjacent):,} / ")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_settings_of_every_method_are_valid(name):
    for options in ({}, {"small": True}):
        benchmark = find_benchmark(name, options=options)
        for method_name, profiles in benchmark.settings.items():
            method = benchmark.method(method_name)
            for profile in profiles:
                assert method.configure(benchmark.settings_for(method, profile), profile=profile)
        find_method("retrain").configure(benchmark.settings_for(find_method("retrain"), None))


def test_an_unknown_class_to_forget_is_refused(tmp_path):
    synthetic.cifar100(tmp_path, each=1)
    for name, wrong, hint in (
        ("cifar100-vit", "aquarium_fsh", "aquarium_fish"),
        ("tinyimagenet-vit", "lionn", "lion"),
        ("fashion-mnist", "sandals", "sandal"),
        ("clinc150", "balanc", "balance"),
        ("toxigen-roberta", "lgbt", "lgbtq"),
    ):
        with pytest.raises(UsageError, match=f"Did you mean '{hint}'"):
            find_benchmark(name, data=tmp_path, options={"forget": wrong, "small": True}).load()


@pytest.mark.parametrize("name", ["tinyimagenet-vit", "cifar100-vit"])
def test_released_salun_of_a_transformer_weighs_all_alike_in_batches_of_128(name):
    method = find_method("salun")
    found = method.configure(find_benchmark(name).settings_for(method, "released"), profile="released")
    assert (found.batch_size, found.forget_batch, found.remote_weight, found.learning_rate) == (128, 128, 1.0, 2e-5)


@pytest.mark.parametrize("name", ["gdr", "munba", "salun", "scrub"])
def test_celeba_released_takes_32_forget_samples_a_step(name):
    method = find_method(name)
    found = method.configure(find_benchmark("celeba-vit").settings_for(method, "released"), profile="released")
    assert (found.batch_size, found.forget_batch) == (128, 32)


def test_celeba_knows_four_labels():
    assert len(celeba.LABELS) == 4
