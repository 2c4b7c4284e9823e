"""Cells of CSV files, which spreadsheets open."""

from __future__ import annotations

import re
from typing import Any

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def csv_text(value: Any) -> Any:
    """Return a value for CSV. A text that a spreadsheet would take for a formula gets an apostrophe; a number does not.

    >>> csv_text("=1+1"), csv_text("ft"), csv_text(-0.5), csv_text("-0.5")
    ("'=1+1", 'ft', -0.5, '-0.5')
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("=", "+", "-", "@")):
        return value
    return value if NUMBER.fullmatch(value) else f"'{value}"
