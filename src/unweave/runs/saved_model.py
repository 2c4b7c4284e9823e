"""The model in a run's folder: what ``from_pretrained`` opens or, of any other module, its weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unweave.engine import Callback
from unweave.errors import UsageError
from unweave.runs.weights import to_bytes
from unweave.storage import MODEL, WEIGHTS, is_pretrained, save_model_folder, sync_folder, write_whole


class SaveWith(Callback):
    """Save a tokenizer, an image processor or the names of the labels with the model, in ``DIR/model``.

    Args:
        parts: What transformers saves by ``save_pretrained(folder)``: a tokenizer, an image processor.
        labels: The names of the classes, in the order of the outputs. None: those that the model knows.

    >>> SaveWith(labels=["cat", "dog"]).labels
    ('cat', 'dog')
    """

    def __init__(self, *parts: Any, labels: Sequence[str] | None = None) -> None:
        self.parts, self.labels = parts, None if labels is None else tuple(labels)

    def check(self) -> None:
        """Raise a `UsageError` for a part that cannot be saved, and for labels that are no names."""
        for part in self.parts:
            if not callable(getattr(part, "save_pretrained", None)):
                raise UsageError(
                    "SaveWith takes tokenizers and processors, which have save_pretrained, not a "
                    f"{type(part).__name__}."
                )
        for label in self.labels or ():
            if not isinstance(label, str):
                raise UsageError(f"SaveWith(labels=...) takes names of classes, but {label!r} is not a string.")

    def check_model(self, model: nn.Module) -> None:
        """Raise a `UsageError` if there is something to save, but not in the folder of this model."""
        if not self.parts and self.labels is None:
            return
        if not (is_pretrained(model) or has_adapter(model)):
            raise UsageError(
                f"SaveWith saves with a model that from_pretrained can open. Of this {type(model).__name__} only the "
                "weights are saved. Leave SaveWith out."
            )
        known = getattr(getattr(model, "config", None), "num_labels", None)
        if self.labels is not None and len(self.labels) != known:
            raise UsageError(f"SaveWith has the names of {len(self.labels)} labels, but the model has {known}.")


def has_adapter(model: nn.Module) -> bool:
    """Tell whether a model has an adapter of ``peft``, such as LoRA."""
    return hasattr(model, "peft_config")


def save_model(model: nn.Module, folder: Path, beside: SaveWith) -> None:
    """Write a run's model into its folder.

    A model of transformers goes to ``model/``, in its own form. Of another module the weights go to
    ``model.safetensors``; with an adapter of peft, ``model/`` holds the adapter in addition.
    """
    whole = is_pretrained(model)
    if not whole:
        write_whole(folder / WEIGHTS, to_bytes(model.state_dict()))
    if not (whole or has_adapter(model)):
        return
    begun = folder / f"{MODEL}.partial"
    for left in (begun, folder / MODEL):
        shutil.rmtree(left, ignore_errors=True)
    if whole:
        _save_named(model, begun, beside.labels)
    else:
        # Trained embeddings are among the modules to save. For others peft would query the Hub.
        model.save_pretrained(os.fspath(begun), save_embedding_layers=False)  # type: ignore[operator]
    for part in beside.parts:
        part.save_pretrained(os.fspath(begun))
    _sync_files(begun)
    begun.rename(folder / MODEL)


def _save_named(model: Any, folder: Path, labels: Sequence[str] | None) -> None:
    """Save a model of transformers with these names of its classes. The model itself keeps the ones it has."""
    if labels is None:
        save_model_folder(model, folder)
        return
    before = model.config.id2label, model.config.label2id
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {name: number for number, name in enumerate(labels)}
    try:
        save_model_folder(model, folder)
    finally:
        model.config.id2label, model.config.label2id = before


def _sync_files(folder: Path) -> None:
    """Write the files of a folder to disk, and their names."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    sync_folder(folder)
