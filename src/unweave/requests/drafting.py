"""A first request file: what the model and the data show is filled in, and the rest stands there as comments."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.label_numbers import label_numbers
from unweave.requests.models import ModelSource
from unweave.requests.questions import template_of
from unweave.requests.reading import open_data
from unweave.requests.request_fields import keys_of, schema_of
from unweave.requests.resolving import open_checkpoint
from unweave.requests.roles import LANGUAGE, Roles, fits, obvious_roles

SCHEMA = "request.schema.json"
FEW, MOST_GROUPS = 5, 0.5  # values shown of a column; a column with more values than this share of rows is no group

COLUMNS = ("input", "label", "prompt", "answer", "template")  # which of them there are depends on the model

Lines = list[str]


def draft_request(model: str, train: str, *, weights: str | None, home: Path, request: type) -> str:
    """Return the text of a request file for a model and its data.

    Args:
        model: The checkpoint.
        train: The training data.
        weights: The safetensors file of a model of MODULE:FUNCTION.
        home: The folder of the file. Paths in it are relative to this folder.
        request: The class of requests, whose fields are the keys.

    Returns:
        YAML with comments. What to forget is still to be filled in.

    Raises:
        UsageError: The model or the data cannot be opened.
    """
    checkpoint = open_checkpoint(model, weights)
    table = open_data(train)
    roles = obvious_roles(table, checkpoint.kind)
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        "# A request to forget. Fill in `forget`, then: unweave inspect THIS_FILE, and unweave unlearn THIS_FILE.",
        "# Paths are relative to this file.",
        "",
        f"model: {_scalar(_beside(home, model))}  # {_reads(checkpoint)}",
        *([f"weights: {_scalar(_beside(home, weights))}"] if weights else []),
        f"train: {_scalar(_beside(home, train))}  # {len(table):,} rows",
        "",
        *_columns(table, roles, checkpoint),
        "",
        *_what(table, roles),
        "",
        f"out: {_scalar('unlearned')}",
        "",
        "# Everything else, with what is used without it:",
        *_rest(request),
    ]
    return "\n".join(lines) + "\n"


def _reads(checkpoint: ModelSource) -> str:
    if checkpoint.kind == LANGUAGE:
        return "a causal language model"
    if not checkpoint.classes:
        return f"reads {checkpoint.kind}"
    names = list(checkpoint.names)
    shown = ", ".join(names[:FEW]) + (", …" if len(names) > FEW else "")
    return f"reads {checkpoint.kind}; {checkpoint.classes} classes" + (f": {shown}" if names else "")


def _columns(table: DataTable, roles: Roles, checkpoint: ModelSource) -> Lines:
    """Return the lines of the columns: those that are obvious, and the choice where several fit."""
    every = ", ".join(f"{name} ({table.kind(name)})" for name in table.columns)
    lines = [f"# The columns of the data: {every}"]
    language, (first, *_) = checkpoint.kind == LANGUAGE, (*roles.inputs, "")
    lines.append(_column("prompt" if language else "input", first, table, checkpoint, [roles.label, roles.id]))
    if language:
        lines += [_column("answer", roles.label, table, checkpoint, [first, roles.id]), *_template(checkpoint)]
    elif roles.label:
        lines += [f"label: {_scalar(roles.label)}  # {_counted(table, roles.label)}"]
        try:
            label_numbers(table, roles.label, checkpoint.names, checkpoint.classes)
        except UsageError as error:
            lines += [f"# {error}"]
    else:
        lines.append(f"label:  # name one of: {', '.join(table.columns)}")
    return [*lines, f"id: {_scalar(roles.id)}" if roles.id else "# id: the column of ids, if `forget` lists ids"]


def _column(key: str, name: str, table: DataTable, checkpoint: ModelSource, others: Sequence[str | None]) -> str:
    """Return the line of a column: its name or, where that is not obvious, those that fit and have no other role."""
    if name:
        return f"{key}: {_scalar(name)}"
    fit = [name for name in table.columns if name not in others and fits(table, name, checkpoint.kind)]
    return f"{key}:  # name one of: {', '.join(fit or table.columns)}"


def _template(checkpoint: ModelSource) -> Lines:
    """Return the line of the template, which must be the one that the model was trained with."""
    try:
        found = template_of(None, checkpoint.reader, checkpoint.name)
    except UsageError as error:
        return [f"# {error}", "# template: chat"]
    return [f"template: {_scalar(found)}  # as the model was trained: chat, or a text with {{prompt}} and {{answer}}"]


def _what(table: DataTable, roles: Roles) -> Lines:
    """Return the lines of what to forget, with examples from the groups in the data."""
    lines = ["# What to forget: a file of ids or row numbers, or a condition in SQL over the columns. For instance:"]
    examples: Lines = []
    for name in table.columns:
        if name in (roles.id, *roles.inputs) or not _is_plain(table, name):
            continue
        counts = _counts(table, name)
        if 1 < len(counts) <= max(FEW, MOST_GROUPS * len(table)):
            value = counts.most_common(1)[0][0]
            examples.append(f"# forget: {_scalar(f'{_quoted(name)} = {_sql(value)}')}  # {_counted(table, name)}")
    return [*lines, *(examples or ["# forget: ids.txt"]), "forget:"]


def _rest(request: type) -> Lines:
    """Return a comment for every other key, with its help."""
    said = {"model", "weights", "train", "id", "forget", "out", *COLUMNS}
    properties = schema_of(request)["properties"]
    lines: Lines = []
    for key in keys_of(request):
        if key not in said:
            choices = properties[key].get("enum")
            among = f" One of: {', '.join(choices)}." if choices else ""
            lines.append(f"# {key}:  # {properties[key]['description']}{among}")
    return lines


def _is_plain(table: DataTable, column: str) -> bool:
    from pyarrow import types

    kind = table.kind(column)
    return bool(
        types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind)
    )


def _counts(table: DataTable, column: str) -> Counter[Any]:
    from pyarrow import compute

    counts: Counter[Any] = Counter()
    for batch in table.batches([column]):
        for entry in compute.value_counts(batch.column(0)).to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts


def _counted(table: DataTable, column: str) -> str:
    if not _is_plain(table, column):
        return str(table.kind(column))
    counts = _counts(table, column)
    shown = ", ".join(f"{value} ({count:,} rows)" for value, count in counts.most_common(FEW))
    return f"{len(counts):,} values: {shown}{', …' if len(counts) > FEW else ''}".replace("\n", " ")


def _beside(home: Path, value: str) -> str:
    """Return a path as seen from the folder of the file. Others stay as they are, as Hub names do."""
    return os.path.relpath(value, home) if Path(value).exists() else value


def _scalar(value: str) -> str:
    """Return a text as YAML."""
    return str(yaml.safe_dump(value, allow_unicode=True, width=10**6)).removesuffix("\n").removesuffix("\n...")


def _quoted(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace('"', '""') + '"'


def _sql(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
