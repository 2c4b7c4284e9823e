"""The guard stops a run that destroys the model, keeps the last good weights, and changes nothing else."""

from __future__ import annotations

import copy
import random
import sys
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.folders import configuration
from tests.helpers.places import ROOT
from tests.helpers.tensors import same, weights
from unweave import (
    Checkpoints,
    CollapseError,
    Compute,
    Limits,
    OwnLoss,
    RunError,
    RunWarning,
    Split,
    UsageError,
    unlearn,
)
from unweave.engine import CheckpointFolder, Guard, Phase, Workbench, run_phases
from unweave.methods import find_method
from unweave.methods.two_stage import Stage1, Stage2, TwoStage

CPU = torch.device("cpu")
OFTEN = {"share": 1.0, "samples": 5}
NO_LIMIT = OFTEN | {
    "adjacent_accuracy_drop": 1.0,
    "remote_accuracy_drop": 1.0,
    "adjacent_loss_rise": 0.0,
    "remote_loss_rise": 0.0,
    "accuracy_drop_warning": 1.0,
}


class Noisy(Dataset):
    """Random transforms draw from all global generators whenever a sample is read."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, index):
        noise = torch.rand(()) + random.random() + np.random.rand()
        return self.data[0][index] + 0.01 * noise.float(), self.data[1][index]


def lively():
    """Every step depends on random numbers, on buffers and on the mode."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def values_for(name):
    if name in ("two-stage", "pgd"):
        return {
            "normalisation": "train",
            "stage1_learning_rate": 1e-2,
            "stage1_remote_batch": 10,
            "stage2_learning_rate": 1e-3,
            "stage2_adjacent_batch": 4,
        }
    if name == "ssd":
        return {"batch_size": 4}
    if name == "adaptive":
        return {"effort": 3.0, "least_steps": 4}
    few = {"least_steps": 9} if name == "unweave" else {}
    return {"learning_rate": 1e-3, "batch_size": 8, "epochs": 3, "normalisation": "train", **few}


@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if name != "original"])
def test_looking_changes_nothing(data, split, name):
    noisy = Split(Noisy(data), split.forget, split.adjacent, split.remote)
    model = lively()
    arguments = {**values_for(name), "method": name, "seed": 3, "initial": lambda: model, "compute": Compute("cpu")}
    unguarded = unlearn_with(model, noisy, guard=None, **arguments)
    torch.manual_seed(5)
    guarded = unlearn_with(model, noisy, guard=NO_LIMIT, **arguments)
    drawn = torch.rand(2)
    assert same(weights(guarded.model), weights(unguarded.model))
    assert guarded.history.rows == unguarded.history.rows
    assert guarded.cost.sample_forwards == unguarded.cost.sample_forwards
    assert torch.equal(drawn, torch.rand(2, generator=torch.Generator().manual_seed(5)))
    assert len(guarded.checks) > (name not in ("retrain", "scrub", "ssd", "unweave", "adaptive"))
    assert unguarded.checks == ()


def destroy(split, model, **more):
    settings = {"learning_rate": 0.3, "momentum": 0.0, "weight_decay": 0.0, "epochs": 40, "batch_size": 99}
    return unlearn(model, split, method="ga", compute=Compute("cpu"), **{**settings, **more})


@pytest.fixture
def trained(split, model):
    """A model that knows its data, so that there is something to destroy."""
    return unlearn(model, split, method="ft", learning_rate=0.05, epochs=20, guard=None, compute=Compute("cpu")).model


def test_a_broken_limit_stops_the_run_with_the_last_good_weights(split, trained):
    with pytest.raises(
        CollapseError, match=r"stopped in step \d+ of ascend: adjacent accuracy fell from 100"
    ) as caught:
        destroy(split, trained, guard=OFTEN | {"adjacent_accuracy_drop": 0.3})
    error = caught.value
    assert error.limit == "adjacent_accuracy_drop"
    assert error.values["before"]["accuracy"] - error.values["now"]["accuracy"] > 0.3
    for word in ("at most 30% of what it was above chance", "Use the method adaptive", "drop in the limits"):
        assert word in str(error)
    last = int(error.good.place.split()[2])
    until_then = destroy(split, trained, epochs=last + 1, guard=None)
    assert same(list(error.good.weights.values()), weights(until_then.model))


