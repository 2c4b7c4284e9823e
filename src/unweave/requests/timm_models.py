"""timm:NAME: an image model of timm, read through timm's own transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unweave.data import Stored
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.own_models import OwnInputs
from unweave.requests.packages_needed import need
from unweave.requests.pictures import read_image
from unweave.requests.roles import Kind, Roles
from unweave.runs import load_weights
from unweave.storage import refuse_pickled, tensor_shapes

TIMM = "timm:"
FIRST = 3  # of what is wrong, so many are shown


@dataclass(frozen=True)
class TimmModel:
    """A model of timm. Its weights come from a safetensors file or, without one, pretrained from the Hub."""

    name: str
    weights: Path | None
    module: nn.Module = field(repr=False)
    names: Mapping[str, int] = field(default_factory=dict)
    has_folder: ClassVar[bool] = False

    @classmethod
    def open(cls, name: str, weights: Path | None) -> TimmModel:
        """Make the model with as many classes as its weights have."""
        return cls(name, weights, _made(name, weights, pretrained=weights is None))

    @property
    def kind(self) -> Kind:
        """What the model reads."""
        return "image"

    @property
    def classes(self) -> int | None:
        """How many classes the model has."""
        return int(self.module.num_classes)  # type: ignore[arg-type]

    @property
    def reader(self) -> None:
        """Nothing: the model has no processor or tokenizer of its own."""

    def read(self, table: DataTable, roles: Roles, labels: Tensor, *, skip_unreadable: bool) -> Stored:
        """Turn images into tensors with the transform that timm made the model for."""
        timm = need("timm.data", "Reading images for a model of timm")
        transform = timm.create_transform(**timm.resolve_model_data_config(self.module), is_training=False)

        def make(values: list[Any]) -> Tensor:
            images = [read_image(value, table.folder, 3) for value in values]
            if None in images:
                rows = [str(place) for place, image in enumerate(images) if image is None][:FIRST]
                raise UsageError(
                    f"{images.count(None)} images in a part of {table.name} cannot be read (first in it: "
                    f"{', '.join(rows)}). Repair them, or take their rows out: models of timm skip none."
                )
            return torch.stack([transform(image) for image in images])

        return OwnInputs(table, roles, labels, make)

    def load(self) -> nn.Module:
        """Return the model with its weights."""
        return (self.module if self.weights is None else load_weights(self.module, self.weights)).eval()

    def fresh(self, start: str | None) -> nn.Module:
        """Return the model with random weights, or with those of ``start``, which is a safetensors file."""
        module = _made(self.name, self.weights, pretrained=False, classes=self.classes)
        return module if start is None else load_weights(module, start)

    def parts(self) -> tuple[Any, ...]:
        """Return nothing: only the weights are saved."""
        return ()


def _made(name: str, weights: Path | None, *, pretrained: bool, classes: int | None = None) -> nn.Module:
    timm = need("timm", f"The model {name}")
    if weights is not None:
        refuse_pickled(weights)
    how: dict[str, Any] = {"pretrained": pretrained}
    try:
        made = timm.create_model(name.removeprefix(TIMM), **how)
        head = f"{(getattr(made, 'pretrained_cfg', None) or {}).get('classifier', '')}.weight"
        shape = tensor_shapes(weights).get(head) if weights is not None else None
        wanted = classes or (shape[0] if shape else None)
        if wanted is not None and wanted != made.num_classes:
            made = timm.create_model(name.removeprefix(TIMM), num_classes=wanted, **how)
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        if isinstance(error, UsageError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"The model {name} cannot be made by timm: {reason}") from error
    found: nn.Module = made.float()
    return found
