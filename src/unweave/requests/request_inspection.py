"""Look at a request before it runs: what it means, what to expect, what it costs, and what would be refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unweave.engine import Limits
from unweave.errors import RunError, UsageError
from unweave.evaluation import Inspection
from unweave.requests.examples import as_text, shown_rows
from unweave.requests.expected_cost import ExpectedCost, expected_cost
from unweave.requests.prompt_inspection import PromptInspection, inspect_prompts
from unweave.requests.reading import open_data
from unweave.requests.request_run import (
    aims_at_retraining,
    brief_training,
    check_beforehand,
    compute_of,
    configured,
    load_rows,
    with_previous,
    with_reference,
)
from unweave.requests.resolving import Prepared, Rows, roles_of
from unweave.requests.run_files import named_roles
from unweave.requests.selecting import find_rows
from unweave.runs import check_folder, plain_page
from unweave.storage import write_whole

if TYPE_CHECKING:
    from unweave.requests.request import Request

T = TypeVar("T")
EXAMPLES, GROUPS = 5, 8  # rows and groups that are shown


@dataclass
class RequestInspection:
    """What a request means.

    Attributes:
        refused: What would be refused, in sentences. Empty: the request can run.
        counts: Rows of the data, and of every subset.
        columns: The columns by role.
        adjacent: How adjacent data is chosen.
        head: The names of the columns of `examples`.
        examples: The first rows that are to be forgotten.
        inspection: Entanglement, forecast and advice.
        cost: What the run will probably cost.
        rows: The positions of all rows to forget.
    """

    refused: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    adjacent: str = ""
    head: list[str] = field(default_factory=list)
    examples: list[list[plain_page.Entry]] = field(default_factory=list)
    inspection: Inspection | PromptInspection | None = None
    cost: ExpectedCost | None = None
    rows: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [self._verdict()]
        if self.counts:
            parts.append("Data: " + ", ".join(f"{count:,} {name}" for name, count in self.counts.items()))
        if self.columns:
            parts.append("Columns: " + ", ".join(f"{role} = {name}" for role, name in self.columns.items()))
        if self.adjacent:
            parts.append(f"Adjacent: {self.adjacent}")
        if self.examples:
            parts.append(f"First rows to forget:\n{_lined(self.head, as_text(self.head, self.examples))}")
        if self.inspection:
            parts.append(_forecast(self.inspection))
        if self.cost:
            parts.append(str(self.cost))
        return "\n\n".join(parts)

    def _verdict(self) -> str:
        if not self.refused:
            return "Nothing would be refused."
        return "Would be refused:\n" + "\n".join(f"- {sentence}" for sentence in self.refused)

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values, without the rows' content."""
        return {
            "refused": self.refused,
            "counts": self.counts,
            "columns": self.columns,
            "adjacent": self.adjacent,
            "inspection": self.inspection.to_dict() if self.inspection else None,
            "cost": vars(self.cost) if self.cost else None,
        }

    def write_page(self, file: str | os.PathLike[str]) -> None:
        """Write the page with examples, which only its owner can read."""
        counts: list[list[plain_page.Entry]] = [[name, count] for name, count in self.counts.items()]
        columns: list[list[plain_page.Entry]] = [[role, name] for role, name in self.columns.items()]
        parts = [
            plain_page.points(self.refused) if self.refused else plain_page.words(self._verdict()),
            plain_page.section("Counts", plain_page.table(["", "rows"], counts)),
            plain_page.section("Columns", plain_page.table(["role", "column"], columns)),
        ]
        if self.examples:
            body = plain_page.table(self.head, self.examples)
            parts.append(plain_page.section("First rows to forget", body))
        if self.inspection:
            parts.append(plain_page.section("What to expect", plain_page.block(_forecast(self.inspection))))
        if self.cost:
            parts.append(plain_page.words(str(self.cost)))
        content = plain_page.page("A request before it runs", parts)
        try:
            write_whole(Path(file), content.encode(), private=True)
        except OSError as error:
            raise RunError(f"{file} cannot be written: {error}") from error


