"""The sources of networks: folders, the Hub, other packages, functions; and what is recorded."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tests.helpers import synthetic
from tests.helpers.folders import configuration
from unweave.cli import app
from unweave.errors import UsageError
from unweave.lab.benchmarks import find_benchmark, networks


def tiny(classes):
    """A model of the user's own: `tests.lab.benchmarks.test_networks:tiny`."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, classes))


def not_a_model(classes):
    return classes


class FunnyText(nn.Module):
    """A text model that is not a transformer: it adds up the tokens."""

    def __init__(self, classes):
        super().__init__()
        self.words = nn.Embedding(100, classes)

    def forward(self, input_ids, attention_mask):
        return (self.words(input_ids) * attention_mask[..., None]).sum(dim=1)


@pytest.fixture
def encoder(tmp_path):
    synthetic.encoder(tmp_path / "minilm")
    synthetic.clinc150(tmp_path, each=1, test_each=1)
    return tmp_path


@pytest.mark.parametrize("size", [224, 112, 64])
def test_a_pretrained_resnet_sees_images_of_the_size_that_is_asked_for(size):
    benchmark = find_benchmark(
        "cifar100-resnet18", options={"size": size, "model": "tests.lab.benchmarks.test_networks:tiny"}
    )
    model = benchmark.initial(0)
    seen = []
    model.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[-2:]))
    model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert seen == [(size, size)]
    assert f"{size} px" in benchmark.notes["model"]


def test_a_function_of_the_users_own(tmp_path):
    benchmark = find_benchmark("cifar100-vit", options={"model": "tests.lab.benchmarks.test_networks:tiny"})
    assert benchmark.notes["initialisation"] == "made by tests.lab.benchmarks.test_networks:tiny"
    assert benchmark.initial(0)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 20)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("tests.lab.benchmarks.test_networks:not_a_model", "returned int"),
        ("tests.lab.benchmarks.test_networks:absent", "cannot be made"),
        ("no.such.module:tiny", "cannot be made"),
        ("./nowhere", "found neither as a folder nor inside the data folder"),
        ("resnet", "found neither"),
        ("timm:vit", "needs the package timm"),
        ("torchvision:vit", "needs the package torchvision"),
    ],
)
def test_models_that_cannot_be_had_are_told(source, message, monkeypatch):
    for package in ("timm", "torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=message):
        find_benchmark("tinyimagenet-vit", options={"model": source}).initial(0)


def test_timm_brings_weights_and_a_new_head(monkeypatch):
    asked = []

    def create_model(name, *, pretrained, num_classes):
        asked.append((name, pretrained, num_classes))
        if name == "absent":
            raise RuntimeError("Unknown model")
        return tiny(num_classes)

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    benchmark = find_benchmark("celeba-vit", options={"model": "timm:vit_base_patch32_224"})
    assert benchmark.initial(0)(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).shape == (1, 4)
    assert asked == [("vit_base_patch32_224", True, 4)]
    assert benchmark.notes["initialisation"] == "pretrained: vit_base_patch32_224 of timm, new head"
    with pytest.raises(UsageError, match="timm has no model 'absent'"):
        find_benchmark("celeba-vit", options={"model": "timm:absent"}).initial(0)


def test_torchvision_brings_weights_and_gets_a_new_head(monkeypatch):
    def get_model(name, *, weights):
        if name == "absent":
            raise ValueError("Unknown model")
        assert weights == "DEFAULT"
        return nn.Sequential(tiny(1000))

    models = types.SimpleNamespace(get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    network = networks.image_network("torchvision:resnet18", classes=7, data=None)
    assert network.make()(torch.zeros(1, 3, 8, 8)).shape == (1, 7)
    with pytest.raises(UsageError, match="torchvision has no model 'absent'"):
        networks.image_network("torchvision:absent", classes=7, data=None).make()


def test_a_folder_inside_the_data_folder_and_its_fingerprint(encoder):
    benchmark = find_benchmark("clinc150", data=encoder)
    recorded = benchmark.notes["initialisation"]
    assert recorded.startswith("pretrained: minilm, new head (sha256 of the weights: ")
    assert networks.weights_fingerprint("minilm", str(encoder)) in recorded
    first, second, other = benchmark.initial(0), benchmark.initial(0), benchmark.initial(1)
    assert torch.equal(first.classifier.weight, second.classifier.weight)  # the new head follows the seed
    assert not torch.equal(first.classifier.weight, other.classifier.weight)
    assert torch.equal(first.bert.embeddings.word_embeddings.weight, other.bert.embeddings.word_embeddings.weight)
    assert first.classifier.weight.dtype == torch.float32


def test_damaged_weights_are_refused(encoder):
    (encoder / "minilm" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="'minilm' cannot be loaded"):
        find_benchmark("clinc150", data=encoder).initial(0)


def test_sentences_are_tokenised_to_the_longest(encoder, monkeypatch):
    from unweave.lab.benchmarks import clinc150

    monkeypatch.setattr(clinc150, "EACH", {"train": 1, "test": 1})
    task = find_benchmark("clinc150", data=encoder).load()
    data = task.train.samples.dataset.data
    assert data.keys() == {"input_ids", "attention_mask", "labels"}
    assert data["input_ids"].shape == data["attention_mask"].shape
    assert data["attention_mask"].sum(dim=1).max() == data["input_ids"].shape[1]  # the longest is not padded
    assert str(task.train) == "Split of 150 samples: 1 forget, 14 adjacent, 135 remote"
    monkeypatch.setattr(clinc150, "LONGEST", 3)  # longer sentences are cut
    assert find_benchmark("clinc150", data=encoder).load().train.samples.dataset.data["input_ids"].shape == (150, 3)


def test_a_text_model_of_the_users_own_needs_a_tokenizer(encoder, monkeypatch):
    from unweave.lab.benchmarks import clinc150

    monkeypatch.setattr(clinc150, "EACH", {"train": 1, "test": 1})
    own = {"model": "tests.lab.benchmarks.test_networks:FunnyText"}
    with pytest.raises(UsageError, match="has no tokenizer"):
        find_benchmark("clinc150", data=encoder, options=own).load()
    benchmark = find_benchmark("clinc150", data=encoder, options={**own, "tokenizer": "minilm"})
    data = benchmark.load().train.samples.dataset.data
    model = benchmark.initial(0)
    assert model(input_ids=data["input_ids"], attention_mask=data["attention_mask"]).shape == (150, 10)


def test_a_folder_without_tokenizer_is_told(encoder, monkeypatch):
    from unweave.lab.benchmarks import clinc150

    monkeypatch.setattr(clinc150, "EACH", {"train": 1, "test": 1})
    for file in (encoder / "minilm").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UsageError, match="holds no tokenizer"):
        find_benchmark("clinc150", data=encoder).load()
    (encoder / "minilm" / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match="The tokenizer of 'minilm' cannot be loaded"):
        find_benchmark("clinc150", data=encoder).load()


def test_a_run_with_an_encoder_from_a_folder_records_it(encoder, tmp_path, monkeypatch):
    from unweave.lab.benchmarks import clinc150

    monkeypatch.setattr(clinc150, "EACH", {"train": 1, "test": 1})
    words = ["run", "clinc150", "--method", "ga", "--data", str(encoder), "--device", "cpu", "--out"]
    done = CliRunner().invoke(app.app, [*words, str(tmp_path / "out")])
    assert done.exit_code == 0, (done.output, done.exception)
    config = configuration(tmp_path / "out")
    assert config["notes"]["model"] == "minilm"
    assert "sha256 of the weights" in config["notes"]["initialisation"]
