"""The page of deletion records: its verdict, its bound, and nothing clipped."""

from __future__ import annotations

import copy

import pytest

from tests.helpers.browser import needs_browser
from tests.helpers.records import Run
from unweave.lab.report import write_record_page
from unweave.lab.report.record_verdict import bound_of, verdict_of


def record_of(*rows, bound=None):
    names = ("split", "subset", "before", "value")
    metrics = [{"metric": "accuracy", **dict(zip(names, row, strict=True))} for row in rows]
    return {"scores": {"metrics": metrics}, "certificate": {"bound": bound}}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [("train", "forget", 1.0, 0.0), ("train", "adjacent", 1.0, 0.9), ("test", "adjacent", 0.95, 0.94)],
            "Forgotten: yes. 0% of the forget samples are recognised (100% before). Kept: yes. Test adjacent accuracy "
            "fell most, by 1 point.",
        ),
        (
            [("train", "forget", 1.0, 0.02), ("train", "remote", 0.9, 0.8), ("train", "adjacent", 0.9, 0.85)],
            "Forgotten: no. 2% of the forget samples are recognised (100% before). Kept: no. Train remote accuracy "
            "fell most, by 10 points.",
        ),
        (
            [("test", "adjacent", 0.9, 0.9)],
            "Forgotten: the record does not tell, because numbers of few samples are withheld. Kept: yes. No accuracy "
            "on data to keep fell.",
        ),
    ],
)
def test_the_verdict_follows_from_the_published_numbers(rows, words):
    assert verdict_of(record_of(*rows)) == words


def test_a_verdict_claims_no_more_than_rounded_numbers_tell():
    """The true accuracy is within half a step of the published one."""
    forget = {"split": "train", "subset": "forget", "metric": "accuracy", "before": 1.0, "value": 0.0, "step": 0.1}
    remote = {"split": "test", "subset": "remote", "metric": "accuracy", "before": 1.0, "value": 0.95, "step": 0.05}

    def words(**changed):
        return verdict_of({"scores": {"metrics": [forget, remote | changed]}})

    assert words().startswith("Forgotten: at most 5% of the forget samples are recognised (100% before). The record")
    assert "Kept: no accuracy on data to keep fell by more than 10 points. The record rounds accuracies" in words()
    assert words(value=0.9).endswith("Kept: no. Test remote accuracy fell most, by 10 points.")
    assert words(value=0.99, step=0.01).endswith("Kept: yes. Test remote accuracy fell most, by 1 point.")


def test_the_bound_stands_beside_what_was_measured():
    found = bound_of(record_of(("train", "forget", 1.0, 0.004), bound=0.008))
    assert (found["bound"], found["measured"]) == ("at most 0.8%", "0.4%")
    assert bound_of(record_of(bound=0.008))["measured"] == "withheld"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A chain of two records, with drift of every part of the data, and a bound."""
    folder = tmp_path_factory.mktemp("record")
    first = Run(folder).whole | {"version": 1}
    second = copy.deepcopy(first)
    second["request"] = {"id": "2031-18", "text": "A long reason without a break: " + "x" * 300}
    second["previous"] = {"hash": first["hash"], "id": first["request"]["id"]}
    second["certificate"] |= {"bound": 0.012, "words": "at most 1.2% of the 50 forget samples are predicted right"}
    change = {name: {"before": 1.0, "after": 0.9} for name in ("adjacent", "remote", "forgotten")}
    first["drift"] = [{"id": "2031-17", "train": change, "test": change}]
    second["drift"] = [*first["drift"], {"id": "2031-18", "train": change, "test": change}]
    write_record_page(folder / "page.html", [first, second])
    return folder / "page.html"


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_clipped(page_browser, file, width, scheme):
    with page_browser.shown(file, width=width, scheme=scheme) as page:
        assert page.too_wide() == []
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        if width == 1280:
            assert page.run("""return [...document.querySelectorAll(".scroll")]
                .every((box) => box.scrollWidth <= box.clientWidth)""")
        assert page.run("return [...document.querySelectorAll('th')].every((cell) => cell.scope)")
        assert page.run("return [...document.querySelectorAll('table')].every((table) => table.caption)")
        assert page.run("return [...document.querySelectorAll('nav a')].every((a) => document.querySelector(a.hash))")
        text = page.run("return document.body.innerText")
        assert "at most 1.2%" in text
        assert page.log("browser") == []


@needs_browser
def test_paper_shows_the_whole_record(page_browser, file):
    with page_browser.shown(file, width=703) as page:
        page.develop("Emulation.setEmulatedMedia", media="print")
        assert page.too_wide() == []
        page.develop("Emulation.setEmulatedMedia", media="")
        assert 2 <= page.sheets() <= 6
