"""Checkpoints in the layout of Hugging Face: a folder, or a name on the Hub. No code that comes with them is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unweave.data import Stored
from unweave.errors import RunError, UsageError, short
from unweave.requests.data_table import DataTable
from unweave.requests.packages_needed import need
from unweave.requests.pictures import Pictures
from unweave.requests.questions import Questions, check_tokenizer
from unweave.requests.roles import Kind, Roles
from unweave.requests.sentences import Sentences
from unweave.storage import check_json_files, quiet_transformers, read_json, tensor_shapes

HEADS: dict[str, Kind] = {
    "ForSequenceClassification": "text",
    "ForImageClassification": "image",
    "ForCausalLM": "language",
    "LMHeadModel": "language",
}
AUTO = {
    "text": "AutoModelForSequenceClassification",
    "image": "AutoModelForImageClassification",
    "language": "AutoModelForCausalLM",
}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True)
class TransformersCheckpoint:
    """A checkpoint in the layout of Hugging Face: a folder, or a name on the Hub."""

    name: str
    config: Any = field(repr=False)
    kind: Kind
    has_folder: ClassVar[bool] = True

    @classmethod
    def open(cls, name: str) -> TransformersCheckpoint:
        """Read the configuration; refuse what cannot be loaded, or only by running code that came with it."""
        found = cls.read_configuration(name)
        if found.kind not in AUTO:
            head = _head_of(found.config)
            raise UsageError(
                f"{name} has no head for classification, and is not a causal language model (architecture: {head}). "
                f"Give the checkpoint that was trained on your data, one of {', '.join(f'…{one}' for one in HEADS)}."
            )
        return found

    @classmethod
    def read_configuration(cls, name: str) -> TransformersCheckpoint:
        """Read the configuration of a checkpoint, which may lack a head; it then reads whatever its own kind is."""
        transformers = need("transformers", "Opening a checkpoint")
        folder = Path(name)
        if folder.is_dir():
            check_folder_of_model(folder)
        with explained(name, "opened"):
            config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        head = _head_of(config)
        return cls(name, config, next((kind for ending, kind in HEADS.items() if ending in head), "own"))

    @property
    def names(self) -> Mapping[str, int]:
        """The model's classes by name; none of a language model."""
        if self.kind == "language":
            return {}
        return {str(name): int(number) for number, name in self.config.id2label.items()}

    @property
    def classes(self) -> int | None:
        """How many outputs the model has. None: it is a language model."""
        return None if self.kind == "language" else int(self.config.num_labels)

    @cached_property
    def reader(self) -> Any:
        """The processor or the tokenizer."""
        with explained(self.name, "read (its processor or tokenizer)"):
            transformers = need("transformers", "Opening a checkpoint")
            if self.kind == "image":
                return transformers.AutoImageProcessor.from_pretrained(self.name, trust_remote_code=False)
            found = transformers.AutoTokenizer.from_pretrained(self.name, trust_remote_code=False)
        if not isinstance(most := found.model_max_length, int | float) or most < 1:
            raise UsageError(
                f"The tokenizer of {self.name} has model_max_length {short(most)}, but it must be a number of tokens. "
                "Correct its tokenizer_config.json."
            )
        if self.kind == "language":
            check_tokenizer(found, self.name, getattr(self.config.get_text_config(), "vocab_size", None))
        return found

    def read(self, table: DataTable, roles: Roles, labels: Tensor, *, skip_unreadable: bool) -> Stored:
        """Decode images with the checkpoint's processor, or text with its tokenizer."""
        if self.kind == "image":
            channels = getattr(self.config, "num_channels", None) or 3
            column = roles.inputs[0]
            return Pictures(table, column, labels, self.reader, channels, skip_unreadable=skip_unreadable)
        about, reader = self.config.get_text_config(), self.reader
        most, words = getattr(about, "max_position_embeddings", None), getattr(about, "vocab_size", None)
        with explained(self.name, f"used with {table.name}"):  # tokenizers raise anything
            if self.kind == "language":
                return Questions(table, roles, reader, most)
            return Sentences(table, roles, labels, reader, limit=most, words=words)

    def fresh(self, start: str | None) -> nn.Module:
        """Return the model with the weights of ``start``, whose head may be missing, or with random weights."""
        transformers = need("transformers", "Opening a checkpoint")
        kind = getattr(transformers, AUTO[self.kind])
        if start is not None:
            return TransformersCheckpoint(start, self.config, self.kind).begun()
        made: nn.Module = kind.from_config(self.config)
        return made.float().eval()

    def begun(self) -> nn.Module:
        """Return the model in float32. Weights that the checkpoint lacks, such as those of its head, are random."""
        transformers = need("transformers", "Opening a checkpoint")
        names = {"id2label": self.config.id2label, "label2id": self.config.label2id, "num_labels": self.classes}
        with explained(self.name, "loaded"):
            model: nn.Module = getattr(transformers, AUTO[self.kind]).from_pretrained(
                self.name,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                **({} if self.classes is None else names),
            )
        return model.eval()

    def parts(self) -> tuple[Any, ...]:
        """Return what is saved with the model: its processor or tokenizer."""
        return (self.reader,)

    def load(self) -> nn.Module:
        """Return the model in float32, ready to evaluate."""
        transformers = need("transformers", "Opening a checkpoint")
        with explained(self.name, "loaded"):
            model, about = getattr(transformers, AUTO[self.kind]).from_pretrained(
                self.name,
                config=self.config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        if about["missing_keys"]:
            first = sorted(map(str, about["missing_keys"]))[0]
            raise UsageError(
                f"{self.name} lacks {len(about['missing_keys'])} weights of its architecture (first: {first}), which "
                "would be random. Give the checkpoint that was trained on your labels."
            )
        loaded: nn.Module = model.eval()
        return loaded


def _head_of(config: Any) -> str:
    named = config.architectures
    return str(named[0]) if isinstance(named, list) and named else "none"


def check_folder_of_model(folder: Path) -> None:
    """Refuse a folder without a configuration, with pickled weights only, or with code of its own."""
    if not (folder / "config.json").exists():
        raise UsageError(f"{folder} has no config.json, so it is not a checkpoint. Give the folder of save_pretrained.")
    check_json_files(folder)
    about = read_json(folder / "config.json", any_number=True)
    if isinstance(about, dict) and "auto_map" in about and not _is_known(about.get("model_type")):
        raise UsageError(
            f"{folder} needs code that comes with it (trust_remote_code), and unweave runs none. Load the model in "
            "your own code, and name that: --model MODULE:FUNCTION."
        )
    if not any((folder / name).exists() for name in WEIGHTS):
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        if pickled:
            raise UsageError(
                f"{folder} holds pickled weights ({pickled[0]}), which can run code when opened. Convert them first: "
                f"unweave convert {folder / pickled[0]}"
            )
        raise UsageError(f"{folder} holds no weights: {WEIGHTS[0]} is missing.")
    _require_layers(folder, about)


def _require_layers(folder: Path, about: Any) -> None:
    """Refuse a configuration with more layers than there are weights: building them would take all time and memory."""
    held = _count_of_weights(folder)
    parts = [about, *about.values()] if isinstance(about, dict) else []
    for part in parts:
        for name, count in part.items() if isinstance(part, dict) else ():
            if "layer" in name and isinstance(count, int) and count > held:
                raise UsageError(
                    f"{folder / 'config.json'} says {name} is {short(count)}, but the checkpoint holds {held} weights, "
                    "and each layer needs at least one. Give the checkpoint as it was saved."
                )


def _count_of_weights(folder: Path) -> int:
    file = folder / WEIGHTS[0]
    if file.exists():
        return len(tensor_shapes(file))
    index = read_json(folder / WEIGHTS[1], any_number=True)
    names = index.get("weight_map") if isinstance(index, dict) else None
    return len(names) if isinstance(names, dict) else 0


def _is_known(model_type: Any) -> bool:
    return model_type in need("transformers", "Opening a checkpoint").CONFIG_MAPPING


@contextmanager
def explained(name: str, done: str) -> Iterator[None]:
    """Turn what transformers raises into one sentence, and keep its own notes off the terminal."""
    try:
        with quiet_transformers():
            yield
    except Exception as error:  # of odd files transformers raises many kinds, and tokenizers bare exceptions
        if isinstance(error, UsageError | RunError | MemoryError | torch.OutOfMemoryError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "trust_remote_code" in str(error):
            reason = "it needs code that comes with it (trust_remote_code), and unweave runs none."
        raise UsageError(f"The checkpoint {name} cannot be {done}: {reason}") from error
