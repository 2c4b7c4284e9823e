"""A request on its way to a run: first the rows, without any model, then the model and the splits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unweave.api import Split
from unweave.data import Samples, Stored, as_keep_data
from unweave.errors import UsageError
from unweave.record import forgotten_tests
from unweave.requests.adapters import ADAPTER, AdapterCheckpoint
from unweave.requests.data_table import DataTable
from unweave.requests.hub_models import TransformersCheckpoint
from unweave.requests.label_numbers import label_numbers
from unweave.requests.models import ModelSource
from unweave.requests.own_models import OwnModel, has_name_of_function
from unweave.requests.questions import require_answers, template_of
from unweave.requests.reading import open_data
from unweave.requests.roles import LANGUAGE, NamedColumns, Roles
from unweave.requests.row_files import Positions
from unweave.requests.run_files import earlier_split, gone_before, weights_of_run
from unweave.requests.selecting import (
    NEIGHBOURS,
    RULES,
    SAME_LABEL,
    What,
    find_rows,
    is_condition,
    rule_for,
    split_by,
    test_split_by,
)
from unweave.requests.timm_models import TIMM, TimmModel

NONE: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Located:
    """One data set with its labels, and the rows that are meant in it. ``named`` are adjacent rows, if named."""

    table: DataTable
    roles: Roles
    labels: Tensor
    forget: Positions
    named: Positions | None


@dataclass(frozen=True)
class Rows:
    """The rows that a request means, found without a model."""

    checkpoint: ModelSource
    train: Located
    test: Located | None
    rule: What  # what is adjacent
    after: Path | None = None  # the folder of the run before
    gone: Positions = field(default_factory=lambda: NONE)  # rows of training data that earlier runs forgot
    test_split: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs."""

    model: nn.Module
    split: Split
    test: Split | None
    parts: tuple[Any, ...]  # what is saved with the model


def open_checkpoint(name: str, weights: str | None = None) -> ModelSource:
    """Open what a request names as its model, without its weights."""
    file = None if weights is None else Path(weights)
    if file is not None and not file.exists():
        raise UsageError(f"The weights {file} do not exist. Give a safetensors file.")
    if name.startswith(TIMM):
        return TimmModel.open(name, file)
    if has_name_of_function(name):
        return OwnModel.open(name, file)
    if weights is not None:
        raise UsageError(f"Weights go with a model of your own (MODULE:FUNCTION) or of timm; {name} has its own.")
    if (Path(name) / ADAPTER).is_file():
        return AdapterCheckpoint.open(name)
    return TransformersCheckpoint.open(name)


def open_of_run(folder: Path, model: str) -> ModelSource:
    """Open the model of a run's folder. ``model`` is the one that the run's request names."""
    found = weights_of_run(folder)
    return open_checkpoint(str(found)) if found.is_dir() else open_checkpoint(model, str(found))


def find(
    checkpoint: ModelSource,
    *,
    train: str,
    test: str | None,
    columns: NamedColumns,
    forget: What,
    adjacent: What | None,
    after: Path | None = None,
) -> Rows:
    """Find the columns and the rows of a request. No weights are loaded."""
    table = open_data(train)
    roles = roles_of(checkpoint, table, columns)
    labels = labels_of(checkpoint, table, roles)
    rows = find_rows(forget, table, roles.id, subset="forget")
    if adjacent == SAME_LABEL and checkpoint.kind == LANGUAGE:
        raise UsageError(f"Answers are not labels, so --adjacent {SAME_LABEL} means nothing here. Use {NEIGHBOURS}.")
    gone = gone_before(after, table)
    if after is not None and len(np.setdiff1d(rows, gone)) == 0:
        raise UsageError(f"{after} already forgot all {len(rows)} rows. Name others with --forget.")
    rule = rule_for(adjacent, rows, labels, gone)
    named = None if rule in RULES else find_rows(rule, table, roles.id, subset="adjacent")
    if named is not None and len(np.setdiff1d(named, np.union1d(rows, gone))) == 0:
        before = ", or were forgotten before" if len(gone) else ""
        raise UsageError(
            f"All {len(named)} rows that are adjacent by {adjacent!r} are to be forgotten{before}. Name others."
        )
    located = Located(table, roles, labels, rows, named)
    found = _located_test(test, located, checkpoint, forget, rule) if test else None
    return Rows(checkpoint, located, found, rule, after, gone)


