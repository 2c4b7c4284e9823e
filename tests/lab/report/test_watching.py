"""`unweave report DIR --watch`: the page of a study that is still running."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from tests.helpers.browser import needs_browser
from tests.helpers.reports import METHODS, make_study, write_cell
from unweave import UsageError
from unweave.lab.report import watch_report, watching, write_report
from unweave.lab.study import Store

NOTHING = (0.5, 0.9, 0.9)


def watched(monkeypatch, folder, *steps):
    """Watch a folder. Between two looks the next step happens; after the last one somebody presses Ctrl-C."""
    said, left = [], list(steps)

    def sleep(_):
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(watching.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch_report(folder, say=said.append)
    return said


def test_a_folder_that_is_not_there_or_half_written_is_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "study"
    page = folder / "report" / "index.html"
    random = np.random.default_rng(0)

    def add(method):
        write_cell(Store(folder), method, "", 0, NOTHING, random)

    def begin():
        Store.create(folder, "digits")
        (folder / "cells" / "original.seed-0.unfinished").mkdir()

    def half():
        assert not page.exists()
        (folder / "cells" / "original.seed-0").mkdir()
        (folder / "cells" / "original.seed-0" / "scores.json").write_text('{"metrics": [')

    def whole():
        assert not page.exists()
        (folder / "cells" / "original.seed-0" / "scores.json").unlink()
        (folder / "cells" / "original.seed-0").rmdir()
        add("original")

    def more():
        assert '"live":{"seconds"' in page.read_text()
        assert "1 run finished; under way or stopped: original.seed-0." in page.read_text()
        (folder / "cells" / "original.seed-0.unfinished").rmdir()
        add("ft")

    def nothing():
        assert "2 runs finished. Written at" in page.read_text()

    said = watched(monkeypatch, folder, lambda: None, begin, half, whole, more, nothing)
    waiting = [words for words in said if words.startswith("Waiting")]
    assert waiting[:2] == [f"Waiting for a study in {folder}.", f"Waiting for the first result in {folder}."]
    assert "original.seed-0" in waiting[2]
    assert len(waiting) == 3
    assert said[3].startswith(f"Page: {page}.")
    assert len(said) == 6  # nothing was written where nothing was new
    assert '"live":null' in page.read_text()  # after Ctrl-C it no longer loads itself
    assert not list(folder.glob(".report.p*"))


def test_a_page_that_is_open_always_finds_its_file(tmp_path, monkeypatch):
    folder = make_study(tmp_path / "study", seeds=1, failures=False)
    before = write_report(folder)
    old = {path.name for path in before.folder.glob("figures/*")}
    there = []

    def look(*_, **__):
        there.append(before.page.exists())
        return {}

    monkeypatch.setattr("unweave.lab.report.paper.paper_grid", lambda _: look() or None)
    replaced = watching.Path.replace

    def watch(self, target):
        replaced(self, target)
        look()

    monkeypatch.setattr(watching.Path, "replace", watch)
    write_report(folder, figures=False, live={"seconds": 1, "words": ""})
    assert all(there)
    assert len(there) > 5
    assert {path.name for path in before.folder.glob("figures/*")} == old


def test_what_is_no_report_is_left_alone(tmp_path):
    (tmp_path / "study" / "report").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not a report"):
        watch_report(tmp_path / "study", say=print)


def test_ctrl_c_ends_in_one_line(tmp_path):
    words = [sys.executable, "-m", "unweave", "report", str(tmp_path / "study"), "--watch"]
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # a runner in the background ignores it
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, preexec_fn=heard, **pipes) as process:  # noqa: PLW1509 - no threads run here
        waiting = process.stderr.readline()
        time.sleep(0.3)  # the line is out, but Rich may still be at work on it
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(timeout=60)
    assert waiting == f"Waiting for a study in {tmp_path / 'study'}.\n"
    assert rest.startswith("Stopped.")
    assert rest.count("\n") == 1
    assert process.returncode == 130


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = make_study(tmp_path_factory.mktemp("live") / "study", methods=METHODS, seeds=1)
    write_report(folder, figures=False, live={"seconds": 0.3, "words": "Two runs finished."})
    return folder


PLACE = """return [document.getElementById("tradeoff-subset").value, document.getElementById("compare-metric").value,
    document.querySelector("#main-table tr.chosen th")?.textContent, document.activeElement.id, Math.round(scrollY),
    document.querySelector("#sort-1").parentElement.getAttribute("aria-sort")]"""


READY = """return window.before === undefined && typeof Chart === "function"
    && Boolean(Chart.getChart("compare-chart"))"""


def loaded_again(browser, *, within=10.0):
    """Tell whether the page loads itself again within some seconds, and wait for that."""
    browser.run("window.before = true")
    end = time.monotonic() + within
    while time.monotonic() < end:
        if browser.run(READY):
            return True
        time.sleep(0.05)
    return False


@needs_browser
def test_the_page_loads_itself_again_and_keeps_its_place(browser, study):
    with browser.shown(study / "report" / "index.html"):
        assert browser.run("return document.querySelector('.live [role=status]').textContent") == "Two runs finished."
        browser.run("document.getElementById('live-pause').click()")
        assert not loaded_again(browser, within=0.8)
        browser.select("tradeoff-subset", "remote")
        browser.select("compare-metric", "loss")
        browser.run("document.getElementById('sort-1').click(); document.getElementById('sort-1').click()")
        browser.run("""[...document.querySelectorAll("#tradeoff-chips b")].find((b) => b.textContent === "ga")
            .closest("button").click(); document.getElementById("compare-metric").focus();
            scrollTo({ top: 1234, behavior: "instant" })""")
        before = browser.run(PLACE)
        assert before[:4] + before[5:] == ["remote", "loss", "ga", "compare-metric", "descending"]
        assert before[4] > 1000
        browser.run("document.getElementById('live-pause').click()")
        assert loaded_again(browser)
        browser.run("document.getElementById('live-pause').checked = true")
        time.sleep(0.1)
        assert browser.run(PLACE) == before
        assert browser.log("browser") == []
        write_report(study, figures=False)  # as after Ctrl-C
        browser.run("document.getElementById('live-pause').checked = false")
        assert loaded_again(browser)
        assert browser.run("return document.querySelector('.live')") is None
        assert not loaded_again(browser, within=0.8)
