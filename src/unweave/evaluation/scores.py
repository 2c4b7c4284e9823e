"""Scores: a plain result that prints as a table and goes to JSON."""

from __future__ import annotations

from typing import Any

from unweave.errors import UsageError
from unweave.split import SUBSETS

SCHEMA = 1


class Scores:
    """What was measured: ``scores["train"]["forget"]["accuracy"]``, a fraction in [0, 1].

    >>> print(Scores({"train": {"forget": {"accuracy": 0.02, "loss": 9.1, "samples": 50}}}))
             subset      samples  accuracy      loss
    train    forget           50     2.00%     9.100
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, with the schema's version."""
        return {"schema": SCHEMA, **self.values}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Scores:
        """Take back what `to_dict` gave."""
        values = dict(content)
        if (schema := values.pop("schema", None)) != SCHEMA:
            raise UsageError(f"These scores have schema {schema!r}; this unweave reads {SCHEMA}.")
        return cls(values)

    def __str__(self) -> str:
        lines = [f"{'':<9}{'subset':<10}{'samples':>9}{'accuracy':>10}{'loss':>10}"]
        for part in ("train", "test"):
            for subset in SUBSETS:
                found = self.values.get(part, {}).get(subset)
                if found is None:
                    continue
                accuracy = "–" if found["accuracy"] is None else f"{found['accuracy']:.2%}"
                loss = "–" if found["loss"] is None else f"{found['loss']:.3f}"
                lines.append(f"{part:<9}{subset:<10}{found['samples']:>9}{accuracy:>10}{loss:>10}")
        return "\n".join(lines)
