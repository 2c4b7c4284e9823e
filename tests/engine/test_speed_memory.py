"""Batches in pieces give what whole batches give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import ON_ANYTHING
from unweave import Checkpoints, Compute, RunError, Split, UsageError, unlearn
from unweave.engine import Workbench
from unweave.errors import RunWarning
from unweave.methods import find_method, stages
from unweave.methods.stages import Stage2
from unweave.runtime import limited_to, parse_bytes

CPU = torch.device("cpu")


def convolutional():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(5 * 16, 3)
    ).double()


class Named(nn.Module):
    """Takes a mapping, as Hugging Face models do."""

    def __init__(self):
        super().__init__()
        self.network = convolutional()

    def forward(self, pixels):
        return self.network(pixels)


def images(*, named=False):
    torch.manual_seed(4)
    pixels, labels = torch.randn(36, 3, 8, 8, dtype=torch.float64), torch.arange(36) % 3
    data = {"pixels": pixels, "labels": labels} if named else (pixels, labels)
    return Split(data, forget=range(10), adjacent=range(10, 20), remote=range(20, 36))


def settings_of(name):
    known = find_method(name).configure().to_dict()
    short = {key: 1 for key in known if key.endswith("epochs")}
    rates = {key: 1e-2 for key in known if key.endswith("learning_rate")}
    few = {key: value for key, value in {"least_steps": 6, "effort": 2.0}.items() if key in known}
    return {**short, **rates, **few, **({"normalisation": "eval"} if "normalisation" in known else {})}


@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if name != "original"])
@pytest.mark.parametrize("named", [False, True])
def test_pieces_give_the_result_of_whole_batches(name, named):
    model = Named() if named else convolutional()
    whole, pieces = (
        unlearn_with(
            model,
            images(named=named),
            method=name,
            initial=lambda: model,
            compute=Compute("cpu", micro_batch=size),
            **settings_of(name),
        )
        for size in (None, 3)
    )
    for key, tensor in whole.model.state_dict().items():
        assert torch.allclose(tensor, pieces.model.state_dict()[key], rtol=1e-9, atol=1e-11), key
    assert whole.cost.sample_gradients == pieces.cost.sample_gradients
    assert [row.keys() for row in whole.history] == [row.keys() for row in pieces.history]


class Tight(torch.autograd.Function):
    """Does nothing, but needs more memory than there is for too many samples: forwards or backwards."""

    @staticmethod
    def forward(ctx, values, forwards, backwards):
        ctx.backwards = backwards
        if forwards is not None and len(values) > forwards:
            raise torch.OutOfMemoryError("forwards")
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.backwards is not None and len(gradient) > ctx.backwards:
            raise torch.OutOfMemoryError("backwards")
        return gradient, None, None


class Greedy(nn.Module):
    """Runs out of memory in the middle, when the last layer has its gradient already."""

    def __init__(self, *, forwards=None, backwards=None):
        super().__init__()
        self.network, self.limits, self.sizes = convolutional(), (forwards, backwards), []

    def forward(self, pixels):
        self.sizes.append(len(pixels))
        return self.network[2:](Tight.apply(self.network[:2](pixels), *self.limits))


@pytest.mark.parametrize("limits", [{"forwards": 4}, {"backwards": 4}, {"forwards": 9, "backwards": 2}])
@pytest.mark.filterwarnings("ignore:The device ran out of memory")
def test_memory_that_runs_out_halves_the_pieces_and_changes_nothing(limits):
    free, tight = Greedy(), Greedy(**limits)
    settings = {**settings_of("two-stage"), "guard": None}
    whole = unlearn(free, images(), "two-stage", profile="released", compute=Compute("cpu"), **settings)
    cut = unlearn(
        tight, images(), "two-stage", profile="released", compute=Compute("cpu", micro_batch=100), **settings
    )  # cares, as a run on CUDA always does
    for key, tensor in whole.model.state_dict().items():
        assert torch.allclose(tensor, cut.model.state_dict()[key], rtol=1e-9, atol=1e-11), key


def test_halving_is_said_once_for_each_size():
    bench = Workbench(Greedy(backwards=4), images(), device=CPU, micro_batch=100)
    bench.mode("eval")
    batches = bench.batches("remote", size=16)
    with pytest.warns(RunWarning) as told:
        bench.gradient(bench.losses(batches[number]).mean() for number in range(3))
    assert [str(warning.message).split(" memory with ")[1].split("; ")[0] for warning in told] == [
        "16 samples at once. The run continues with 8",
        "8 samples at once. The run continues with 4",
    ]
    assert bench.forward.micro_batches.size == 4


@pytest.mark.filterwarnings("ignore:The device ran out of memory")
def test_a_sample_that_does_not_fit_ends_the_run():
    with pytest.raises(RunError, match="single sample"):
        unlearn(
            Greedy(backwards=0),
            images(),
            "two-stage",
            profile="released",
            guard=None,
            compute=Compute("cpu", micro_batch=2),
        )


def test_a_stage_frees_its_optimiser_for_the_next_also_after_a_resume(tmp_path, monkeypatch):
    held, step = [], Stage2.step

    def noting(self, number):
        held.append(sum(t.numel() for o in optimizers for state in o.state.values() for t in state.values()))
        if len(held) == 3:
            raise KeyboardInterrupt
        return step(self, number)

    optimizers = []
    make = stages.make_optimizer
    monkeypatch.setattr(stages, "make_optimizer", lambda *a, **k: optimizers.append(make(*a, **k)) or optimizers[-1])
    monkeypatch.setattr(Stage2, "step", noting)
    settings = {"profile": "released", "stage1_epochs": 2, "stage2_epochs": 2, "stage2_adjacent_batch": 2}
    settings["guard"] = None
    options = {"compute": Compute("cpu"), "callbacks": [Checkpoints(steps=1)], **settings}
    with pytest.raises(KeyboardInterrupt):
        unlearn(convolutional(), images(), "two-stage", out=tmp_path, **options)
    unlearn(convolutional(), images(), "two-stage", out=tmp_path, resume=True, **options)
    assert set(held) == {0}
    assert len(optimizers) == 2


def test_pieces_are_refused_where_they_would_change_results():
    with pytest.raises(UsageError, match="training mode of normalisation"):
        unlearn(
            convolutional(),
            images(),
            "two-stage",
            profile="released",
            normalisation="train",
            compute=Compute("cpu", micro_batch=2),
        )
    with pytest.raises(UsageError, match="at least 1"):
        unlearn(convolutional(), images(), "two-stage", profile="released", compute=Compute("cpu", micro_batch=0))


def test_a_parameter_that_is_not_used_is_no_obstacle_in_pieces():
    model = convolutional()
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    assert torch.equal(
        unlearn(model, images(), "two-stage", profile="released", compute=Compute("cpu", micro_batch=4)).model.spare,
        torch.ones(3),
    )


def test_a_limit_is_for_cuda_and_reads_like_a_size():
    assert parse_bytes("2 GiB") == 2**31
    for wrong in ("much", "-1GB", "0"):
        with pytest.raises(UsageError, match="not a size of memory"):
            parse_bytes(wrong)
    with pytest.raises(UsageError, match="this run is on cpu"):
        unlearn(convolutional(), images(), "two-stage", profile="released", compute=Compute("cpu", max_memory="1GB"))


def test_a_limit_is_set_for_a_while_and_refused_where_more_is_held_already(monkeypatch):
    device, fractions, held = torch.device("cuda"), [], [100]
    for name, value in (
        ("empty_cache", lambda: None),
        ("memory_reserved", lambda device: held[0]),
        ("mem_get_info", lambda device: (900, 1000)),
        ("get_per_process_memory_fraction", lambda device: 1.0),
        ("set_per_process_memory_fraction", lambda share, device: fractions.append(share)),
    ):
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    with pytest.raises(RunError, match=r"Raise max_memory\.$"), limited_to(250, device):
        assert fractions == [0.25]
        raise torch.OutOfMemoryError
    assert fractions == [0.25, 1.0]
    held[0] = 251
    with pytest.raises(UsageError, match="GB on cuda already"), limited_to(250, device):
        pass
    assert fractions == [0.25, 1.0]
