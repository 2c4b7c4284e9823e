"""Data on the device, on the host, read ahead by processes: the same batches."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

from bench import sentences as measured
from tests.helpers.tensors import same, weights
from unweave import Compute, Split, UsageError, evaluate, unlearn
from unweave.data import Samples
from unweave.data.padding import trimmed
from unweave.engine import Batches, Workbench
from unweave.engine import forward as passes
from unweave.evaluation import predict
from unweave.tasks import OwnLoss, cross_entropy

CPU = torch.device("cpu")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}


class Images(Dataset):
    """Bytes, some of them with noise that each reading draws anew."""

    def __init__(self, *, noisy=False, named=False):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randint(0, 255, (40, 3, 4, 4), generator=generator, dtype=torch.uint8)
        self.noisy, self.named = noisy, named

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        image = self.images[row]
        if self.noisy:
            image = image + torch.randint(0, 9, image.shape, dtype=torch.uint8)
        return {"pixels": image, "labels": row % 3} if self.named else (image, row % 3)


class Pixels(nn.Module):
    """A model that takes bytes, and prepares them itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 3)

    def forward(self, pixels):
        return self.layer(pixels.flatten(1).float() / 255)


def split_of(dataset, *, keep_data="auto", workers=None):
    split = Split(dataset, forget=range(6), adjacent=range(6, 14), remote=range(14, 40))
    split.samples.keep_data, split.samples.workers = keep_data, workers
    return split


def columns(dataset):
    return {"pixels": dataset.images, "labels": torch.arange(len(dataset)) % 3}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("keep_data", "workers"), [("host", 0), ("host", 2), ("device", 2)])
def test_where_data_waits_makes_no_difference(named, keep_data, workers):
    model = Pixels()
    kept = split_of(Images(named=named))
    other = split_of(Images(named=named), keep_data=keep_data, workers=workers)
    first, second = (
        unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
        for split in (kept, other)
    )
    assert kept.samples.kept(CPU)
    assert other.samples.kept(CPU) == (keep_data == "device")
    assert same(weights(first.model), weights(second.model))
    scores = [
        evaluate(second.model, split, compute=Compute("cpu"))["train"]["remote"]["loss"] for split in (kept, other)
    ]
    assert scores[0] == scores[1]


def test_tensors_that_do_not_fit_are_indexed_on_the_host():
    model = Pixels()
    runs = [
        unlearn(
            model,
            split_of(columns(Images()), keep_data=keep),
            "two-stage",
            profile="released",
            compute=Compute("cpu"),
            **FAST,
        ).model
        for keep in ("device", "host")
    ]
    assert same(weights(runs[0]), weights(runs[1]))


def test_starting_processes_takes_no_random_number_of_a_step():
    """Dropout draws from the same generator: with any number of processes, and after a resume."""
    model = nn.Sequential(Pixels(), nn.Dropout(0.5))
    runs = [
        unlearn(
            model, split_of(Images(), keep_data="host", workers=workers), method="ft", epochs=1, compute=Compute("cpu")
        ).model
        for workers in (0, 1)
    ]
    assert same(weights(runs[0]), weights(runs[1]))


@pytest.mark.parametrize("method", ["two-stage", "ft"])
def test_random_transforms_depend_on_the_seed_not_on_who_reads(method):
    settings = FAST if method == "two-stage" else {"learning_rate": 1e-2, "epochs": 2, "batch_size": 8}
    model = Pixels()

    def run(workers, seed):
        split = split_of(Images(noisy=True), workers=workers)
        return weights(unlearn(model, split, method=method, seed=seed, compute=Compute("cpu"), **settings).model)

    assert same(run(0, seed=1), run(2, seed=1))
    assert not same(run(0, seed=1), run(0, seed=2))


def test_random_transforms_differ_from_pass_to_pass():
    split = split_of(Images(noisy=True))
    batches = Batches(split.samples, split.rows("forget"), size=6, seed=0, device=CPU)
    first, second = (batches[number] for number in (0, 1))
    assert not torch.equal(first.data[0][first.rows.argsort()], second.data[0][second.rows.argsort()])
    again = Batches(split.samples, split.rows("forget"), size=6, seed=0, device=CPU)[1]
    assert torch.equal(again.data[0], second.data[0])


@pytest.mark.parametrize("noisy", [False, True])
def test_passes_in_order_are_alike_and_one_stream_of_reading(noisy, monkeypatch):
    split, begun = split_of(Images(noisy=noisy), keep_data="host"), []
    batches = Batches(split.samples, split.rows("remote"), size=7, seed=3, device=CPU)
    read = split.samples.batches
    monkeypatch.setattr(batches._ahead["in order"], "read", lambda orders: begun.append(1) or read(orders, device=CPU))
    passes = [[batch.data[0] for batch in batches.in_order()] for _ in range(3)]
    assert len(begun) == 1
    for first, *others in zip(*passes, strict=True):
        assert all(torch.equal(first, other) for other in others)
    next(batches.in_order())  # and no further: the next pass begins at its beginning all the same
    assert torch.equal(next(batches.in_order()).data[0], passes[0][0])


