"""What a person sees and hears of the report's page: labels, legend, axes, sections, paper."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from tests.helpers.browser import needs_browser
from tests.helpers.reports import make_study
from unweave.lab.report import write_report

pytestmark = needs_browser

# Some lie alone, some beside each other, some in one place, as in published studies.
METHODS = {
    ("original", ""): (1.0, 0.99, 0.99),
    ("retrain", ""): (0.12, 0.99, 0.99),
    ("adaptive", ""): (0.0, 0.985, 0.99),
    ("two-stage", ""): (0.0, 0.98, 0.985),
    ("unweave", ""): (0.02, 0.975, 0.985),
    ("gdr", ""): (0.0, 0.93, 0.97),
    ("scrub", ""): (0.0, 0.95, 0.97),
    ("pgd", ""): (0.15, 0.985, 0.98),
    ("l1-sparse", ""): (0.17, 0.98, 0.98),
    ("munba", ""): (0.25, 0.98, 0.98),
    ("salun", ""): (0.35, 0.98, 0.98),
    ("ft", ""): (0.75, 0.985, 0.98),
    ("delete", ""): (0.12, 0.74, 0.98),
    ("ga", ""): (0.12, 0.61, 0.98),
    ("ssd", ""): (0.07, 0.57, 0.95),
}
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = make_study(tmp_path_factory.mktemp("look") / "study", methods=METHODS, failures=False)
    write_report(folder, figures=False)
    return folder


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")], ids=str)
def page(request, browser, study):
    width, scheme = request.param
    with browser.shown(study / "report" / "index.html", width=width, scheme=scheme):
        yield browser


def lists_of(page):
    """Return the lists of names in the plot: each with its box, its names and its points."""
    return page.run("""return Chart.getChart("tradeoff-chart").lists.map(({ box, group, lines }) => ({ box,
        names: lines.map((line) => line.text), points: group.map(({ x, y, label }) => ({ x, y, label })) }))""")


def distance(point, box):
    across = max(box["x"] - point["x"], 0, point["x"] - box["x"] - box["w"])
    up = max(box["y"] - point["y"], 0, point["y"] - box["y"] - box["h"])
    return math.hypot(across, up)


def check_labels(page):
    found = lists_of(page)
    for one in found:
        for point in one["points"]:
            assert point["label"] in one["names"] or any(name.startswith("and ") for name in one["names"])
            others = [distance(point, other["box"]) for other in found if other is not one]
            assert distance(point, one["box"]) < min(others, default=math.inf), point
    boxes = [one["box"] for one in found]
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return found


INSIDE = """const chart = Chart.getChart("tradeoff-chart"); const { left, right, top, bottom } = chart.chartArea;
    const points = chart.data.datasets.flatMap((set, index) => set.named === undefined ? []
        : [[set.data[0].label, chart.getDatasetMeta(index).data[0]]]);
    return points.filter(([, p]) => p.x >= left && p.x <= right && p.y >= top && p.y <= bottom).map(([name]) => name)"""


def test_the_nearest_label_of_each_point_is_its_own(page):
    for view in ("all", "near"):
        page.select("tradeoff-view", view)
        found, inside = check_labels(page), page.run(INSIDE)
        assert sorted(point["label"] for one in found for point in one["points"]) == sorted(inside)
        assert view == "near" or len(inside) == len(METHODS)


def test_every_method_has_one_mark_in_plot_and_legend(page):
    marks = page.run("""return Chart.getChart("tradeoff-chart").data.datasets.filter((d) => d.named !== undefined)
        .map((d) => [d.data[0].label, d.pointStyle, d.rotation, d.borderColor])""")
    assert len({(shape, turned, colour) for _, shape, turned, colour in marks}) == len(METHODS)
    legend = page.run("""return [...document.querySelectorAll("#tradeoff-chips button")].map((b) => [
        b.querySelector("b").textContent, b.querySelector("path").getAttribute("d"), b.textContent])""")
    assert {name for name, *_ in legend} == {name for name, _ in METHODS}
    assert "forgets and keeps" in {name: words for name, _, words in legend}["adaptive"]
    shapes = {}
    for name, shape, turned, _ in marks:
        shapes.setdefault((shape, turned), set()).add(next(path for other, path, _ in legend if other == name))
    assert all(len(paths) == 1 for paths in shapes.values())


def test_nothing_is_wider_than_the_screen_and_sections_are_in_order(page):
    assert page.too_wide() == []
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    levels = page.run("""return [...document.querySelectorAll("h1, h2, h3, h4")]
        .filter((h) => h.getClientRects().length).map((h) => Number(h.tagName[1]))""")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= before + 1 for before, later in itertools.pairwise(levels))
    links = page.run("""return [...document.querySelectorAll("nav a")].filter((a) => a.getClientRects().length)
        .map((a) => [a.textContent, document.querySelector(a.hash)?.querySelector("h2")?.textContent])""")
    assert len(links) >= 5
    assert all(words == heading for words, heading in links)


def test_axes_suit_the_measure_and_zero_is_seen(browser, study):
    with browser.shown(study / "report" / "index.html") as page:
        page.select("compare-metric", "accuracy")
        bars = page.run("""const chart = Chart.getChart("compare-chart");
            return chart.getDatasetMeta(0).data.map((bar, index) => [
                chart.data.datasets[0].data[index], Math.abs(bar.x - bar.base)])""")
        assert min(value for value, _ in bars) < 0.05
        assert min(length for _, length in bars) > 2
        assert "0.0 %" in page.run("return Chart.getChart('compare-chart').figures")
        page.select("compare-metric", "mia_population_auc")
        scale = page.run("const { min, max } = Chart.getChart('compare-chart').scales.x; return [min, max]")
        assert scale == [0.5, 1]
        assert "0.5, which is chance" in page.run("return document.getElementById('compare-lead').textContent")


def test_a_reader_of_the_screen_gets_everything(browser, study):
    with browser.shown(study / "report" / "index.html") as page:
        counts = page.run("""return ["header", "nav", "main", "footer"]
            .map((tag) => document.querySelectorAll(`body > ${tag}`).length)""")
        assert counts == [1] * 4
        for every in (
            "canvas')].every((c) => c.getAttribute('role') === 'img' && c.getAttribute('aria-label'))",
            "table')].every((t) => t.caption && t.caption.textContent)",
            "th')].every((cell) => cell.scope)",
            "select')].every((s) => s.labels.length === 1)",
        ):
            assert page.run(f"return [...document.querySelectorAll('{every}"), every
        said = "const said = document.getElementById('tradeoff-said'); return [said.ariaLive, said.textContent]"
        before = page.run(said)
        page.select("tradeoff-subset", "remote")
        polite, after = page.run(said)
        assert polite == "polite"
        assert "remote" in after
        assert "remote" not in before[1]
        assert "small dots are its seeds" in after


def test_the_keyboard_keeps_its_place_and_shows_it(browser, study):
    with browser.shown(study / "report" / "index.html") as page:
        for selector in ("#sort-1", "#tradeoff-chips li:nth-child(3) button"):
            page.run("document.querySelector(arguments[0]).focus(); document.activeElement.click()", selector)
            assert page.run("return document.activeElement === document.querySelector(arguments[0])", selector)
        page.run("document.querySelector('.skip').focus()")
        assert page.run("return document.querySelector('.skip').getBoundingClientRect().left >= 0")
        selectors = page.run("""return [...document.styleSheets[0].cssRules].map((rule) => rule.selectorText || "")
            .find((words) => words.includes(":focus-visible"))""")
        assert all(f"{tag}:focus-visible" in selectors for tag in ("a", "select", "button", "summary", "input"))


def test_paper_shows_every_table_and_cuts_nothing(browser, study):
    with browser.shown(study / "report" / "index.html", width=703) as page:  # A4 less its margins
        page.develop("Emulation.setEmulatedMedia", media="print")
        page.run("dispatchEvent(new Event('beforeprint'))")
        assert page.too_wide() == []
        captions = page.run("return [...document.querySelectorAll('table')].map((t) => t.caption.textContent)")
        for words in ("Accuracy in %", "Mean loss", "Membership attacks", "Other measures", "Cost"):
            assert words in [caption.split(" · ")[0] for caption in captions]
        assert page.run("""return [...document.querySelectorAll("canvas")]
            .every((c) => c.getBoundingClientRect().right <= innerWidth)""")
        page.run("dispatchEvent(new Event('afterprint'))")
        assert page.run("return document.querySelectorAll('#all-tables table').length") == 0
        page.develop("Emulation.setEmulatedMedia", media="")
        assert 3 <= page.sheets() <= 12


def test_a_crowd_shares_lists_that_say_how_many_are_left_out(browser, tmp_path):
    crowd = {(f"method-{number:02}", ""): (0.45, 0.985, 0.985) for number in range(30)}
    methods = {("original", ""): (1.0, 0.99, 0.99), **crowd, ("thorough", ""): (0.0, 0.95, 0.985)}
    report = write_report(make_study(tmp_path / "study", methods=methods, seeds=1, failures=False), figures=False)
    for width in WIDTHS:
        with browser.shown(report.page, width=width) as page:
            names = [name for one in check_labels(page) for name in one["names"]]
            rest = [int(found[1]) for name in names if (found := re.fullmatch(r"and (\d+) more", name))]
            assert len(names) - len(rest) + sum(rest) == len(methods)
            assert rest
