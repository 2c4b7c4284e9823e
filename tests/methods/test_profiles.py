"""Methods as objects: their fields, their profiles, and what a user gives them."""

import copy
import inspect
import json
from pathlib import Path

import pytest
import torch

import unweave as uw
from tests.helpers.calling import unlearn_with
from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from unweave import Compute, UsageError, unlearn
from unweave.lab.benchmarks import find_benchmark
from unweave.methods import METHODS, find_method

VALUES = json.loads((Path(__file__).parent / "profiles.json").read_text(encoding="utf-8"))
QUICK = {"guard": None, "compute": Compute("cpu")}


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_of_the_fields_are_the_default_profile(name):
    method = METHODS[name]
    assert next(iter(method.profiles.values())) == {}
    assert method.configure({}) == method()
    shown = {row["name"]: row["default"] for row in method.describe()}
    assert shown == method().to_dict()


def test_the_values_of_every_profile_are_those_of_the_sources():
    found = {
        name: {profile: method.configure(profile=profile).to_dict() for profile in method.profiles}
        for name, method in METHODS.items()
    }
    assert found == VALUES
    for name, profiles in found.items():  # in files, too, settings have an order
        assert [list(values) for values in profiles.values()] == [list(values) for values in VALUES[name].values()]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_exported_and_has_typed_fields(name):
    method = METHODS[name]
    assert getattr(uw, method.__name__) is method
    parameters = inspect.signature(method).parameters
    for row in method.describe():
        assert parameters[row["name"]].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[row["name"]].default == row["default"]
        assert parameters[row["name"]].annotation


@pytest.mark.parametrize("method", [uw.FineTune(epochs=1), uw.FineTune])
def test_an_object_and_a_class_do_what_the_name_does(model, split, method):
    values = {"epochs": 1} if method is uw.FineTune else {}
    made = unlearn(model, split, method, **values, **QUICK)
    named = unlearn(model, split, "ft", epochs=1, **QUICK)
    assert same(weights(made.model), weights(named.model))
    assert made.settings == named.settings


@pytest.mark.parametrize("method", ["two-stage", uw.TwoStage])
def test_two_stage_scales_itself_on_own_models_and_an_object_has_the_values_of_the_release(model, split, method):
    few = {"stage1_epochs": 0, "stage2_epochs": 0}
    found = unlearn(model, split, method, **few, **QUICK)
    assert (found.config["profile"], found.settings.steps) == ("default", "scaled")
    released = unlearn(model, split, method, profile="released", **few, **QUICK)
    assert (released.config["profile"], released.settings.steps) == ("released", "fixed")
    assert unlearn(model, split, uw.TwoStage(**few), **QUICK).settings.steps == "fixed"


def test_an_object_runs_under_the_name_of_its_profile(model, split, tmp_path):
    for number, (method, profile) in enumerate(
        [
            (uw.FineTune(epochs=1), "official"),
            (uw.FineTune.configure({"epochs": 1}, profile="released"), "released"),
            (find_benchmark("digits").method("unweave")(epochs=1, least_steps=0), "default"),
        ]
    ):
        unlearn(model, split, method, out=tmp_path / str(number), **QUICK)
        config = configuration(tmp_path / str(number))
        assert (config["method"], config["profile"]) == (method.name, profile)
        assert config["settings"] == method.to_dict()


@pytest.mark.parametrize(("beside", "named"), [({"alpha": 0.5}, "alpha"), ({"profile": "paper"}, "profile")])
def test_nothing_goes_beside_an_object(model, split, beside, named):
    with pytest.raises(UsageError, match=rf"TwoStage\(\.\.\.\) has its settings already, but {named} was given"):
        unlearn(model, split, uw.TwoStage(), **beside)


@pytest.mark.parametrize("method", [3, None, dict])
def test_what_is_no_method_is_refused(model, split, method):
    with pytest.raises(UsageError, match="must be a name, a subclass of Method or an object of one"):
        unlearn(model, split, method)


def test_retrain_begins_from_what_it_is_given(model, split):
    first = copy.deepcopy(model)
    made = unlearn(model, split, uw.Retrain(epochs=1, initial=lambda: first), **QUICK)
    named = unlearn_with(model, split, "retrain", epochs=1, initial=lambda: first, **QUICK)
    assert same(weights(made.model), weights(named.model))
    with pytest.raises(UsageError, match="initial= must be a function"):
        uw.Retrain(epochs=1, initial=model)


def test_unweave_aims_at_the_reference_that_it_is_given(model, split, tmp_path):
    losses = torch.linspace(0.1, 3, 10)
    short = {"goal": "retrain", "epochs": 1, "least_steps": 3}
    made = unlearn(model, split, uw.Unweave(**short, reference=losses), out=tmp_path / "made", **QUICK)
    named = unlearn(model, split, "unweave", **short, reference=losses, out=tmp_path / "named", **QUICK)
    assert same(weights(made.model), weights(named.model))
    made_config, named_config = (configuration(tmp_path / run) for run in ("made", "named"))
    assert made_config == named_config
    assert made_config["reference"] == "10 given losses, mean 1.55"
    with pytest.raises(UsageError, match="pass reference="):
        unlearn(model, split, uw.Unweave(goal="retrain"), **QUICK)
    with pytest.raises(UsageError, match="with the goal retrain"):
        unlearn(model, split, uw.Unweave(reference=losses), **QUICK)


@pytest.mark.parametrize(("name", "field"), [("retrain", "initial"), ("unweave", "reference")])
def test_what_is_given_is_no_setting(name, field):
    method = find_method(name)
    assert method.given_names() == (field,)
    assert field not in method().to_dict()
    assert field not in {row["name"] for row in method.describe()}
    assert field not in method.searched()
    with pytest.raises(UsageError, match=f"{field!r}"):
        method.configure({field: "text, as from a command line"})
