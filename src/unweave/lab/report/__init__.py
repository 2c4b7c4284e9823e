"""Tables, figures and an HTML page from a study's folder. Nothing here runs or evaluates a model.

``write_report(Path("my-study"))`` writes ``my-study/report/``. Its ``index.html`` is one file that can be mailed.
"""

from unweave.lab.report.compare import Comparison, compare
from unweave.lab.report.compare_estimates import MeanOverStudies
from unweave.lab.report.compare_files import write_comparison
from unweave.lab.report.compare_grids import grids
from unweave.lab.report.compare_measures import MEASURES, Measure
from unweave.lab.report.figures import loss_distributions
from unweave.lab.report.formats import markdown_text
from unweave.lab.report.record_page import drift_rows, write_record_page
from unweave.lab.report.results import Group, Results, label
from unweave.lab.report.study_reader import read_results
from unweave.lab.report.tables import accuracy_table, answer_table, grid_table
from unweave.lab.report.watching import watch_report
from unweave.lab.report.write import Report, write_report

__all__ = [
    "MEASURES",
    "Comparison",
    "Group",
    "MeanOverStudies",
    "Measure",
    "Report",
    "Results",
    "accuracy_table",
    "answer_table",
    "compare",
    "drift_rows",
    "grid_table",
    "grids",
    "label",
    "loss_distributions",
    "markdown_text",
    "read_results",
    "watch_report",
    "write_comparison",
    "write_record_page",
    "write_report",
]