def test_bytes_stay_bytes_on_the_shelf():
    samples = Samples(Images())
    samples.keep(torch.arange(0, 40, 2), CPU)
    batch = samples.batch(torch.tensor([4, 2]), CPU)
    assert batch.data[0].dtype == torch.uint8
    assert torch.equal(batch.data[0], samples.dataset.images[[4, 2]])
    samples.keep(torch.arange(40), CPU)
    assert torch.equal(samples.batch(torch.arange(40), CPU).data[0], samples.dataset.images)


def test_a_sample_that_is_not_on_the_shelf_is_read():
    samples = Samples(Images())
    samples.keep(torch.arange(10), CPU)
    batch = samples.batch(torch.tensor([3, 39]), CPU)
    assert torch.equal(batch.data[0], samples.dataset.images[[3, 39]])
    assert batch.labels.tolist() == [0, 0]


def test_entanglement_is_the_same_before_and_after_a_run_that_kept_some_of_the_data():
    model, fresh, used = Pixels(), split_of(Images()), split_of(Images())
    unlearn(model, used, method="ga", epochs=1, guard=None, compute=Compute("cpu"))
    assert 0 < used.samples._shelves[CPU].there.sum() < 40
    first, second = (split.entanglement(model, k=3, device="cpu") for split in (fresh, used))
    assert torch.equal(first.per_sample, second.per_sample)
    assert fresh.samples.kept(CPU)


def test_no_process_is_started_for_what_cannot_be_given_to_it(monkeypatch):
    monkeypatch.setattr("torch.multiprocessing.get_start_method", lambda: "spawn")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    plain, own = Samples(Images()), Samples(Images(), collate=lambda rows: default_collate(list(rows)))
    assert plain._workers(torch.device("cuda")) == 4
    assert own._workers(torch.device("cuda")) == 0


def test_a_wrong_place_is_refused():
    with pytest.raises(UsageError, match="keep_data"):
        unlearn(Pixels(), split_of(Images(), keep_data="disk"), "two-stage", profile="released", compute=Compute("cpu"))


def test_a_bad_sample_is_named_by_whichever_process_reads_it():
    class Broken(Images):
        def __getitem__(self, row):
            return (torch.tensor(torch.nan) if row == 33 else torch.zeros(())).repeat(48), row % 3

    with pytest.raises(UsageError, match="first: sample 33"):
        unlearn(
            Pixels(),
            split_of(Broken(), workers=1, keep_data="device"),
            "two-stage",
            profile="released",
            compute=Compute("cpu"),
        )


# Tokens


class Reader(nn.Module):
    """Averages the embeddings of a sentence's tokens; notes how wide its batches are."""

    def __init__(self):
        super().__init__()
        self.words, self.head, self.widths = nn.Embedding(20, 4), nn.Linear(4, 3), []

    def forward(self, input_ids, attention_mask):
        self.widths.append(input_ids.shape[1])
        mask = attention_mask[:, :, None].to(self.words.weight.dtype)
        return self.head((self.words(input_ids) * mask).sum(1) / mask.sum(1))


def sentences(lengths, *, width=64):
    generator = torch.Generator().manual_seed(2)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    words = torch.randint(1, 20, (len(lengths), width), generator=generator) * mask
    return {"input_ids": words, "attention_mask": mask, "labels": torch.arange(len(lengths)) % 3}


