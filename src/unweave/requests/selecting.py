"""WHAT to forget and what is adjacent: a list, a file, a condition, or a rule.

Files and conditions become row numbers before any model is loaded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from unweave.api import Split
from unweave.data import Samples, adjacency_scores, as_groups
from unweave.errors import RunWarning, UsageError
from unweave.evaluation import FEW_ADJACENT, features
from unweave.requests.conditions import rows_where
from unweave.requests.data_table import DataTable
from unweave.requests.row_files import ROWS, Positions, rows_of_file, rows_of_ids, rows_of_numbers

What: TypeAlias = "str | Sequence[int | str]"
SAME_LABEL, NEIGHBOURS = "same-label", "neighbours"
RULES = (SAME_LABEL, NEIGHBOURS)
MOST = 1 / 3  # of the data, that may be adjacent for sharing a label
FILE = re.compile(r"[^\s'\"=<>()]+\.\w{2,6}")  # what can only be meant as the name of a file
K, FRACTION = 20, 0.10  # neighbours of each forget sample, and the share of kept samples that is adjacent


def find_rows(what: What, table: DataTable, id_column: str | None, *, subset: str) -> Positions:
    """Return the positions that a list, a file or a condition stands for.

    Args:
        what: Ids (row numbers if the data has no ids), a file of them, ``rows:FILE``, or a condition in SQL.
        table: The data.
        id_column: The column of the ids, if there is one.
        subset: The subset, for messages and for split files.

    Returns:
        The positions, sorted.

    Raises:
        UsageError: No row is meant, or it cannot be read.
    """
    if not isinstance(what, str):
        listed = list(what)
        if id_column is None:
            return _some(rows_of_numbers(listed, table, f"the list {subset}"), what, table)
        return _some(rows_of_ids([str(one) for one in listed], table, id_column, f"the list {subset}"), what, table)
    numbers = what.startswith(ROWS)
    path = Path(what.removeprefix(ROWS))
    if path.is_file():
        return _some(rows_of_file(path, table, id_column, subset=subset, numbers=numbers), what, table)
    if numbers or FILE.fullmatch(what):
        raise UsageError(f"The file {path} does not exist. Give a file of ids or row numbers, or a condition in SQL.")
    return _some(rows_where(what, table), what, table)


def is_condition(what: str) -> bool:
    """Tell whether a text is a condition, and not a file."""
    return not (what.startswith(ROWS) or FILE.fullmatch(what) or Path(what).is_file())


def _some(rows: Positions, what: What, table: DataTable) -> Positions:
    """Refuse no row, and every row."""
    if len(rows) == 0:
        raise UsageError(
            f"No row of {table.name} matches {what!r}. `unweave inspect` shows the columns and first rows."
        )
    if len(rows) == len(table):
        raise UsageError(f"All {len(table)} rows of {table.name} match {what!r}: nothing would be kept.")
    return rows


def same_label(forget: Positions, labels: Tensor, gone: Positions) -> Positions:
    """Return the other rows that have a label of the forget set, without those that earlier runs forgot."""
    groups = as_groups(labels).numpy()
    return np.setdiff1d(np.flatnonzero(np.isin(groups, np.unique(groups[forget]))), np.union1d(forget, gone))


def rule_for(what: What | None, forget: Positions, labels: Tensor, gone: Positions) -> What:
    """Return what is adjacent where nobody said it: the same label or, where that is none or too much, neighbours.

    >>> none = np.empty(0, dtype=np.int64)
    >>> rule_for(None, np.array([0]), torch.tensor([0, 0, 1, 1, 1, 1, 1, 1]), none)
    'same-label'
    >>> rule_for(None, np.array([0]), torch.tensor([0, 0, 0, 1]), none)
    'neighbours'
    """
    if what is not None:
        return what
    count = len(same_label(forget, labels, gone))
    return SAME_LABEL if 0 < count <= MOST * len(labels) else NEIGHBOURS


def split_by(
    rule: What,
    samples: Samples,
    forget: Positions,
    *,
    model: nn.Module,
    named: Positions | None,
    gone: Positions,
    device: str | torch.device | None,
) -> Split:
    """Return the training split.

    ``named`` are the adjacent rows where they were named, and ``gone`` those that earlier runs forgot.
    """
    if named is not None:
        return Split(samples, forget, np.setdiff1d(named, forget))
    if rule == SAME_LABEL:
        adjacent = same_label(forget, samples.labels(), gone)
        if len(adjacent) == 0:
            raise UsageError(
                f"No kept row has a label of the {len(forget)} rows to forget, so --adjacent {SAME_LABEL} finds none. "
                f"Use --adjacent {NEIGHBOURS}."
            )
        return Split(samples, forget, adjacent)
    kept = np.setdiff1d(np.arange(len(samples)), np.union1d(forget, gone))
    if len(kept) == 0:
        raise UsageError(f"Nothing is left to keep: earlier runs forgot the other {len(gone)} rows.")
    of_forget, of_kept = (features(model, samples, torch.from_numpy(some), device=device) for some in (forget, kept))
    scores = adjacency_scores(of_forget, of_kept, min(K, len(kept))).numpy()
    count = min(max(1, round(FRACTION * len(kept))), int((scores > 0).sum()))
    if count < FEW_ADJACENT:
        warnings.warn(
            f"Only {count} adjacent samples were found, which is little to repair neighbours with. Name more with "
            "--adjacent.",
            RunWarning,
            stacklevel=2,
        )
    return Split(samples, forget, kept[np.argsort(-scores, kind="stable")[:count]])


def test_split_by(
    rule: What,
    samples: Samples,
    train: Split,
    forget: Positions,
    *,
    model: nn.Module,
    named: Positions | None,
    device: str | torch.device | None,
) -> Split:
    """Return the split of test data by the same rule: what is adjacent to the forget set of the training data."""
    kept = np.setdiff1d(np.arange(len(samples)), forget)
    if named is not None:
        adjacent = np.intersect1d(named, kept)
    elif rule == NEIGHBOURS:
        of_train = features(model, train.samples, torch.from_numpy(train.forget), device=device)
        of_test = features(model, samples, torch.from_numpy(kept), device=device)
        scores = adjacency_scores(of_train, of_test, min(K, len(kept))).numpy()
        adjacent = kept[np.argsort(-scores, kind="stable")[: max(1, round(FRACTION * len(kept)))]]
    else:
        labels = {*as_groups(train.samples.labels())[train.forget].tolist()}
        adjacent = kept[np.isin(as_groups(samples.labels()).numpy()[kept], list(labels))]
    return Split(samples, forget, adjacent, allow_empty=True)
