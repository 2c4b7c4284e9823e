"""Adapters of PEFT, such as LoRA: a folder with the adapter, on the base model that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from unweave.data import Stored
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.hub_models import AUTO, HEADS, TransformersCheckpoint, explained
from unweave.requests.packages_needed import need
from unweave.requests.roles import Kind, Roles
from unweave.storage import check_json_files, read_json, read_tensors, tensor_shapes

ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TASKS: dict[str, Kind] = {"SEQ_CLS": "text", "CAUSAL_LM": "language"}
READERS = ("tokenizer_config.json", "preprocessor_config.json")


@dataclass(frozen=True)
class AdapterCheckpoint:
    """An adapter of PEFT. Only its weights are trained, and its head if it has one; the base model stays."""

    name: str
    base: TransformersCheckpoint = field(repr=False)
    has_folder: ClassVar[bool] = True

    @classmethod
    def open(cls, name: str) -> AdapterCheckpoint:
        """Read the adapter's configuration and that of its base model; load no weights."""
        need("peft", "Opening an adapter")
        folder = Path(name)
        check_json_files(folder)
        about = read_json(folder / ADAPTER, any_number=True)
        base = about.get("base_model_name_or_path") if isinstance(about, dict) else None
        if not isinstance(base, str) or not base:
            raise UsageError(
                f"{folder / ADAPTER} names no base model (base_model_name_or_path). Save the adapter again."
            )
        if not (folder / WEIGHTS).is_file():
            pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth"))
            hint = f" Convert it first: unweave convert {folder / pickled[0]}" if pickled else ""
            raise UsageError(f"{folder} has no {WEIGHTS}.{hint}")
        here = base if not (folder / base).is_dir() else str(folder / base)
        found = TransformersCheckpoint.read_configuration(here)
        kind = _kind_of_adapter(about) or (found.kind if found.kind in AUTO else None)
        if kind is None:
            raise UsageError(
                f"Neither the adapter {name} nor its base model {base} has a head for classification, or is a causal "
                "language model. Give the adapter that was trained on your data."
            )
        classes = None if kind == "language" else _classes(folder / WEIGHTS)
        if classes is not None and classes != found.config.num_labels:
            found.config.num_labels = classes  # the adapter brings a head of its own
        return cls(name, TransformersCheckpoint(here, found.config, kind))

    @property
    def kind(self) -> Kind:
        """What the model reads."""
        return self.base.kind

    @property
    def names(self) -> Mapping[str, int]:
        """The model's classes by name."""
        return self.base.names

    @property
    def classes(self) -> int | None:
        """How many outputs the model has. None: it is a language model."""
        return self.base.classes

    @cached_property
    def reader(self) -> Any:
        """The processor or the tokenizer: the adapter's own, or that of the base model."""
        own = any((Path(self.name) / name).is_file() for name in READERS)
        return TransformersCheckpoint(self.name if own else self.base.name, self.base.config, self.base.kind).reader

    def read(self, table: DataTable, roles: Roles, labels: Tensor, *, skip_unreadable: bool) -> Stored:
        """Decode the inputs as the base model takes them."""
        where = TransformersCheckpoint(self.base.name, self.base.config, self.base.kind)
        where.__dict__["reader"] = self.reader  # instead of reading it again
        return where.read(table, roles, labels, skip_unreadable=skip_unreadable)

    def load(self) -> nn.Module:
        """Return the base model with the adapter, whose weights are trained."""
        peft = need("peft", "Opening an adapter")
        model = self.fresh(None)
        file = Path(self.name) / WEIGHTS
        with explained(self.name, "loaded"):
            about = peft.set_peft_model_state_dict(model, read_tensors(file))
        if about.unexpected_keys:
            raise UsageError(f"{file} does not fit the base model {self.base.name}: {about.unexpected_keys[0]} is new.")
        return model.eval()

    def fresh(self, start: str | None) -> nn.Module:
        """Return the base model with an adapter that has not been trained."""
        peft = need("peft", "Opening an adapter")
        with explained(self.name, "opened"):
            how = peft.PeftConfig.from_pretrained(start or self.name)
            how.inference_mode = False
            made: nn.Module = peft.get_peft_model(self.base.begun(), how)
        return made.float().eval()

    def parts(self) -> tuple[Any, ...]:
        """Return what is saved with the model: its processor or tokenizer."""
        return (self.reader,)


def _kind_of_adapter(about: Mapping[str, Any]) -> Kind | None:
    """Return what an adapter with a head of its own reads, from the entries that PEFT writes."""
    if (task := about.get("task_type")) in TASKS:
        return TASKS[task]
    named = str((about.get("auto_mapping") or {}).get("base_model_class", ""))
    return next((kind for ending, kind in HEADS.items() if ending in named), None)


def _classes(weights: Path) -> int | None:
    """Return how many classes the head of an adapter has; None if it has no head."""
    heads = {
        name: shape
        for name, shape in tensor_shapes(weights).items()
        if name.endswith((".classifier.weight", ".score.weight", ".out_proj.weight")) and len(shape) == 2
    }
    return next(iter(heads.values()))[0] if heads else None
