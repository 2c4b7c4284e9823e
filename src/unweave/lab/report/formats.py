"""A table as Markdown, as LaTeX with booktabs, and as CSV. Every text from data is escaped."""

from __future__ import annotations

import csv
import html
import io
import re

from unweave.errors import printable
from unweave.lab.report.grids import Entry, Grid
from unweave.lab.report.marks import BEST, NEAREST
from unweave.storage import csv_text

LATEX = {
    "\\": r"\textbackslash{}",
    "[": r"{[}",  # at the start of a row it would be an argument of the row before
    "]": r"{]}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "₂": r"$_2$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "–": r"--",
    "·": r"$\cdot$",
}


def one_line(text: str) -> str:
    """Return the text in one line, with control characters escaped."""
    return printable(re.sub(r"[\s\x00-\x1f\x7f\u2028\u2029]+", " ", text).strip())


def markdown_text(text: str) -> str:
    r"""Escape what Markdown or HTML would not read as text.

    >>> print(markdown_text("<b>|_x_"))
    &lt;b&gt;\|\_x\_
    """
    return re.sub(r"([\\`*_{}\[\]|#!~$])", r"\\\1", html.escape(one_line(text), quote=False))


def latex_text(text: str) -> str:
    r"""Escape what LaTeX would read as a command.

    >>> print(latex_text("50% of a_b ±1"))
    50\% of a\_b $\pm$1
    """
    return "".join(LATEX.get(letter, letter) for letter in one_line(text))


def markdown(grid: Grid) -> str:
    """Return the table as Markdown. Bold marks the best value, ``<u>`` the value nearest to retraining."""
    headings = [
        "method",
        *(" ".join(part for part in (column.section, column.heading) if part) for column in grid.columns),
    ]
    lines = [f"# {markdown_text(grid.title)}", "", _markdown_row([markdown_text(heading) for heading in headings])]
    lines.append(_markdown_row([":---", *["---:"] * len(grid.columns)]))
    for row in grid.rows:
        lines.append(_markdown_row([markdown_text(row.name), *(_markdown_entry(entry) for entry in row.entries)]))
    for note in grid.notes:
        lines += ["", markdown_text(note)]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_entry(entry: Entry) -> str:
    text = markdown_text(entry.text)
    text = f"<u>{text}</u>" if NEAREST in entry.marks else text
    return f"**{text}**" if BEST in entry.marks else text


def latex(grid: Grid) -> str:
    """Return the table as LaTeX, for a document that loads booktabs."""
    headings = " & ".join(["Method", *(latex_text(column.heading) for column in grid.columns)])
    rows = [
        " & ".join([latex_text(row.name), *(_latex_entry(entry) for entry in row.entries)]) + r" \\"
        for row in grid.rows
    ]
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{latex_text(grid.title)}. {latex_text(' '.join(grid.notes))}}}",
        rf"\label{{tab:{grid.name}}}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}",
        r"\toprule",
        *_latex_sections(grid),
        rf"{headings} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_sections(grid: Grid) -> list[str]:
    """Return the row of headings over several columns and its rules; empty if there are no such headings."""
    if not grid.sections:
        return []
    cells, rules, start = [""], [], 2
    for section, width in grid.sections:
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_text(section)}}}")
        if section:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _latex_entry(entry: Entry) -> str:
    text = latex_text(entry.text)
    text = rf"\underline{{{text}}}" if NEAREST in entry.marks else text
    return rf"\textbf{{{text}}}" if BEST in entry.marks else text


def comma_separated(grid: Grid) -> str:
    """Return the table's records as CSV: fractions with all digits, and an empty field where nothing was measured.

    A spreadsheet would run a text that begins like a formula, so `csv_text` marks it as a text.
    """
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in grid.records for name in record))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writerow({name: csv_text(name) for name in names})
    writer.writerows({name: csv_text(value) for name, value in record.items()} for record in grid.records)
    return text.getvalue()
