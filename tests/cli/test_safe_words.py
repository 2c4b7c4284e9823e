"""Text from data reaches the terminal with its control characters escaped."""

from __future__ import annotations

import warnings

import pytest

from unweave.cli import app as shared
from unweave.errors import RunWarning, on_one_line, printable
from unweave.lab.report.templates import environment
from unweave.lab.study.cell_progress import CellProgress
from unweave.lab.study.cells import Cell

BAD = "a\x1b[2J\x9b31m\r\u202e\u2028b"
SHOWN = "a\\x1b[2J\\x9b31m\\r\\u202e\\u2028b"


def test_everything_but_lines_is_escaped():
    assert printable(BAD) == SHOWN
    assert printable("Ümit\n日本 \xa0é") == "Ümit\n日本 \xa0é"
    assert on_one_line("a\nb") == "a\\nb"


def test_consoles_escape_what_they_print(capsys):
    shared.out_console.print(BAD, markup=False)
    shared.out_console.print(shared.listing([("name", BAD)]))
    shared.say(BAD)
    found = capsys.readouterr()
    for letter in "\x1b\x9b\r\u202e\u2028":
        assert letter not in found.out + found.err
    assert SHOWN.replace("\\r", "") in found.out  # rich takes out a return itself
    assert SHOWN.replace("\\r", "") in found.err


def test_errors_and_warnings_are_one_line(capsys):
    with pytest.raises(SystemExit):
        shared._fail(ValueError("wrong\nok    signature: fine\x1b[2J"), code=2)
    shared._warn("odd\nok    signature: fine\x1b[2J", RunWarning, "", 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "unweave: wrong\\nok    signature: fine\\x1b[2J",
        "unweave: warning: odd\\nok    signature: fine\\x1b[2J",
    ]


def test_a_failed_cell_cannot_clear_the_terminal(capsys, tmp_path):
    from unweave.cli.study_run import _show

    class Failed:
        folder = table = tmp_path

        def is_done(self, cell):
            return False

        def has_failed(self, cell):
            return True

        def not_compared(self, cells):
            return []

        def scores_of(self, name):
            return {}

        answer_scores_of = scores_of

        def failures(self, cells):
            error = "diverged\x1b[2J\nok    all cells are done"
            return [{"method": "ft", "profile": "default", "variant": "", "seed": 0, "error": error}]

    from unweave import RunError

    with pytest.raises(RunError, match="1 of 1 cells failed"):
        _show(Failed(), [Cell(method="ft", seed=0)], as_json=False)
    found = capsys.readouterr().err
    assert "\x1b" not in found
    assert "diverged\\x1b[2J\\nok    all cells are done" in " ".join(found.split("\n"))
    lines = []
    CellProgress(Failed(), [Cell(method="ft", seed=0)], write=lines.append).say("ft\x1b[2J\nforged")
    assert lines == ["ft\\x1b[2J\\nforged"]


def test_pages_escape_control_characters_and_keep_their_own_signs():
    page = environment().from_string("<p>{{ name }}</p>{{ head | unbroken }}").render(name=BAD, head="loss ↑")
    assert page == f"<p>{SHOWN}</p>loss\xa0↑"


def test_the_model_card_shows_an_id_in_one_line():
    from unweave.evaluation import Scores
    from unweave.runs.model_card import model_card

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        card = model_card({"request": "17\n## Forged\x1b[2J"}, Scores({}), "yes", {"forget": 1}, library="peft")
    assert "Request 17\\n## Forged\\x1b[2J: 1 samples" in card
