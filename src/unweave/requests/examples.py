"""Rows of the data as a person looks at them: cut text, small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.pictures import read_image
from unweave.requests.roles import LANGUAGE, Roles
from unweave.runs import label_names, plain_page
from unweave.tasks import prompts_and_answers, written

if TYPE_CHECKING:
    from unweave.requests.resolving import Rows

SIDE, LONGEST, MOST = 96, 200, 12  # pixels of a picture, characters of a text, and rows that are shown
WRITTEN = 48  # tokens of an answer that a model writes

Picture = plain_page.Picture


def shown_rows(table: DataTable, roles: Roles, rows: Sequence[int]) -> tuple[list[str], list[list[plain_page.Entry]]]:
    """Return the head and the entries of a table of rows: their number, id, label, inputs, then the other columns.

    Args:
        table: The data.
        roles: Its columns.
        rows: Positions of the rows.

    Returns:
        The names of the columns, and one list of entries for each row.
    """
    first = [*([roles.id] if roles.id else []), roles.label, *roles.inputs]
    columns = list(dict.fromkeys([*first, *table.columns]))
    found = table.take(rows, columns)
    entries = [
        [row, *(_entry(one[name], table, is_input=name in roles.inputs) for name in columns)]
        for row, one in zip(rows, found, strict=True)
    ]
    return ["row", *columns], entries


def _entry(value: Any, table: DataTable, *, is_input: bool) -> plain_page.Entry:
    """Return a value of a column: a picture for an image, otherwise text."""
    if isinstance(value, dict | bytes) or (is_input and _is_file(value, table)):
        image = read_image(value, table.folder, 3)
        return "no image" if image is None else thumbnail(image)
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _is_file(value: Any, table: DataTable) -> bool:
    if not isinstance(value, str) or len(value) > 1000 or "\n" in value or "\0" in value:
        return False
    return Path(value).suffix != "" and (table.folder / value).is_file()


def thumbnail(image: Any) -> Picture:
    """Return an image as a small picture for a page. Its row, in the same line of the table, names it."""
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return Picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")


def changed_predictions(result: Any, rows: Rows) -> str:
    """Return a section with samples of the training data whose prediction changed, those to forget first."""
    if rows.checkpoint.kind == LANGUAGE:
        return _changed_answers(result, rows)
    names, head, entries = label_names(result.original), list[str](), list[list[plain_page.Entry]]()
    after, before = result.scores.observed, result.scores.before
    for subset in result.split.names:
        then, now = before.parts["train"][subset], after.parts["train"][subset]
        if not len(now) or not now.has_probabilities or now.labels.ndim != 1:
            continue
        old, new = then.logits.argmax(dim=-1), now.logits.argmax(dim=-1)
        places = torch.nonzero(old != new)[:MOST, 0]
        chosen = torch.from_numpy(result.split[subset])[places].tolist()
        if not chosen:
            continue
        head, some = shown_rows(rows.train.table, rows.train.roles, chosen)
        for place, entry in zip(places.tolist(), some, strict=True):
            said = (names.get(int(one[place]), str(int(one[place]))) for one in (old, new))
            entries.append([subset, *said, *entry])
    return _section("Changed predictions", ["subset", "predicted before", "after", *head], entries)


def _changed_answers(result: Any, rows: Rows) -> str:
    """Return a section with prompts whose answer is reproduced by one model only, and what both write."""
    tokenizer, template = rows.checkpoint.reader, rows.train.roles.template
    head, entries = list[str](), list[list[plain_page.Entry]]()
    parts = [observed.parts["train"] for observed in (result.scores.before, result.scores.observed)]
    for subset in result.split.names:
        if not len(result.split[subset]):
            continue
        old, new = (part[subset].correct for part in parts)
        chosen = torch.from_numpy(result.split[subset])[torch.nonzero(old != new)[:MOST, 0]]
        if not len(chosen):
            continue
        head, some = shown_rows(rows.train.table, rows.train.roles, chosen.tolist())
        asked = [prompt for prompt, _ in prompts_and_answers(result.split.samples.read(chosen))]
        texts = [_written(model, asked, tokenizer) for model in (result.original, result.model)]
        entries += [[subset, *said, *entry] for said, entry in zip(zip(*texts, strict=True), some, strict=True)]
    return _section(f"Changed answers (template {template!r})", ["subset", "written before", "after", *head], entries)


def _written(model: Any, prompts: list[list[int]], tokenizer: Any) -> list[str]:
    how: dict[str, Any] = {"pad": tokenizer.pad_token_id, "end": tokenizer.eos_token_id, "longest": WRITTEN}
    return [tokenizer.decode(text, skip_special_tokens=True) for text in written(model, prompts, **how)]


def _section(title: str, head: list[str], entries: list[list[plain_page.Entry]]) -> str:
    if not entries:
        return plain_page.section(title, plain_page.words("No prediction of a shown subset changed."))
    note = f"At most {MOST} samples of each subset of the training data. This page shows samples: keep it private."
    body = plain_page.searched(head, entries, caption="Samples whose answer changed, those to forget first.")
    return plain_page.section(title, plain_page.words(note), body)


def as_text(head: Sequence[str], entries: Sequence[Sequence[plain_page.Entry]], *, width: int = 40) -> list[list[str]]:
    """Return entries as text for a terminal. A picture cannot be shown there.

    >>> as_text(["row", "text"], [[3, "a fine film"]])
    [['3', 'a fine film']]
    """
    if any(len(row) != len(head) for row in entries):
        raise UsageError(f"Every row must have {len(head)} entries.")
    return [["(image)" if isinstance(one, Picture) else str(one)[:width] for one in row] for row in entries]
