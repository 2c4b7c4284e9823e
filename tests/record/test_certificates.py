"""From the configuration of a run to what its bound is computed from."""

import math
import re

import pytest
from torch import nn

from unweave import BeforeStage2, Compute, Shortfall, Unweave, UsageError, evaluate, unlearn
from unweave.evaluation import make_certificate
from unweave.record import certificate_of

ERASE = {"method": "unweave", "settings": {"target": 10.0}}
STAGES = {"method": "two-stage", "settings": {"alpha": 0.5, "mean_sign": -1}}


def test_a_method_says_what_its_bound_is_computed_from():
    middle = nn.Linear(2, 2)
    assert certificate_of(ERASE) == Shortfall(10.0)
    assert certificate_of(STAGES, {0: middle}.get) == BeforeStage2(middle, alpha=0.5, mean_sign=-1)
    assert certificate_of({**STAGES, "method": "pgd"}, {0: middle}.get) == BeforeStage2(middle, alpha=0.5, mean_sign=-1)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"method": "ft", "settings": {"target": 10.0}},
        {"method": "somebody-elses", "settings": {"target": 10.0}},
        {"method": 3, "settings": {"target": 10.0}},
        {"method": "unweave"},
        {"method": "unweave", "settings": [10.0]},
        {"method": "unweave", "settings": {}},
        {"method": "unweave", "settings": {"target": "10"}},
        {"method": "unweave", "settings": {"target": math.inf}},
        {**ERASE, "loss": "my.loss"},
        STAGES,
    ],
)
def test_without_what_it_takes_there_is_no_certificate(config):
    assert certificate_of(config) is None


def test_a_bound_between_stages_holds_whatever_the_loss_was():
    assert certificate_of({**STAGES, "loss": "my.loss"}, {0: nn.Linear(2, 2)}.get) is not None


def test_an_unknown_bound_is_refused():
    with pytest.raises(UsageError, match=r"no bound 'shortfal'\. Did you mean 'shortfall'"):
        make_certificate("shortfal", {}, None)


class Mine(Unweave):
    name = "mine"


def test_a_method_of_ones_own_keeps_its_promise(model, split, tmp_path):
    common = {"out": tmp_path / "run", "compute": Compute("cpu"), "guard": None}
    result = unlearn(model, split, Mine(epochs=1, least_steps=3, target=1.2), **common)
    again = evaluate(result.model, split, certificate=Shortfall(1.2), compute=Compute("cpu"))
    assert "target" not in result.scores.metric("forget_bound", "train", "forget").note
    assert result.scores.metric("forget_bound", "train", "forget") == again.metric("forget_bound", "train", "forget")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("before_stage2", "certificate=uw.BeforeStage2"),
        ("target", "certificate=uw.Shortfall"),
        ("device", "compute=uw.Compute(device=...)"),
        ("precision", "compute=uw.Compute(precision=...)"),
    ],
)
def test_arguments_of_evaluate_that_moved_say_where_to(model, split, name, instead):
    with pytest.raises(UsageError, match=re.escape(f"evaluate no longer takes {name}=: pass {instead}")):
        evaluate(model, split, **{name: None})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'tagret'"):
        evaluate(model, split, tagret=1.0)
