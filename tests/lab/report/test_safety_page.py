"""Class names, labels, paths and requests that try to run code do nothing in the pages, tested in a real browser."""

from __future__ import annotations

import copy
import json
import warnings

import numpy as np
import pytest

from tests.helpers.browser import needs_browser
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.records import Run
from tests.helpers.reports import METHODS, make_study
from unweave.lab.report import write_record_page, write_report
from unweave.lab.study import Store

pytestmark = needs_browser

ATTACKS = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=2">',
    "</script><svg onload=window.hacked=3>",
    "javascript:window.hacked=4",
    "' onmouseover='window.hacked=5",
    "${window.hacked=6}",
]
INERT = """return window.hacked === undefined
    && document.querySelectorAll('img, svg:not(.own), iframe, object, embed, base, form').length === 0
    && [...document.querySelectorAll('*')].every((e) => [...e.attributes].every((a) => !a.name.startsWith('on')))"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with attacks in every name: benchmark, method, variant, classes, phases, values, metrics, folder."""
    methods = dict(METHODS) | {(ATTACKS[0], ATTACKS[1]): (0.3, 0.9, 0.9), ("$\\frac$", "$^{$"): (0.3, 0.9, 0.9)}
    folder = tmp_path_factory.mktemp("page") / "<b onclick=window.hacked=7>&'"
    make_study(folder, benchmark=ATTACKS[2], methods=methods, seeds=1)
    for cell in Store.open(folder).cells.iterdir():
        config = configuration(cell)
        config["notes"] = {"classes": ", ".join(ATTACKS), ATTACKS[3]: ATTACKS[0]}
        config["torch"] = ATTACKS[4]
        write_configuration(cell, config)
        rows = [{"phase": ATTACKS[0], "step": step, ATTACKS[1]: step / 9} for step in range(40)]
        (cell / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        scores = json.loads((cell / "scores.json").read_text())
        row = {"split": "train", "subset": ATTACKS[2], "metric": ATTACKS[5], "value": 1.0, "better": "lower"}
        scores["metrics"].append(row)
        (cell / "scores.json").write_text(json.dumps(scores))
    Store.open(folder).write_table()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # such long names leave no room in a figure
        write_report(folder)
    return folder


def choose_everything(page):
    """Choose every entry of every menu, and click on everything."""
    page.run(
        """for (const select of document.querySelectorAll('select'))
            for (const option of select.options) {
                select.value = option.value; select.dispatchEvent(new Event('change'));
            }
        for (const button of document.querySelectorAll('button')) button.click();
        for (const e of document.querySelectorAll('*')) e.dispatchEvent(new Event('mouseover'));"""
    )


def test_names_from_data_are_inert_in_the_report(browser, study):
    browser.open(study / "report" / "index.html")
    browser.log("browser")
    choose_everything(browser)
    assert browser.run(INERT)
    assert browser.log("browser") == []
    text = browser.run("return document.body.textContent")
    for attack in (ATTACKS[0], ATTACKS[1], ATTACKS[2]):
        assert attack in text  # shown as plain text


def test_a_request_is_inert_on_the_page_of_its_record(browser, tmp_path):
    run = Run(tmp_path)
    record = run.whole | {"version": 1}
    hostile = copy.deepcopy(record)
    hostile["request"] = {"id": ATTACKS[0], "text": "\n".join(ATTACKS)}
    hostile["configuration"] |= {"method": ATTACKS[1], "profile": ATTACKS[2]}
    hostile["hardware"]["device"] = hostile["software"]["unweave"] = ATTACKS[3]
    hostile["certificate"]["words"] = ATTACKS[4]
    hostile["stated_limits"] += ATTACKS
    hostile["previous"] = {"hash": record["hash"], "id": ATTACKS[5]}
    hostile["model"]["after"] = ATTACKS[1]
    for metric, attack in zip(hostile["scores"]["metrics"], ATTACKS * 99, strict=False):
        if metric["subset"]:
            metric["subset"] = attack  # the name of a class
    hostile["drift"] += [{"id": attack, "train": record["drift"][0]["train"]} for attack in ATTACKS]
    file = tmp_path / "page.html"
    write_record_page(file, [record, hostile])
    browser.log("browser")
    browser.open(file)
    choose_everything(browser)
    assert browser.run(INERT)
    assert browser.run("return document.querySelectorAll('script').length") == 0
    assert browser.log("browser") == []
    text = browser.run("return document.body.textContent")
    assert all(attack in text for attack in ATTACKS)
    assert "was changed" in text
    # The numbers are those of the record.
    cells = browser.run("return [...document.querySelectorAll('table')[1].rows[1].cells].map((c) => c.textContent)")
    metric = next(row for row in record["scores"]["metrics"] if row["metric"] == "accuracy")
    assert cells[2] == f"{metric['value']:.1%}"
    assert np.isclose(metric["value"], float(cells[2].rstrip("%")) / 100, atol=1e-3)