@pytest.mark.parametrize("keep_data", ["device", "host"])
def test_padding_is_cut_to_the_longest_of_the_batch_and_changes_nothing(keep_data, monkeypatch):
    data = sentences([5 + row % 9 for row in range(39)] + [50])
    model = Reader().double()
    cut, whole = split_of(data, keep_data=keep_data), split_of(data)
    short = unlearn(model, cut, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    assert set(short.model.widths) >= {16, 64}
    assert short.model.widths.count(16) > short.model.widths.count(64)
    scores = evaluate(short.model, cut, compute=Compute("cpu"))["train"]["remote"]["loss"]
    monkeypatch.setattr("unweave.data.padding.MULTIPLE", 64)
    long = unlearn(model, whole, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    assert set(long.model.widths[len(model.widths) :]) == {64}
    for key, tensor in short.model.state_dict().items():
        assert torch.allclose(tensor, long.model.state_dict()[key], rtol=1e-9)
    assert scores == pytest.approx(evaluate(long.model, whole, compute=Compute("cpu"))["train"]["remote"]["loss"])


MIXED = [3, 40, 12, 64, 17, 5, 33, 16]  # tokens of sentences


def bench_of(model, data, **more):
    rows = range(len(data["labels"]) // 2), range(0), range(len(data["labels"]) // 2, len(data["labels"]))
    return Workbench(model, Split(data, *rows, allow_empty=True), device=CPU, **more)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_batch_of_sentences_is_run_by_their_lengths_with_the_same_results(monkeypatch, micro_batch):
    data = sentences(MIXED * 2)
    found = {}
    for worth in (math.inf, 0):
        monkeypatch.setattr(passes, "WORTH_A_PASS", worth)
        torch.manual_seed(0)
        model = Reader().double().eval()
        bench = bench_of(model, data, micro_batch=micro_batch)
        batch = bench.batches("forget", "remote", size=16)[0]
        model.widths.clear()
        losses = bench.losses(batch)
        widths = list(model.widths)
        gradient = bench.gradient([(losses * torch.arange(16)).sum()])
        found[worth] = losses.detach(), gradient, bench.cost.sample_gradients, set(widths)
    (whole, theirs, cost, wide), (pieces, ours, same_cost, narrow) = found[math.inf], found[0]
    assert torch.allclose(whole, pieces, rtol=1e-12)
    for one, other in zip(theirs, ours, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)
    assert cost == same_cost
    assert (wide, narrow) == ({64}, {16, 32, 48, 64})


@pytest.mark.parametrize("why", ["little to gain", "training", "another loss", "compiled", "padding is needed"])
def test_a_batch_of_sentences_stays_whole(monkeypatch, why):
    monkeypatch.setattr(passes, "WORTH_A_PASS", 2e9 if why == "little to gain" else 0)
    more = {"task": OwnLoss(partial(cross_entropy))} if why == "another loss" else {}
    model = Reader().train(why == "training")
    bench = bench_of(model, sentences(MIXED), compile="on" if why == "compiled" else "off", **more)
    if why == "padding is needed":
        bench.split.samples.cut_padding = False
    batch = bench.batches("forget", "remote", size=8)[0]
    model.widths.clear()
    bench.losses(batch)
    assert model.widths == [64]


def test_what_that_saves_is_measured_without_a_trace():
    split = split_of(sentences(MIXED * 5))
    found = measured.compare(Reader().eval(), split, rounds=2)
    assert list(found) == ["stage 1", "stage 2", "evaluation"]
    assert all(value > 0 for row in found.values() for value in row.values())
    assert split.samples.cut_padding is None


@pytest.mark.parametrize("keep_data", ["device", "host"])
def test_sentences_are_looked_at_by_their_lengths_and_answered_in_order(keep_data):
    data = sentences(MIXED * 4)
    model = Reader().double()
    samples = Samples(data)
    samples.keep_data = keep_data
    rows = torch.arange(len(data["labels"])).flip(0)
    predict(model, samples, rows[:1], device="cpu")  # which also asks whether padding may be cut
    model.widths.clear()
    found = predict(model, samples, rows, batch_size=4, device="cpu", task="classification")
    if keep_data == "device":
        assert model.widths == [16, 16, 16, 16, 32, 48, 48, 64]
    with torch.no_grad():
        expected = model(data["input_ids"], data["attention_mask"])[rows]
    assert torch.allclose(found.logits, expected, rtol=1e-12)
    assert torch.equal(found.labels, data["labels"][rows])


class Layout(Reader):
    """Knows where on the page a token stands, and takes a number beside the tensors."""

    def __init__(self):
        super().__init__()
        self.places = nn.Linear(4, 4)

    def forward(self, input_ids, attention_mask, bbox, scale=1.0, title=None):
        mask = attention_mask[:, :, None].to(bbox.dtype)
        found = (self.words(input_ids) + self.places(bbox)) * mask
        return scale * self.head(found.sum(1) / mask.sum(1).clamp(min=1))


@pytest.mark.parametrize("method", ["two-stage", "unweave"])
@pytest.mark.parametrize("keep_data", ["device", "host"])
def test_columns_of_any_name_are_cut_and_numbers_pass_through(method, keep_data):
    data = sentences([row % 9 for row in range(40)]) | {"bbox": torch.rand(40, 64, 4)}

    def collate(rows):
        picked = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        return {**picked, "scale": 2.0, "title": None}

    rows = [{name: column[row] for name, column in data.items()} for row in range(40)]
    split = Split(rows, forget=range(6), adjacent=range(6, 14), collate=collate)
    split.samples.keep_data = keep_data
    result = unlearn(Layout(), split, method=method, guard=None, compute=Compute("cpu"))
    assert result.history.rows


def test_padding_without_any_token_is_not_cut_to_nothing():
    data = sentences([0, 0]) | {"labels": torch.zeros(2, 64)}
    cut = trimmed(data, 0)
    assert {name: tuple(column.shape) for name, column in cut.items()} == {
        "input_ids": (2, 16),
        "attention_mask": (2, 16),
        "labels": (2, 64),
    }


def test_padding_on_the_left_stays():
    data = {name: column.flip(1) if name != "labels" else column for name, column in sentences([3, 4, 5, 6]).items()}
    samples = Samples(data)
    samples.keep(torch.arange(4), CPU)
    assert samples.token_lengths(CPU).tolist() == [64] * 4
    assert samples.batch(torch.arange(4), CPU, longest=64).data["input_ids"].shape == (4, 64)
