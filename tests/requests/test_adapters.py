"""Checkpoints that are an adapter of PEFT on a base model, and models of timm (a stand-in: the package is large)."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from tests.helpers.own_files import (
    bert,
    pictures,
    png,
    sentences,
    tokenizer,
    transformers,
    write_table,
    write_text_checkpoint,
)
from unweave import Request, UsageError

peft = pytest.importorskip("peft")
QUICK = {"method": "ga", "settings": {"learning_rate": 1e-2, "epochs": 1}, "no_guard": True, "device": "cpu"}


@pytest.fixture
def adapter(tmp_path):
    """Write a base model and an adapter with a head of its own; return the model that was saved."""
    write_text_checkpoint(tmp_path / "base")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    torch.manual_seed(3)
    how = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], init_lora_weights=False)
    model = peft.get_peft_model(base, how).eval()
    with torch.no_grad():
        model.base_model.model.classifier.modules_to_save["default"].bias.add_(0.25)
    model.save_pretrained(tmp_path / "adapter")
    write_table(tmp_path / "train.parquet", sentences())
    return model


def request(tmp_path, **changes):
    given = {"model": str(tmp_path / "adapter"), "train": str(tmp_path / "train.parquet"), "forget": "person_id = 3"}
    return Request(**{**given, **QUICK, **changes})


def test_an_adapter_is_opened_on_its_base_and_only_it_is_trained(adapter, tmp_path):
    result = request(tmp_path, out=str(tmp_path / "run")).run()
    words = tokenizer()([row["text"] for row in sentences(6)], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(result.original(**words).logits, adapter(**words).logits)
    changed = {
        name
        for (name, old), new in zip(result.original.named_parameters(), result.model.parameters(), strict=True)
        if not torch.equal(old, new)
    }
    assert changed
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "run" / "model").eval()
    with torch.no_grad():
        assert torch.equal(opened(**words).logits, result.model(**words).logits)
    later = Request(after=str(tmp_path / "run"), forget=["r1"], **QUICK).prepare()
    with torch.no_grad():
        assert torch.equal(later.model(**words).logits, result.model(**words).logits)


def test_an_adapter_without_weights_or_base_is_refused(adapter, tmp_path):
    (tmp_path / "adapter" / "adapter_model.safetensors").rename(tmp_path / "kept")
    (tmp_path / "adapter" / "adapter_model.bin").write_bytes(b"pickled")
    with pytest.raises(UsageError, match=r"Convert it first: unweave convert .*adapter_model\.bin"):
        request(tmp_path).find()
    (tmp_path / "kept").rename(tmp_path / "adapter" / "adapter_model.safetensors")
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="names no base model"):
        request(tmp_path).find()


def test_an_adapter_brings_the_head_that_its_base_lacks(tmp_path):
    bert().bert.save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    torch.manual_seed(3)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    how = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=False)
    model = peft.get_peft_model(base, how).eval()
    model.save_pretrained(tmp_path / "adapter")
    rows = [{**row, "label": number % 3} for number, row in enumerate(sentences())]
    write_table(tmp_path / "train.parquet", rows)
    prepared = request(tmp_path).prepare()
    words = tokenizer()([row["text"] for row in rows[:4]], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(prepared.model(**words).logits, model(**words).logits)


class Convolution(nn.Module):
    """A model as timm makes them: it knows its classes, and where its head is."""

    def __init__(self, num_classes=1000):
        super().__init__()
        self.num_classes, self.pretrained_cfg = num_classes, {"classifier": "fc"}
        self.body, self.fc = nn.Conv2d(3, 4, 3, stride=4), nn.Linear(4, num_classes)

    def forward(self, images):
        return self.fc(self.body(images).mean(dim=(2, 3)))


@pytest.fixture
def timm(monkeypatch):
    found, data = types.ModuleType("timm"), types.ModuleType("timm.data")

    def create_model(name, *, pretrained, **how):
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        assert not pretrained
        return Convolution(**how)

    def create_transform(*, input_size, is_training):
        assert not is_training
        return lambda image: torch.from_numpy(np.array(image.resize(input_size[1:]))).permute(2, 0, 1) / 255

    found.create_model, found.data = create_model, data
    data.create_transform, data.resolve_model_data_config = create_transform, lambda model: {"input_size": (3, 8, 8)}
    monkeypatch.setitem(sys.modules, "timm", found)
    monkeypatch.setitem(sys.modules, "timm.data", data)


def test_a_model_of_timm_reads_images_through_its_own_transform(timm, tmp_path):
    rows = [{"id": row, "image": png(image), "label": row % 3} for row, (image, _) in enumerate(pictures())]
    data = str(write_table(tmp_path / "bytes.parquet", rows))
    torch.manual_seed(0)
    weights = Convolution(3).state_dict()
    safetensors.torch.save_file(weights, tmp_path / "mine.safetensors")
    own = {"model": "timm:tiny", "weights": str(tmp_path / "mine.safetensors"), "train": data, **QUICK}
    result = Request(**own, forget=[0, 3], out=str(tmp_path / "run")).run()
    assert result.original.num_classes == 3
    assert torch.equal(result.original.fc.weight, weights["fc.weight"])
    pixels, _ = result.split.samples.read(torch.tensor([5]))
    expected = torch.from_numpy(np.array(pictures()[5][0].resize((8, 8)))).permute(2, 0, 1) / 255
    assert torch.equal(pixels[0], expected)
    later = Request(after=str(tmp_path / "run"), forget=[6], **QUICK).prepare()
    assert torch.equal(later.model.fc.weight, result.model.fc.weight)
    with pytest.raises(UsageError, match=r"The model timm:tyni cannot be made by timm: Unknown model \(tyni\)"):
        Request(**{**own, "model": "timm:tyni"}, forget=[0]).find()
    with pytest.raises(UsageError, match=r"mine\.pt is not a safetensors file"):
        (tmp_path / "mine.pt").write_bytes(b"pickled")
        Request(**{**own, "weights": str(tmp_path / "mine.pt")}, forget=[0]).find()


def test_timm_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UsageError, match="The model timm:tiny needs the package timm: pip install timm"):
        Request(model="timm:tiny", train="data.parquet", forget=[0]).find()
