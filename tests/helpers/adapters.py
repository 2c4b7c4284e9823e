"""A tiny model with a LoRA adapter."""

from __future__ import annotations

import pytest
import torch

from unweave import Split

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

QUICK = {
    "stage1_learning_rate": 1e-2,
    "stage2_learning_rate": 1e-2,
    "stage2_epochs": 2,
    "stage2_adjacent_batch": 4,
    "steps": "fixed",
}


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
