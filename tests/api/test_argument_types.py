"""Numbers of NumPy and torch and paths are taken wherever a number or a path is; nonsense gets our error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import unweave as uw
from unweave.errors import as_number, as_path, as_whole, plain_value, short

LINE = torch.arange(40.0)[:, None]
DATA = (LINE, torch.arange(40) % 2)
WHOLE = (3, np.int64(3), np.uint8(3), np.array(3), torch.tensor(3))
HALF = (0.5, np.float64(0.5), np.float32(0.5), np.array(0.5), torch.tensor(0.5))


def split():
    return uw.Split(DATA, forget=range(4), adjacent=range(4, 12))


NUMBERS = {  # what takes a whole number, or a number: the same comes out, however it is given
    "Checkpoints(steps)": (WHOLE, lambda one: uw.Checkpoints(steps=one)),
    "Checkpoints(seconds)": (HALF, lambda one: uw.Checkpoints(seconds=one)),
    "Compute(micro_batch)": (WHOLE, lambda one: uw.Compute(micro_batch=one)),
    "Compute(max_memory)": (WHOLE, lambda one: uw.Compute(max_memory=one)),
    "Limits(samples)": (WHOLE, lambda one: uw.Limits(samples=one)),
    "Limits(share)": (HALF, lambda one: uw.Limits(share=one)),
    "TwoStage(alpha)": (HALF, lambda one: uw.TwoStage(alpha=one)),
    "GradientAscent(epochs)": (WHOLE, lambda one: uw.GradientAscent(epochs=one)),
    "with_noise(seed)": (WHOLE, lambda one: split().with_noise(remote_to_adjacent=0.3, seed=one).hash),
    "with_noise(share)": (HALF, lambda one: split().with_noise(remote_to_adjacent=one).hash),
    "by_class(forget)": (
        WHOLE,
        lambda one: uw.Split.by_class(DATA, fine=DATA[1] + 2, forget=one, allow_empty=True).hash,
    ),
    "by_neighbours(k)": (
        WHOLE,
        lambda one: uw.Split.by_neighbours(DATA, forget=[9], features=LINE, k=one, rule="fixed").hash,
    ),
    "by_neighbours(fraction)": (
        HALF,
        lambda one: uw.Split.by_neighbours(DATA, forget=[9], features=LINE, fraction=one, rule="fixed").hash,
    ),
    "inspect(k)": (WHOLE, lambda one: str(split().inspect(features=LINE, k=one))),
    "clipped(at)": (HALF, lambda one: uw.losses.clipped(LINE, at=one).sum().item()),
    "averaged_quantiles": (WHOLE, lambda one: uw.losses.averaged_quantiles(LINE[:, 0], one).tolist()),
    "divergence(temperature)": (HALF, lambda one: uw.losses.divergence(LINE, LINE, temperature=one).tolist()),
    "remove_span(ridge)": (
        HALF,
        lambda one: uw.projection.remove_span([LINE], basis=[[LINE + 1]], ridge=one)[0].tolist(),
    ),
    "evaluate(resamples)": (
        WHOLE,
        lambda one: uw.evaluate(nn.Linear(1, 2), split(), resamples=one, compute=uw.Compute("cpu")).to_dict().keys(),
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_and_torch_are_numbers(name):
    values, call = NUMBERS[name]
    plain, *others = (call(value) for value in values)
    for found in others:
        assert found == plain


def test_seeds_and_settings_of_a_run_may_be_numbers_of_numpy_and_torch(tmp_path):
    found = [
        uw.unlearn(
            nn.Linear(1, 2), split(), "ga", seed=seed, epochs=epochs, compute=uw.Compute("cpu"), guard=None
        ).config
        for seed, epochs in ((3, 1), (np.int64(3), np.int32(1)), (torch.tensor(3), torch.tensor(1)))
    ]
    assert {one["seed"] for one in found} == {3}
    assert {type(one["seed"]) for one in found} == {int}
    assert {one["settings"]["epochs"] for one in found} == {1}


def test_paths_are_taken_as_text_and_as_paths(tmp_path):
    for place in (tmp_path / "a.json", str(tmp_path / "b.json")):
        split().save(place)
        assert uw.Split.load(place, DATA) == split()


def test_entries_may_be_tensors_and_arrays():
    for forget in ([0, 3], np.array([0, 3]), torch.tensor([0, 3]), (np.int64(0), np.int64(3)), range(0, 4, 3)):
        assert uw.Split(DATA, forget=forget, adjacent=[5]) == uw.Split(DATA, forget=[0, 3], adjacent=[5])
    mask = np.arange(40) < 4
    for one in (mask, mask.tolist(), torch.from_numpy(mask)):
        assert uw.Split.where(DATA, forget=one, adjacent=np.arange(40) == 5).forget.tolist() == [0, 1, 2, 3]
    for one in (2, np.int64(2), torch.tensor(2), [2], [np.int64(2)], torch.tensor([2])):
        assert len(uw.Split.by_class(DATA, fine=DATA[1] + 2, forget=one, allow_empty=True).forget) == 20


META, SPARSE = torch.zeros(4, device="meta"), torch.zeros(4).to_sparse()
VECTOR = torch.rand(4)
ODD = (
    "a",
    None,
    1j,
    object(),
    [1],
    {"a": 1},
    torch.zeros(2, 3, 4),
    META,
    SPARSE,
    float("nan"),
    10**400,
    np.array(["x"]),
)
CALLS = {
    "squared_wasserstein": lambda odd: uw.losses.squared_wasserstein(VECTOR, odd),
    "odds_of": lambda odd: uw.losses.odds_of(odd if not (isinstance(odd, torch.Tensor) and odd.ndim == 3) else "a"),
    "clipped": lambda odd: uw.losses.clipped(VECTOR, at=odd),
    "averaged_quantiles": lambda odd: uw.losses.averaged_quantiles(VECTOR, odd),
    "divergence": lambda odd: uw.losses.divergence(torch.rand(2, 3), odd),
    "cross_entropy": lambda odd: uw.losses.cross_entropy(nn.Linear(2, 2), odd),
    "log_odds": lambda odd: uw.losses.log_odds(odd, DATA),
    "gram_matrix": uw.projection.gram_matrix,
    "remove_span": lambda odd: uw.projection.remove_span([VECTOR], basis=[[odd]]),
    "ridge": lambda odd: uw.projection.remove_span([VECTOR], basis=[[VECTOR]], ridge=odd),
    "Split": lambda odd: uw.Split(DATA, forget=[odd], adjacent=[1]),
    "data set": lambda odd: uw.Split(odd, forget=[0], adjacent=[1]),
    "allow_empty": lambda odd: uw.Split(DATA, forget=[0], adjacent=[1], allow_empty=odd),
    "fine": lambda odd: uw.Split.by_class(DATA, fine=odd, forget=1),
    "forget": lambda odd: uw.Split.by_class(DATA, fine=DATA[1], forget=odd),
    "where": lambda odd: uw.Split.where(DATA, forget=odd, adjacent=[True] * 40),
    "features": lambda odd: uw.Split.by_neighbours(DATA, forget=[0], features=odd),
    "k": lambda odd: uw.Split.by_neighbours(DATA, forget=[0], features=LINE, k=odd),
    "fraction": lambda odd: uw.Split.by_neighbours(DATA, forget=[0], features=LINE, fraction=odd),
    "groups": lambda odd: split().entanglement(features=LINE, groups=odd) if odd is not None else split()["?"],
    "with_noise": lambda odd: split().with_noise(remote_to_adjacent=odd),
    "seed": lambda odd: split().with_noise(seed=odd),
    "rows": lambda odd: split().rows(odd),
    "save": lambda odd: split().save(odd if not isinstance(odd, str) else "."),
    "load": lambda odd: uw.Split.load(odd, DATA),
    "steps": lambda odd: uw.Checkpoints(steps=odd if odd is not None else "a"),
    "seconds": lambda odd: uw.Checkpoints(seconds=odd if odd is not None else "a"),
    "device": lambda odd: uw.Compute(odd if odd is not None else 1).check(),
    "precision": lambda odd: uw.Compute("cpu", precision=odd),
    "compile": lambda odd: uw.Compute("cpu", compile=odd),
    "keep_data": lambda odd: uw.Compute("cpu", keep_data=odd),
    "max_memory": lambda odd: uw.Compute("cpu", max_memory=odd if odd is not None else "a"),
    "settings": lambda odd: uw.TwoStage(alpha=odd),
    "choice": lambda odd: uw.TwoStage(multiplier_update=odd),
    "method": lambda odd: uw.unlearn(nn.Linear(1, 2), split(), odd),
    "profile": lambda odd: uw.unlearn(nn.Linear(1, 2), split(), "ga", profile=odd if odd is not None else 1),
    "questions": lambda odd: uw.evaluate(nn.Linear(1, 2), split(), questions=[odd]),
    "reference": lambda odd: uw.evaluate(nn.Linear(1, 2), split(), reference=odd if odd is not None else 1),
    "load_weights": lambda odd: uw.load_weights(nn.Linear(1, 2), odd),
    "read_record": uw.record.read_record,
    "record.write": lambda odd: uw.record.write(odd, {"id": "17"}),
    "record.write(original)": lambda odd: uw.record.write("run", {"id": "17"}, original=odd, split=split()),
    "Request.load": uw.Request.load,
    "Request(method)": lambda odd: uw.Request(method=odd if odd is not None else 1),
    "Request(settings)": lambda odd: uw.Request(settings=odd),
    "Request(key)": lambda odd: uw.Request(id="17", key=odd if not isinstance(odd, str | None) else 1),
    "Request(id)": lambda odd: uw.Request(id=np.array([1, 2]) if isinstance(odd, str) else odd),
    "resume": lambda odd: uw.unlearn(nn.Linear(1, 2), split(), "ga", resume=odd, out="run"),
    "Request(content)": lambda odd: uw.Request(id="17", content=odd if odd is not None else 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_nonsense_gets_our_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for odd in ODD:
        with pytest.raises(uw.UsageError):
            CALLS[name](odd)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_take_the_inputs_is_named():
    for loss in (uw.losses.cross_entropy, uw.losses.log_odds):
        with pytest.raises(uw.UsageError, match="cannot take a sample"):
            loss(nn.Linear(2, 2), DATA)


def test_what_an_error_shows_of_a_value_is_short():
    assert short("a" * 99) == repr("a" * 99)[:60] + "…"
    assert short(10**5000) == "16610 bits"
    assert short([1] * 99) == "list"
    assert uw.losses.clipped(VECTOR, at=1e308).equal(VECTOR)
    with pytest.raises(uw.UsageError, match="at most 10000000, or memory runs out"):
        uw.losses.averaged_quantiles(VECTOR, 2**31)
    assert plain_value(META) is META
    assert (as_whole("k", np.int8(3)), as_number("x", 3), as_path("out", Path("a"))) == (3, 3.0, Path("a"))
    for call in (lambda: as_whole("k", True), lambda: as_whole("k", 0.5), lambda: as_whole("k", 2**63)):
        with pytest.raises(uw.UsageError, match="k "):
            call()
    with pytest.raises(uw.UsageError, match="must be a path"):
        as_path("out", "a\0b")


@pytest.mark.parametrize("error", [OverflowError("too large"), ZeroDivisionError("by zero"), KeyError("width")])
def test_what_a_model_raises_for_a_sample_is_said_with_the_sample(error):
    class Odd(nn.Module):
        def forward(self, inputs):
            raise error

    with pytest.raises(uw.UsageError, match=r"The model cannot take a sample of float32 \(.*(too large|by zero|width)"):
        uw.losses.cross_entropy(Odd(), (torch.rand(3, 2), torch.tensor([0, 1, 1])))
