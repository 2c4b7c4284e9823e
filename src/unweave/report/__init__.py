"""Tables and figures, from plain values only."""

from unweave.report.tables import accuracy_table

__all__ = ["accuracy_table"]
