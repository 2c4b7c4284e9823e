"""The networks of benchmarks.

A text names the source: a folder or Hub name of transformers (``microsoft/resnet-18``), a folder inside the data
folder, ``timm:NAME``, ``torchvision:NAME`` (with the weights of these packages), or ``module:function``, a user's
function that takes the number of classes.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from unweave.errors import UsageError
from unweave.requests import function_named
from unweave.storage import quiet_transformers

SCRATCH = "scratch"


@dataclass(frozen=True)
class Network:
    """A function that makes a network, and a text that says where its initial weights come from."""

    make: Callable[[], nn.Module]
    initialisation: str


def image_network(source: str, *, classes: int, data: str | None) -> Network:
    """Return the image network that a text names, with a new head."""
    kind, colon, name = source.partition(":")
    if colon and kind in PACKAGES:
        return Network(partial(PACKAGES[kind], name, classes), f"pretrained: {name} of {kind}, new head")
    return _network("AutoModelForImageClassification", source, classes=classes, data=data)


def text_network(source: str, *, classes: int, data: str | None) -> Network:
    """Return the text classifier that a text names, with a new head."""
    return _network("AutoModelForSequenceClassification", source, classes=classes, data=data)


def _network(auto: str, source: str, *, classes: int, data: str | None) -> Network:
    if is_function(source):
        return Network(partial(_call, source, classes), f"made by {source}")
    fingerprint = weights_fingerprint(source, data)
    weights = f"pretrained: {source}, new head" + (f" (sha256 of the weights: {fingerprint})" if fingerprint else "")
    return Network(partial(_pretrained, auto, source, classes=classes, data=data), weights)


def is_function(source: str) -> bool:
    """Return whether a text names a function (``module:function``) rather than a model."""
    return ":" in source and not Path(source).exists()


def resnet18(*, classes: int, small_images: bool = False, width: int = 64, channels: int = 3) -> nn.Module:
    """Return a ResNet-18 with random weights; ``small_images`` replaces the stem that shrinks images fourfold."""
    transformers = need("transformers")
    sizes = [width, 2 * width, 4 * width, 8 * width]
    config = transformers.ResNetConfig(
        num_channels=channels,
        embedding_size=width,
        hidden_sizes=sizes,
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=classes,
    )
    model: nn.Module = transformers.ResNetForImageClassification(config)
    if small_images:
        stem: Any = model.get_submodule("resnet.embedder")
        stem.embedder.convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        stem.pooler = nn.Identity()
        nn.init.kaiming_normal_(stem.embedder.convolution.weight, mode="fan_out", nonlinearity="relu")
    return model


def vision_transformer(
    *, classes: int, size: int, patch: int, width: int = 192, depth: int = 9, heads: int = 3
) -> nn.Module:
    """Return a vision transformer with random weights."""
    transformers = need("transformers")
    config = transformers.ViTConfig(
        image_size=size,
        patch_size=patch,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_labels=classes,
    )
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model


def find_folder(source: str, data: str | None) -> str:
    """Return the folder of a pretrained model, as given or inside the data folder; else its name on the Hub."""
    if folder := _local_folder(source, data):
        return str(folder)
    if "/" in source and not Path(source).is_absolute() and not source.startswith("."):
        return source
    raise UsageError(
        f"The pretrained model {source!r} was found neither as a folder nor inside the data folder "
        f"({data or 'none given'}). Give --option model= a folder with config.json and model.safetensors, or a name "
        "on the Hub (OWNER/NAME)."
    )


def weights_fingerprint(source: str, data: str | None) -> str:
    """Return a short hash of the weights in a model's folder; empty if there is no such folder."""
    folder = _local_folder(source, data)
    digest = hashlib.sha256()
    files = sorted(folder.glob("*.safetensors")) if folder else []
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16] if files else ""


def _local_folder(source: str, data: str | None) -> Path | None:
    candidates = [Path(source), *([Path(data) / source] if data else [])]
    return next((folder for folder in candidates if (folder / "config.json").exists()), None)


def _pretrained(auto: str, source: str, *, classes: int, data: str | None) -> nn.Module:
    transformers = need("transformers")
    folder = find_folder(source, data)
    with quiet_transformers():
        try:
            model: nn.Module = getattr(transformers, auto).from_pretrained(
                folder, num_labels=classes, dtype=torch.float32, ignore_mismatched_sizes=True, use_safetensors=True
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise UsageError(f"The model {source!r} cannot be loaded: {error}") from error
    return model


def causal_model(source: str, data: str | None) -> nn.Module:
    """Return a pretrained causal language model."""
    transformers = need("transformers")
    folder = find_folder(source, data)
    with quiet_transformers():
        try:
            model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, use_safetensors=True
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise UsageError(f"The model {source!r} cannot be loaded: {error}") from error
    return model


def need(module: str) -> Any:
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UsageError(f"This model needs the package {package}: pip install {package} ({error}).") from error


def _call(source: str, classes: int) -> nn.Module:
    try:
        model = function_named(source)(classes)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"The model {source!r} cannot be made: {error}") from error
    if not isinstance(model, nn.Module):
        raise UsageError(f"{source} returned {type(model).__name__}, but must return a torch nn.Module.")
    return model


def _from_timm(name: str, classes: int) -> nn.Module:
    timm = need("timm")
    try:
        model: nn.Module = timm.create_model(name, pretrained=True, num_classes=classes)
    except (RuntimeError, OSError, ValueError) as error:
        raise UsageError(f"timm has no model {name!r} with weights available here: {error}") from error
    return model


def _from_torchvision(name: str, classes: int) -> nn.Module:
    models = need("torchvision.models")
    try:
        model: nn.Module = models.get_model(name, weights="DEFAULT")
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"torchvision has no model {name!r} with weights available here: {error}") from error
    head, linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    owner, _, attribute = head.rpartition(".")
    setattr(model.get_submodule(owner), attribute, nn.Linear(linear.in_features, classes))
    return model


PACKAGES: dict[str, Callable[[str, int], nn.Module]] = {"timm": _from_timm, "torchvision": _from_torchvision}
