"""Tables, figures and one page from a study's folder; nothing here runs or evaluates anything.

``write_report(Path("my-study"))`` writes ``my-study/report/``, with ``index.html`` to look at or to mail.
"""

from unweave.report.compare import Comparison, compare, grids
from unweave.report.results import Group, Results, label, read_results
from unweave.report.tables import accuracy_table, grid_table
from unweave.report.write import Report, write_report

__all__ = [
    "Comparison",
    "Group",
    "Report",
    "Results",
    "accuracy_table",
    "compare",
    "grid_table",
    "grids",
    "label",
    "read_results",
    "write_report",
]
