"""Which columns hold the inputs, the label and the id; of language models, the prompt and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable

# own: whatever a function of the user takes; language: prompts, which a causal model answers
Kind: TypeAlias = Literal["text", "image", "numbers", "own", "language"]
LANGUAGE: Kind = "language"
LABELS, IDS = ("label", "labels"), ("id", "ids")
PROMPTS, ANSWERS = ("question", "prompt", "instruction"), ("answer", "completion", "response", "output")


@dataclass(frozen=True)
class Roles:
    """The columns of the inputs, of the label and, if there is one, of the id.

    Of a language model, the input is the prompt, the label is the answer, and a template puts them together.
    """

    inputs: tuple[str, ...]
    label: str
    id: str | None = None
    template: str = ""


@dataclass(frozen=True)
class NamedColumns:
    """The columns that a request names, and the template of a language model."""

    inputs: tuple[str, ...] = ()
    label: str | None = None
    prompt: str | None = None
    answer: str | None = None
    template: str | None = None
    id: str | None = None

    def roles(self, table: DataTable, kind: Kind) -> Roles:
        """Return the columns of a table by role. A language model has prompts and answers, others inputs and labels.

        >>> NamedColumns(prompt="question").roles(None, "text")
        Traceback (most recent call last):
        unweave.errors.UsageError: --prompt is for causal language models, and this model reads text. Use --input.
        """
        language = kind == "language"
        ours, others = ("prompt", "answer"), ("input", "label")
        given = {"input": self.inputs, "label": self.label, "prompt": self.prompt, "answer": self.answer}
        for own, other in zip(*((others, ours) if language else (ours, others)), strict=True):
            if given[own]:
                what = "models with classes" if language else "causal language models"
                this = "answers prompts" if language else f"reads {kind}"
                raise UsageError(f"--{own} is for {what}, and this model {this}. Use --{other}.")
        if self.template is not None and not language:
            raise UsageError(f"--template is for causal language models, and this model reads {kind}. Leave it out.")
        inputs = (self.prompt,) if language and self.prompt else self.inputs
        return find_roles(table, kind, inputs=inputs, label=self.answer or self.label, id_column=self.id)


def find_roles(
    table: DataTable, kind: Kind, *, inputs: Sequence[str] = (), label: str | None = None, id_column: str | None = None
) -> Roles:
    """Return the columns by role: those that are named, and for the others the only one that fits.

    Args:
        table: The data.
        kind: What the model reads.
        inputs: The columns of the inputs, or of the prompt, if they were named.
        label: The column of the label, or of the answer, if it was named.
        id_column: The column of the ids, if it was named.

    Returns:
        The columns.

    Raises:
        UsageError: A column is missing, or several fit.
    """
    named = _named(table, kind)
    role_of_input, role_of_label = ("prompt", "answer") if kind == "language" else ("input", "label")
    label = table.require(label) if label else _only(table, role_of_label, named)
    ids = table.require(id_column) if id_column else next((name for name in IDS if name in table.columns), None)
    if not inputs:
        inputs = (_only(table, role_of_input, _fitting(table, kind, (label, ids)), kind),)
    read = [(role_of_input, name) for name in inputs]
    for role, name in [*read, *([("answer", label)] if kind == "language" else [])]:
        if not fits(table, table.require(name), kind):
            what = "text" if kind == "language" else kind
            raise UsageError(
                f"The column {name!r} of {table.name} holds {table.kind(name)}, but the model reads {what}. Name "
                f"another with --{role}."
            )
    return Roles(tuple(inputs), label, ids)


def obvious_roles(table: DataTable, kind: Kind) -> Roles:
    """Return the columns that need not be named. A role without an obvious column is empty."""
    labels = _named(table, kind)
    ids = next((name for name in IDS if name in table.columns), None)
    label = labels[0] if len(labels) == 1 else ""
    fit = _fitting(table, kind, (label, ids))
    return Roles((fit[0],) if len(fit) == 1 else (), label, ids)


def _named(table: DataTable, kind: Kind) -> list[str]:
    """Return the columns whose name says that they hold the label, or the answer."""
    return [name for name in (ANSWERS if kind == "language" else LABELS) if name in table.columns]


def _fitting(table: DataTable, kind: Kind, others: Sequence[str | None]) -> list[str]:
    """Return the columns that can hold the input; of prompts, those whose name says so."""
    names = [name for name in PROMPTS if name in table.columns] if kind == "language" else table.columns
    return [name for name in names if name not in others and fits(table, name, kind)]


def _only(table: DataTable, role: str, fit: Sequence[str], kind: str = "") -> str:
    if len(fit) == 1:
        return fit[0]
    words = f"{kind} column for the input" if kind not in ("", "own", "language") else f"{role} column"
    found = f"{len(fit)} fit ({', '.join(fit)})" if fit else f"its columns are {', '.join(table.columns)}"
    raise UsageError(f"{table.name} has no obvious {words}: {found}. Name one with --{role}.")


def fits(table: DataTable, column: str, kind: Kind) -> bool:
    """Tell whether a column can hold what a model reads: text, images (as bytes, files or numbers), or numbers."""
    from pyarrow import types

    found = table.kind(column)
    if kind == "own":
        return True
    is_text = types.is_string(found) or types.is_large_string(found)
    if kind in ("text", "language"):
        return bool(is_text)
    if kind == "image":
        is_bytes = types.is_binary(found) or types.is_large_binary(found)
        return bool(is_bytes or is_text or types.is_list(found) or _is_picture(found))
    inner = found.value_type if types.is_list(found) or types.is_fixed_size_list(found) else found
    return bool(types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner))


def _is_picture(found: object) -> bool:
    """Tell whether this is the form of the Hub: a record of the image's bytes and its path."""
    from pyarrow import types

    return types.is_struct(found) and "bytes" in {field.name for field in found}  # type: ignore[attr-defined]
