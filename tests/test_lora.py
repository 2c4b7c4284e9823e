"""Models with an adapter: only the adapter moves, and it is saved as one."""

from __future__ import annotations

import pytest
import torch

from unweave import Split, unlearn

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

QUICK = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_epochs": 2, "stage2_adjacent_batch": 4}


def base():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config).double().eval()


def adapted():
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    return peft.get_peft_model(base(), config).double().eval()


def data():
    tokens = torch.randint(1, 30, (30, 7), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.arange(30) // 10}


def split():
    return Split(data(), forget=range(5), adjacent=range(5, 10), remote=range(10, 30))


def is_adapter(name):
    return "lora_" in name or "modules_to_save" in name


@pytest.mark.filterwarnings("ignore:.*base_model_name_or_path")
def test_only_the_adapter_moves_and_it_is_saved_as_one(tmp_path):
    model = adapted()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = unlearn(model, split(), out=tmp_path / "run", device="cpu", limits=None, **QUICK)
    after = result.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if is_adapter(name)}

    adapter = tmp_path / "run" / "adapter"
    loaded = peft.PeftModel.from_pretrained(base(), adapter).double().eval()
    inputs = {name: value for name, value in data().items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, result.model(**inputs).logits)
        assert not torch.allclose(loaded(**inputs).logits, model(**inputs).logits)
    assert (adapter / "adapter_model.safetensors").stat().st_size < (tmp_path / "run/model.safetensors").stat().st_size


def test_a_model_without_an_adapter_has_none_to_save(tmp_path):
    unlearn(base(), split(), "original", out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "adapter").exists()
