"""Models with an adapter: only the adapter moves, and it is saved as an adapter."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.helpers.adapters import QUICK, adapted, base, data, is_adapter, split
from unweave import Compute, evaluate, unlearn
from unweave.engine import Workbench
from unweave.methods import find_method

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


@pytest.mark.filterwarnings("ignore:.*base_model_name_or_path")
def test_only_the_adapter_moves_and_it_is_saved_as_one(tmp_path):
    model = adapted()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = unlearn(
        model,
        split(),
        "two-stage",
        profile="released",
        out=tmp_path / "run",
        guard=None,
        compute=Compute("cpu"),
        **QUICK,
    )
    after = result.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if is_adapter(name)}

    adapter = tmp_path / "run" / "model"
    loaded = peft.PeftModel.from_pretrained(base(), adapter).double().eval()
    inputs = {name: value for name, value in data().items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, result.model(**inputs).logits)
        assert not torch.allclose(loaded(**inputs).logits, model(**inputs).logits)
    assert (adapter / "adapter_model.safetensors").stat().st_size < (tmp_path / "run/model.safetensors").stat().st_size


def test_a_model_without_an_adapter_has_none_to_save(tmp_path):
    unlearn(base(), split(), "original", out=tmp_path / "run", compute=Compute("cpu"))
    assert not (tmp_path / "run" / "model" / "adapter_config.json").exists()


def test_unweave_forgets_and_keeps_by_an_adapter_with_its_defaults(digits):
    """Adapters begin at zero: with step lengths relative to them alone, half of the neighbours were lost."""
    benchmark, task, original = digits
    layers = [name for name, module in original.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=layers)
    model = peft.get_peft_model(copy.deepcopy(original), config).eval()
    own = benchmark.settings_for(find_method("unweave"), None)
    result = unlearn(model, task.train, "unweave", seed=0, compute=Compute("cpu"), **own)
    found = evaluate(result.model, task.train, task.test, questions=(), resamples=0, compute=Compute("cpu"))
    assert found["train"]["forget"]["accuracy"] <= 0.005
    for subset in ("adjacent", "remote"):
        assert found["train"][subset]["accuracy"] >= 0.95
        assert found["test"][subset]["accuracy"] >= 0.92


def test_steps_are_measured_by_the_layers_of_trained_adapters():
    model = adapted()
    named = dict(model.named_parameters())
    layers = {name for name in named if ".base_layer." in name}
    trained = {name for name in named if is_adapter(name)}
    bench = Workbench(model, split(), device=torch.device("cpu"))
    found = {weight.data_ptr() for weight in bench.changed_weights()}
    assert found == {named[name].data_ptr() for name in layers | trained}
    for name in trained:
        if "lora_" in name:
            named[name].requires_grad_(False)
    bench = Workbench(model, split(), device=torch.device("cpu"))
    found = {weight.data_ptr() for weight in bench.changed_weights()}
    assert found == {named[name].data_ptr() for name in trained if "modules_to_save" in name}
