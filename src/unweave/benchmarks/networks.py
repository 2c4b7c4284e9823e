"""Where a benchmark's network comes from.

One text says it: a folder or Hub name of transformers (``microsoft/resnet-18``), a folder inside the data folder,
``timm:NAME``, ``torchvision:NAME``, or ``module:function``, a function of yours that takes the number of classes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.errors import UsageError

SCRATCH = "scratch"


def image_network(source: str, *, classes: int, data: str | None) -> Callable[[], nn.Module]:
    """Return a function that makes the image network with its initial weights and a new head."""
    kind, colon, name = source.partition(":")
    if kind == "timm" and colon:
        return lambda: _need("timm").create_model(name, pretrained=False, num_classes=classes)
    if kind == "torchvision" and colon:
        return lambda: _need("torchvision.models").get_model(name, weights=None, num_classes=classes)
    if colon and not Path(source).exists():
        return lambda: _call(source, classes)
    return lambda: _pretrained("AutoModelForImageClassification", source, classes=classes, data=data)


def text_network(source: str, *, classes: int, data: str | None) -> Callable[[], nn.Module]:
    """Return a function that makes the text classifier with its initial weights and a new head."""
    if ":" in source and not Path(source).exists():
        return lambda: _call(source, classes)
    return lambda: _pretrained("AutoModelForSequenceClassification", source, classes=classes, data=data)


def resnet18(*, classes: int, small_images: bool = False, width: int = 64) -> nn.Module:
    """Return a ResNet-18 with random weights; for small images without the stem that shrinks them fourfold."""
    transformers = _need("transformers")
    sizes = [width, 2 * width, 4 * width, 8 * width]
    config = transformers.ResNetConfig(
        embedding_size=width, hidden_sizes=sizes, depths=[2, 2, 2, 2], layer_type="basic", num_labels=classes
    )
    model: Any = transformers.ResNetForImageClassification(config)
    if small_images:
        stem = model.resnet.embedder
        stem.embedder.convolution = nn.Conv2d(3, width, 3, padding=1, bias=False)
        stem.pooler = nn.Identity()
        nn.init.kaiming_normal_(stem.embedder.convolution.weight, mode="fan_out", nonlinearity="relu")
    return model  # type: ignore[no-any-return]


def vision_transformer(
    *, classes: int, size: int, patch: int, width: int = 192, depth: int = 9, heads: int = 3
) -> nn.Module:
    """Return a vision transformer with random weights."""
    transformers = _need("transformers")
    config = transformers.ViTConfig(
        image_size=size,
        patch_size=patch,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_labels=classes,
    )
    return transformers.ViTForImageClassification(config)  # type: ignore[no-any-return]


def find_folder(source: str, data: str | None) -> str:
    """Return the folder of a pretrained model: as given, or inside the data folder; or else the Hub's name."""
    for folder in [Path(source), *([Path(data) / source] if data else [])]:
        if (folder / "config.json").exists():
            return str(folder)
    if "/" in source and not Path(source).is_absolute() and not source.startswith("."):
        return source
    raise UsageError(
        f"The pretrained model {source!r} was found neither as a folder nor inside the data folder "
        f"({data or 'none given'}). Give --option model= a folder with config.json and model.safetensors, or a name "
        "of the Hub (OWNER/NAME)."
    )


def _pretrained(auto: str, source: str, *, classes: int, data: str | None) -> nn.Module:
    transformers = _need("transformers")
    folder = find_folder(source, data)
    with quiet(transformers):
        try:
            model = getattr(transformers, auto).from_pretrained(
                folder, num_labels=classes, dtype=torch.float32, ignore_mismatched_sizes=True, use_safetensors=True
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"The model {source!r} cannot be loaded: {error}") from error
    return model  # type: ignore[no-any-return]


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from telling that the new head is new."""
    logging = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UsageError(f"This model needs the package {package}: pip install {package} ({error}).") from error


def _call(source: str, classes: int) -> nn.Module:
    module, _, function = source.partition(":")
    try:
        model = getattr(importlib.import_module(module), function)(classes)
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(f"The model {source!r} cannot be made: {error}") from error
    if not isinstance(model, nn.Module):
        raise UsageError(f"{source} returned {type(model).__name__}, but must return a torch nn.Module.")
    return model