def inspect_request(request: Request) -> RequestInspection:
    """Look at a request; collect what would be refused instead of stopping at the first."""
    found = RequestInspection()

    def attempt(work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (UsageError, RunError) as error:
            if str(error) not in found.refused:
                found.refused.append(str(error))
            return None

    if request.out is not None:
        attempt(lambda: check_folder(Path(request.out or ""), resume=False))
    attempt(lambda: compute_of(request).check())
    attempt(lambda: Limits.parse(request.limits))
    asked = attempt(request.completed) or request
    rows = attempt(asked.find)
    if rows is None:
        _apart(asked, attempt)
        return found
    attempt(lambda: check_beforehand(asked, rows.checkpoint))
    _describe(found, rows)
    attempt(lambda: _examples(found, rows))
    prepared = attempt(lambda: load_rows(asked, rows))
    if prepared is None:
        return found
    found.counts = {"rows": found.counts["rows"], **{name: len(prepared.split[name]) for name in prepared.split.names}}
    if prepared.test is not None:
        found.counts |= {f"test {name}": len(prepared.test[name]) for name in prepared.test.names}
    method = attempt(lambda: with_reference(asked, rows, prepared, compute_of(asked)))
    if method is not None:
        attempt(lambda: method.check(prepared.split))
    if asked.id:
        attempt(lambda: with_previous(asked).check(prepared.model, prepared.split, prepared.test))
    found.inspection = attempt(lambda: _inspected(asked, rows, prepared))
    if method is not None:
        found.cost = attempt(lambda: _cost(asked, rows, prepared))
    return found


def _cost(request: Request, rows: Rows, prepared: Prepared) -> ExpectedCost:
    """Return the expected cost, with that of the brief training that the goal retrain begins with."""
    how: dict[str, Any] = {"compute": compute_of(request), "seed": request.seed}
    method = configured(request, rows)
    if not aims_at_retraining(method):
        return expected_cost(prepared.model, prepared.split, method, **how)
    stands_in = method.with_given(reference=prepared.model)  # as large as the model that is still to be trained
    return expected_cost(prepared.model, *brief_training(request, rows, prepared), **how) + expected_cost(
        prepared.model, prepared.split, stands_in, **how
    )


def _apart(request: Request, attempt: Callable[[Callable[[], Any]], Any]) -> None:
    """Check the parts of a request that cannot be found as a whole, so that all that is wrong is named at once."""
    checkpoint = attempt(request.checkpoint)
    table = attempt(lambda: open_data(str(request.train))) if request.train is not None else None
    if request.test is not None:
        attempt(lambda: open_data(str(request.test), part="test"))
    if table is None:
        return
    if checkpoint is not None:
        attempt(lambda: roles_of(checkpoint, table, request.columns()))
    ids = request.id_column or ("id" if "id" in table.columns else None)
    if request.forget is not None and (ids is None or ids in table.columns):
        attempt(lambda: find_rows(request.forget or "", table, ids, subset="forget"))


def _describe(found: RequestInspection, rows: Rows) -> None:
    roles = rows.train.roles
    found.counts = {"rows": len(rows.train.table), "to forget": len(rows.train.forget)}
    columns = named_roles(roles)
    found.columns = {key: ", ".join(one) if isinstance(one, list) else str(one) for key, one in columns.items()}
    found.adjacent = rows.rule if isinstance(rows.rule, str) else "the list"
    found.rows = rows.train.forget.tolist()


def _examples(found: RequestInspection, rows: Rows) -> None:
    table, roles = rows.train.table, rows.train.roles
    found.head, found.examples = shown_rows(table, roles, rows.train.forget[:EXAMPLES].tolist())


def _inspected(request: Request, rows: Rows, prepared: Prepared) -> Inspection | PromptInspection:
    """Look at the split with the model; groups are the labels, by their names."""
    if template := rows.train.roles.template:
        return inspect_prompts(prepared.model, prepared.split, template, compute_of(request))
    names = {number: name for name, number in rows.checkpoint.names.items()}
    labels = prepared.split.samples.labels()
    is_class = labels.ndim == 1 and not labels.is_floating_point()
    groups: Any = [names.get(int(label), str(int(label))) for label in labels] if is_class else None
    return prepared.split.inspect(prepared.model, groups=groups, device=request.device)


def _forecast(inspection: Inspection | PromptInspection) -> str:
    """Return what the inspection says, with the first of its groups."""
    text, mark = str(inspection), "retained group"
    before, is_there, after = text.partition(mark)
    lines = after.splitlines()
    if not is_there or len(lines) <= GROUPS + 1:
        return text
    return "\n".join([before + is_there + lines[0], *lines[1 : GROUPS + 1], f"… and {len(lines) - GROUPS - 1} more"])


def _lined(head: list[str], rows: list[list[str]]) -> str:
    """Return a table as text whose columns are aligned."""
    every = [head, *rows]
    widths = [max(len(row[place]) for row in every) for place in range(len(head))]
    return "\n".join(
        "  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip() for row in every
    )
