"""What a template puts into a page is text: nothing from data can become markup or a script."""

from __future__ import annotations

import re

import pytest
from jinja2 import UndefinedError

from unweave.lab.report.templates import environment, render


def test_no_template_turns_escaping_off():
    made = environment()
    names = made.list_templates(extensions=["html"])
    assert {"report.html", "record.html", "table.html", "dynamics.html"} <= {*names}
    for name in names:
        source, *_ = made.loader.get_source(made, name)
        assert not re.search(r"\|\s*safe|autoescape", source), name


def test_a_template_without_a_value_raises():
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render("record.html", style="")
