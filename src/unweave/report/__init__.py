"""Tables, figures and one page from a study's folder; nothing here runs or evaluates anything.

``write_report(Path("my-study"))`` writes ``my-study/report/``, with ``index.html`` to look at or to mail.
"""

from unweave.report.tables import accuracy_table
from unweave.report.write import Report, write_report

__all__ = ["Report", "accuracy_table", "write_report"]