def roles_of(checkpoint: ModelSource, table: DataTable, columns: NamedColumns) -> Roles:
    """Return the columns by role and, of a language model, the template."""
    roles = columns.roles(table, checkpoint.kind)
    if checkpoint.kind != LANGUAGE:
        return roles
    return replace(roles, template=template_of(columns.template, checkpoint.reader, checkpoint.name))


def labels_of(checkpoint: ModelSource, table: DataTable, roles: Roles) -> Tensor:
    """Return the label of every row as the model counts its classes. All answers of a language model count as one."""
    if checkpoint.kind == LANGUAGE:
        require_answers(table, roles)
        return torch.zeros(len(table), dtype=torch.long)
    return label_numbers(table, roles.label, checkpoint.names, checkpoint.classes)


def _located_test(name: str, train: Located, checkpoint: ModelSource, forget: What, rule: What) -> Located:
    """Find the test data's rows. A condition means them too, while ids and row numbers are those of training data."""
    table = open_data(name, part="test")
    columns = tuple(map(table.require, train.roles.inputs)), table.require(train.roles.label)
    roles = Roles(*columns, template=train.roles.template)
    labels = labels_of(checkpoint, table, roles)
    rows = rows_if_condition(forget, table)
    named = None if rule in RULES else rows_if_condition(rule, table)
    return Located(table, roles, labels, NONE if rows is None else rows, named)


def rows_if_condition(what: What, table: DataTable) -> Positions | None:
    """Return the rows of test data that a condition means; None if it is a file or a list."""
    from unweave.requests.conditions import rows_where

    return rows_where(what, table) if isinstance(what, str) and is_condition(what) else None


def prepare(
    rows: Rows,
    *,
    device: str | torch.device | None = None,
    skip_unreadable: bool = False,
    keep_data: str = "auto",
) -> Prepared:
    """Load the model, decode the data, and split it."""
    train, test = (
        None
        if part is None
        else rows.checkpoint.read(part.table, part.roles, part.labels, skip_unreadable=skip_unreadable)
        for part in (rows.train, rows.test)
    )
    assert train is not None
    model = rows.checkpoint.load()
    how: dict[str, Any] = {"model": model, "device": device}
    forget = _readable(rows.train.forget, train)
    if len(forget) == 0:
        raise UsageError(f"None of the {len(rows.train.forget)} rows to forget can be read.")
    split = split_by(rows.rule, _samples(train, keep_data), forget, named=rows.train.named, gone=rows.gone, **how)
    other = None
    if test is not None and rows.test is not None:
        samples = _samples(test, keep_data)
        if rows.test_split is not None:
            other = Split.load(rows.test_split, samples)
        else:
            gone = _readable(rows.test.forget, test)
            other = test_split_by(rows.rule, samples, split, gone, named=rows.test.named, **how)
        other = _without(test, other)
    split, other = _later(rows, _without(train, split), other)
    return Prepared(model, split, other, rows.checkpoint.parts())


def _samples(stored: Stored, keep_data: str) -> Samples:
    found = Samples(stored)
    found.keep_data = as_keep_data(keep_data)
    return found


def _later(rows: Rows, split: Split, test: Split | None) -> tuple[Split, Split | None]:
    """Return the splits after the run before: what it forgot is kept no longer, and stays forgotten."""
    if rows.after is None:
        return split, test
    earlier = earlier_split(rows.after, split)
    before = forgotten_tests(rows.after, test) if test is not None else None
    return split.after(earlier), test.after(before) if test is not None and before is not None else test


def _readable(rows: Positions, stored: Stored) -> Positions:
    return np.setdiff1d(rows, getattr(stored, "unreadable", []))


def _without(stored: Stored, split: Split) -> Split:
    """Return the split without rows that cannot be read."""
    if not getattr(stored, "unreadable", []):
        return split
    kept = (_readable(split[name], stored) for name in ("forget", "adjacent", "remote"))
    return Split(split.samples, *kept, allow_empty=split.allow_empty)