def test_the_last_good_weights_are_in_the_folder(split, trained, tmp_path):
    with pytest.raises(CollapseError, match=r"last good weights are in .*last-good.safetensors") as caught:
        destroy(
            split,
            trained,
            guard=NO_LIMIT | {"remote_loss_rise": 0.1},
            out=tmp_path / "run",
            callbacks=[Checkpoints(steps=1)],
        )
    assert caught.value.limit == "remote_loss_rise"
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]
    kept = safetensors.torch.load_file(tmp_path / "run.unfinished" / "last-good.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in caught.value.good.weights.items())


def test_a_stopped_run_may_go_on_with_wider_limits(split, trained, tmp_path):
    with pytest.raises(CollapseError):
        destroy(
            split,
            trained,
            guard=NO_LIMIT | {"remote_loss_rise": 0.1},
            out=tmp_path / "run",
            callbacks=[Checkpoints(steps=1)],
        )
    resumed = destroy(split, trained, guard=NO_LIMIT, out=tmp_path / "run", resume=True)
    assert same(weights(resumed.model), weights(destroy(split, trained, guard=None).model))
    assert "last-good.safetensors" not in [path.name for path in (tmp_path / "run").iterdir()]
    assert configuration(tmp_path / "run")["limits"]["remote_loss_rise"] == 0


def test_without_a_passed_check_nothing_is_left(split, trained, tmp_path):
    with pytest.raises(CollapseError, match=r"in step 0 of ascend") as caught:
        destroy(split, trained, learning_rate=1e6, guard=OFTEN, out=tmp_path / "run")
    assert caught.value.good.is_original
    assert same(list(caught.value.good.weights.values()), weights(trained))
    assert list(tmp_path.iterdir()) == []  # no copy of a model that knows the forget data


def test_losses_that_are_not_finite_stop_the_run_with_the_last_good_weights(split, trained):
    """A loss of the user's own that breaks down later; no limit is set."""
    from unweave.tasks import cross_entropy

    def brittle(model, batch):
        losses = cross_entropy(model, batch)
        return losses / (losses.detach().mean() < 3)  # infinite from then on

    with pytest.raises(CollapseError, match=r"became inf in step \d+|loss is inf|infinite or NaN in step") as caught:
        destroy(split, trained, guard=NO_LIMIT, task=OwnLoss(brittle))
    assert all(tensor.isfinite().all() for tensor in caught.value.good.weights.values())


def test_another_loss_is_guarded_by_its_value_alone(split, trained):
    def squared(model, batch):
        return (model(batch[0]) ** 2).mean(dim=1)

    with pytest.raises(CollapseError) as caught:
        destroy(split, trained, guard=OFTEN | {"remote_loss_rise": 1.0}, task=OwnLoss(squared))
    assert caught.value.limit in ("remote_loss_rise", "adjacent_loss_rise")
    assert set(caught.value.values["now"]) == {"loss"}


def test_stage_1_may_give_adjacent_data_up_and_stage_2_must_win_it_back(digits):
    benchmark, task, original = digits
    settings = benchmark.settings["two-stage"]["released"] | {"stage2_epochs": 5}
    limits = {"adjacent_accuracy_drop": 0.3, "share": 0.05}
    kept = unlearn(
        original, task.train, "two-stage", profile="released", guard=limits, compute=Compute("cpu"), **settings
    )
    first = [check for check in kept.checks if check["phase"] == "stage 1"]
    assert len(first) > 3
    assert not any("adjacent" in check for check in first)
    assert kept.checks[-1]["adjacent"]["accuracy"] > 0.9
    slow = settings | {"stage2_learning_rate": 1e-9, "stage2_epochs": 1}
    with pytest.raises(CollapseError, match="in the last step of stage 2: adjacent accuracy"):
        unlearn(original, task.train, "two-stage", profile="released", guard=limits, compute=Compute("cpu"), **slow)
    unlearn(
        original,
        task.train,
        "two-stage",
        profile="released",
        guard=limits,
        compute=Compute("cpu"),
        **settings | {"stage2_epochs": 0},
    )  # not even begun


@pytest.mark.parametrize("name", ["ga", "ssd", "delete", "salun", "unweave"])
def test_the_default_limits_let_the_baselines_of_the_digits_be_seen(digits, name):
    benchmark, task, original = digits
    settings = benchmark.settings_for(ON_ANYTHING[name], None)
    unlearn(original, task.train, name, compute=Compute("cpu"), **settings)


def test_forget_losses_that_do_not_move_are_said(split, trained):
    with pytest.warns(
        RunWarning, match=r"stage 1 ended with a mean forget loss of 0\.\d\d .*hardly forgotten"
    ) as warned:
        unlearn(trained, split, "two-stage", profile="released", compute=Compute("cpu"))
    (only,) = warned  # stage 2 is there to hold what stage 1 did
    assert "Use the method adaptive" in str(only.message)


def test_forgotten_data_that_comes_back_is_said(split, trained, monkeypatch):
    guard = Guard(Workbench(trained, split, device=torch.device("cpu")), Limits())
    losses = iter([9.0, 0.1])
    monkeypatch.setattr(guard, "_check", lambda *_, **__: {"forget": {"loss": next(losses)}})
    first, second = Stage1(TwoStage()), Stage2(TwoStage())
    first.steps = second.steps = 1
    guard.check_end(first)
    with pytest.warns(RunWarning, match="stage 2 ended .* forgotten data came back. Use the method adaptive"):
        guard.check_end(second)


def test_limits_are_settings_and_on_record(split, model, tmp_path):
    unlearn(model, split, method="ga", out=tmp_path / "one", guard=Limits(samples=7), compute=Compute("cpu"))
    assert configuration(tmp_path / "one")["limits"] == Limits(samples=7).to_dict()
    unlearn(model, split, method="ga", out=tmp_path / "two", guard=None, compute=Compute("cpu"))
    assert configuration(tmp_path / "two")["limits"] is None
    for wrong, words in (({"remote_acuracy_drop": 1}, "Did you mean"), ({"remote_accuracy_drop": 2}, "at most 1")):
        with pytest.raises(UsageError, match=words):
            unlearn(model, split, method="ga", guard=wrong, out=tmp_path / "three", compute=Compute("cpu"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_looking_takes_its_share_of_the_work(split, model, share):
    limits = NO_LIMIT | {"share": share, "samples": 10}
    result = unlearn(
        model, split, method="ft", learning_rate=1e-3, epochs=30, batch_size=4, guard=limits, compute=Compute("cpu")
    )
    between = len(result.checks) - 1
    work = result.cost.sample_forwards + 2 * result.cost.sample_gradients
    assert 0.8 * share * work - 20 <= between * 20 <= share * work


@pytest.mark.parametrize("stop", [15, 16, 17])  # one of them after a look, the others between two
def test_a_resumed_run_is_looked_at_in_the_same_steps(split, tmp_path, stop):
    method = find_method("ft")
    settings = method.configure({"learning_rate": 1e-3, "epochs": 4, "batch_size": 8})
    limits = Limits.parse(NO_LIMIT | {"share": 0.2})

    def run(checkpoints=None, *, resume=False, stop=None):
        bench = Workbench(lively(), split, device=CPU, seed=9)
        guard = Guard(bench, limits)
        (phase,) = settings.phases()

        def step(number, taken=phase.step):
            if number == stop:
                raise KeyboardInterrupt
            return taken(number)

        phase.step = step
        run_phases(bench, [phase], checkpoints=checkpoints, resume=resume, guard=guard)
        return weights(bench.model), guard.checks

    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(CheckpointFolder(tmp_path, every_seconds=0), stop=stop)
    resumed = run(CheckpointFolder(tmp_path), resume=True)
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1]
    assert len(whole[1]) > 3


def test_the_documented_limits_are_the_defaults():
    text = (ROOT / "docs" / "safety.md").read_text()
    for name, value in Limits().to_dict().items():
        assert f"| `{name}` | {value:g} |" in text


def test_every_phase_guards_subsets_that_exist():
    def below(kind):
        return {kind, *(other for child in kind.__subclasses__() for other in below(child))}

    for phase in below(Phase):
        assert set(phase.guards) <= {"adjacent", "remote"}
        assert set(phase.guards_at_end) <= {"forget", "adjacent", "remote"}
    assert Stage1.guards == ("remote",)


def test_a_handful_of_samples_is_not_guarded(data, model):
    few = Split(data, forget=range(20), adjacent=range(20, 29), remote=[], allow_empty=True)
    result = unlearn(model, few, method="ga", learning_rate=0.1, guard=OFTEN, compute=Compute("cpu"))
    assert [set(check) for check in result.checks] == [{"phase", "step", "forget"}]


def test_labels_that_the_model_does_not_know_are_named_before_anything_is_done(model):
    data = torch.randn(40, 5), torch.full((40,), 8)
    wrong = Split(data, forget=range(10), adjacent=range(10, 20), remote=range(20, 40))
    with pytest.raises(UsageError, match="has the label 8"):
        unlearn(model, wrong, "two-stage", profile="released", compute=Compute("cpu"))


def test_the_command_line_stops_warns_and_can_be_told_not_to(digits, tmp_path, monkeypatch, capsys):
    from unweave.cli import main
    from unweave.lab.benchmarks import Benchmark

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Benchmark, "train", lambda *arguments, **more: digits[2])

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", "run", "digits", "--method", "ga", "--device", "cpu", *words])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            warnings.simplefilter("always")
            main()
        return ended.value.code, capsys.readouterr().err

    code, said = command("--out", "x", "--limit", "adjacent-accuracy-drop=0.1", "--set", "epochs=30")
    assert (code, "adjacent accuracy fell" in said) == (1, True)
    assert not (tmp_path / "x").exists()
    code, said = command("--out", "y", "--set", "learning_rate=1e-9", "--checkpoint-steps", "5")
    assert code == 0
    assert "unweave: warning: ascend ended with a mean forget loss" in said
    code, said = command("--out", "z", "--no-guard", "--set", "learning_rate=1e-9")
    assert (code, said) == (0, "")


class Knows(nn.Module):
    """A model of ten classes that recognises a share of the samples, and says which: those with the lowest numbers."""

    def __init__(self, share):
        super().__init__()
        self.share = nn.Parameter(torch.tensor(float(share)))

    def forward(self, inputs):
        place, label = inputs[:, 0], inputs[:, 1].long()
        said = torch.where(place < self.share, label, (label + 1) % 10)
        return 8 * nn.functional.one_hot(said, 10).float() + 0 * self.share


@pytest.mark.parametrize(
    ("subset", "before", "after", "stopped"),
    [
        ("adjacent", 1.0, 0.33, False),  # a strong model may lose four fifths of what it knows above chance
        ("adjacent", 1.0, 0.2, True),
        ("adjacent", 0.33, 0.0, True),  # in points of accuracy this is less than the line above the last
        ("adjacent", 0.33, 0.26, False),  # may be chance
        ("adjacent", 0.1, 0.0, False),  # what knows nothing has nothing to lose
        ("remote", 1.0, 0.6, False),
        ("remote", 1.0, 0.5, True),
        ("remote", 0.33, 0.2, True),
        ("remote", 0.33, 0.26, False),
        ("remote", 0.1, 0.0, False),
    ],
)
def test_weak_and_strong_models_are_guarded_alike(subset, before, after, stopped):
    count = 128
    place, label = torch.arange(count).repeat(3) / count, torch.arange(3 * count) % 10
    split = Split(
        (torch.stack([place, label.float()], dim=1), label),
        range(count),
        range(count, 2 * count),
        range(2 * count, 3 * count),
    )
    bench = Workbench(Knows(before), split, device=CPU)
    guard = Guard(bench, Limits())
    (phase,) = find_method("ft").configure({}).phases()
    phase.steps, phase.guards = 9, (subset,)
    bench.model.share.data.fill_(after)
    if not stopped:
        return guard.check(phase, 3)
    with pytest.raises(CollapseError, match="of what it was above chance") as caught:
        guard.check(phase, 3)
    assert caught.value.limit == f"{subset}_accuracy_drop"
    assert float(caught.value.good.weights["share"] if caught.value.good else before) == pytest.approx(before)
    return None


def test_errors_are_run_errors():
    assert issubclass(CollapseError, RunError)
    assert copy.copy(CollapseError("words", limit="x")).args == ("words",)
