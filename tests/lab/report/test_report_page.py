"""The report's page in a real browser."""

from __future__ import annotations

import json
import re
import time

import pandas as pd
import pytest

from tests.helpers.browser import needs_browser
from tests.helpers.reports import CELLS, ERROR, HOSTILE, METHODS, VARIANT, make_study
from unweave.lab.report import write_report

pytestmark = needs_browser

EXTRA = "alpha=0"  # a variant of a method that also ran without one


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    methods = {**METHODS, ("two-stage", EXTRA): (0.2, 0.97, 0.98)}
    folder = make_study(tmp_path_factory.mktemp("page") / "study", methods=methods, presets=("comparison", "dynamics"))
    write_report(folder, against_paper=True)
    return folder


@pytest.fixture(scope="module")
def frame(study):
    return pd.read_parquet(study / "results.parquet")


@pytest.fixture
def page(browser, study):
    browser.open(study / "report" / "index.html")
    return browser


def chosen(frame, method, split, subset, metric, seed="mean"):
    own = frame[(frame.method == method) & (frame.variant == dict(METHODS.keys())[method])]
    rows = own[(own.split == split) & (own.subset == subset) & (own.metric == metric)]
    return rows if seed == "mean" else rows[rows.seed == int(seed)]


def label(method, variant):
    return f"{method} {variant}".strip()


def test_it_opens_without_an_error_or_a_request(page, study):
    assert page.log("browser") == []
    page.log("performance")
    page.open(study / "report" / "index.html")
    messages = [json.loads(entry["message"])["message"] for entry in page.log("performance")]
    asked = [entry["params"]["request"]["url"] for entry in messages if entry["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith((study.as_uri(), "data:")) for url in asked)
    assert page.log("browser") == []
    assert (study / "report" / "index.html").stat().st_size < 3e6


def test_it_opens_with_the_verdict_and_the_plane(page, study):
    verdict = json.loads((study / "report" / "report.json").read_text())
    words = page.run("return [...document.querySelectorAll('h1, .rest, .advice')].map((e) => e.textContent)")
    assert f"{words[0]}: {words[1]}" == verdict["verdict"]
    assert words[2] == f"What to do: {verdict['advice']}"
    points = page.run(
        "return [...document.querySelectorAll('.points div')].map((p) => [...p.children].map((c) => c.textContent))"
    )
    assert {name: words.lower() for name, words in points} == {n: w.lower() for n, w in verdict["points"].items()}
    first = page.run("return document.querySelector('main canvas').id")
    assert first == "tradeoff-chart"


def test_methods_in_the_headline_have_a_name_in_the_plot(page, tmp_path):
    """Also in a crowd of other points, and on a phone."""
    crowd = {(f"method-{number:02}", ""): (0.45, 0.985, 0.985) for number in range(60)}
    methods = {("original", ""): (1.0, 0.99, 0.99), **crowd, ("thorough", ""): (0.0, 0.95, 0.985)}
    report = write_report(make_study(tmp_path / "study", methods=methods, seeds=1, failures=False), figures=False)
    (keeper,) = re.findall(r"; (\S+) keeps and still recognises", report.verdict)
    try:
        for width in (1100, 360):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            page.develop("Emulation.setDeviceMetricsOverride", **size)
            page.open(report.page)
            written = page.run("return Chart.getChart('tradeoff-chart').written")
            assert {keeper, "thorough"} <= {*written}
            assert len(written) < len(methods)  # there is no room for the others
    finally:
        page.develop("Emulation.clearDeviceMetricsOverride")


def test_names_and_errors_from_data_do_nothing(page):
    assert page.run("return window.hacked === undefined && document.querySelectorAll('script').length === 3")
    assert page.run("return document.querySelectorAll('img, iframe, object').length") == 0
    assert label(HOSTILE, VARIANT) in page.table()
    errors = page.run("return [...document.querySelectorAll('#failed td.error')].map((cell) => cell.textContent)")
    assert errors.count(ERROR) == 2


@pytest.mark.parametrize("seed", ["mean", "0", "2"])
def test_every_number_of_the_tables_is_the_stores(page, frame, seed):
    grids = page.run("return [...document.getElementById('table-grid').options].map((o) => [o.value, o.textContent])")
    assert [words.split(" in ")[0] for _, words in grids] == [
        "Accuracy",
        "Mean loss",
        "Membership attacks",
        "Other measures",
        "Cost",
    ]
    for number, words in grids[:2]:
        page.select("table-grid", number)
        page.select("table-seed", seed)
        shown, metric = page.table(), "accuracy" if words.startswith("Accuracy") else "loss"
        scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
        assert set(shown) == {label(*key) for key in METHODS} | {"salun"}
        assert shown["salun"] == ["0 (2 failed)", *["failed"] * 6]
        for method, variant in METHODS:
            for text, (split, subset) in zip(shown[label(method, variant)][1:], CELLS, strict=True):
                values = scale * chosen(frame, method, split, subset, metric, seed).value
                expected = f"{values.mean():.{digits}f}" if len(values) else "–"
                assert text == (f"{expected} ± {values.std():.{digits}f}" if seed == "mean" else expected)


def test_the_embedded_values_are_the_table_row_by_row(page, frame):
    data = page.run("return JSON.parse(document.getElementById('data').textContent)")
    found = set()
    for group, places in zip(data["groups"], data["values"], strict=True):
        for place, entry in zip(data["places"], places, strict=True):
            for seed, (value, *_) in (entry or {"seeds": {}})["seeds"].items():
                found.add((group["label"], int(seed), place["split"], place["subset"], place["metric"], value))
    rows = frame.itertuples()
    expected = {(label(r.method, r.variant), r.seed, r.split, r.subset, r.metric, r.value) for r in rows}
    assert found == expected


@pytest.mark.parametrize(("split", "subset", "seed"), [("test", "adjacent", "mean"), ("train", "remote", "1")])
def test_the_plane_follows_its_controls(page, frame, split, subset, seed):
    for name, value in (("split", split), ("subset", subset), ("seed", seed)):
        page.select(f"tradeoff-{name}", value)
    points = page.run("""return Chart.getChart("tradeoff-chart").data.datasets.filter((d) => d.named !== undefined)
        .map((d) => [d.data[0].label, d.data[0].x, d.data[0].y])""")
    assert {name for name, *_ in points} == {label(*key) for key in METHODS}
    for name, x, y in points:
        method = name.split(" ")[0]
        for found, part in ((x, "forget"), (y, subset)):
            assert found == pytest.approx(100 * chosen(frame, method, split, part, "accuracy", seed).value.mean())
    title = page.run("return Chart.getChart('tradeoff-chart').options.scales.y.title.text")
    assert title.startswith(f"{subset} accuracy in %")


def test_one_measure_for_every_method(page, frame):
    page.select("compare-metric", "mia_population_auc")
    page.select("compare-seed", "1")
    labels, values = page.run("const c = Chart.getChart('compare-chart').data; return [c.labels, c.datasets[0].data]")
    expected = frame[(frame.metric == "mia_population_auc") & (frame.seed == 1) & (frame.variant != EXTRA)]
    assert dict(zip(labels, values, strict=True)) == pytest.approx(
        {label(row.method, row.variant): row.value for row in expected.itertuples()}
    )
    page.select("compare-metric", "seconds")
    assert "lower is better" in page.run("return document.getElementById('compare-lead').textContent")


def test_one_method_up_close(page, study):
    options = page.run(
        "return [...document.getElementById('method-group').options].map((o) => [o.textContent, o.value])"
    )
    page.select("method-group", dict(options)["ga"])
    page.select("method-seed", "1")
    page.select("method-subset", "test adjacent")
    shown = page.run("return Chart.getChart('history-chart').data.datasets.map((d) => [d.label, d.data])")
    folder = study / "cells" / "ga.seed-1"
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [name for name, _ in shown] == ["forget loss"]
    assert 100 <= len(shown[0][1]) < len(rows)
    assert all(rows[point["x"]]["forget_loss"] == point["y"] for point in shown[0][1])
    lines = page.run("return Chart.getChart('losses-chart').data.datasets.map((d) => [d.label, d.data])")
    histogram = json.loads((folder / "scores.json").read_text())["test"]["adjacent"]["loss_histogram"]
    assert [point["x"] for point in lines[0][1]] == histogram["edges"]
    assert lines[0][1][-1]["y"] == pytest.approx(100)
    assert {name for name, _ in lines} == {"ga", "original", "retrain"}


def test_variants_are_shown_when_asked_for(page, frame):
    assert label("two-stage", EXTRA) not in page.table()
    page.select("tradeoff-show", "all")
    assert label("two-stage", EXTRA) in page.table()
    points = page.run("""return Chart.getChart("tradeoff-chart").data.datasets.filter((d) => d.named !== undefined)
        .map((d) => [d.data[0].label, d.data[0].x])""")
    rows = frame[(frame.variant == EXTRA) & (frame.metric == "accuracy") & (frame.split == "test")]
    assert dict(points)[label("two-stage", EXTRA)] == pytest.approx(100 * rows[rows.subset == "forget"].value.mean())
    page.select("table-show", "methods")
    assert label("two-stage", EXTRA) not in page.table()
    assert page.run("return document.getElementById('tradeoff-show').value") == "methods"


def test_every_number_of_a_studys_section_is_the_stores(page, frame):
    rows = page.run("""return [...document.querySelectorAll('[data-study="comparison"] tbody tr')].map(
        (row) => [...row.children].map((cell) => cell.textContent))""")
    assert {name for name, *_ in rows} == {label(*key) for key in METHODS} | {label("two-stage", EXTRA)}
    for name, _, *texts in rows:
        own = frame[[label(row.method, row.variant) == name for row in frame.itertuples()]]
        for text, (split, subset) in zip(texts, CELLS, strict=True):
            place = (own.split == split) & (own.subset == subset) & (own.metric == "accuracy")
            values = 100 * own[place].value
            assert text == f"{values.mean():.1f} ± {values.std():.1f}"


def test_the_last_stage_step_by_step(page, study):
    lines = dict(page.run("return Chart.getChart('dynamics-chart').data.datasets.map((d) => [d.label, d.data])"))
    assert set(lines) == {"two-stage", label("two-stage", EXTRA)}
    rows = [json.loads(line) for line in (study / "cells/two-stage.seed-0/history.jsonl").read_text().splitlines()]
    for point in lines["two-stage"]:  # every seed logged the same
        assert point["y"] == pytest.approx(100 * rows[30 + point["x"]]["forget_accuracy"])
    page.select("dynamics-logged", "watched_forget_loss")
    page.select("dynamics-seed", "1")
    (first, *_) = page.run("return Chart.getChart('dynamics-chart').data.datasets[0].data")
    assert first["y"] == rows[30 + first["x"]]["watched_forget_loss"]


def test_losses_between_the_stages(page):
    options = dict(
        page.run("return [...document.getElementById('method-group').options].map((o) => [o.textContent, o.value])")
    )
    page.select("method-group", options["two-stage"])
    page.select("method-subset", "train forget")
    shown = page.run("return Chart.getChart('losses-chart').data.datasets.map((d) => d.label)")
    assert shown == ["two-stage", "after first", "original", "retrain"]


def test_tables_sort(page, frame):
    script = "document.querySelectorAll('#main-table thead button')[arguments[0]].click()"
    means = frame[(frame.metric == "accuracy") & (frame.split == "train") & (frame.subset == "forget")]
    means = means[means.variant != EXTRA]
    order = list(means.groupby("method").value.mean().sort_values().index)
    page.run(script, 1)
    assert [name.split(" ")[0] for name in page.table()] == [*order, "salun"]
    page.run(script, 1)
    assert [name.split(" ")[0] for name in page.table()] == [*order[::-1], "salun"]
    page.run(script, 0)
    assert list(page.table()) == sorted(page.table(), key=str.lower)


def test_hovering_shows_the_value(page, frame):
    place = page.run("""const chart = Chart.getChart("tradeoff-chart");
        chart.canvas.scrollIntoView({ block: "center", behavior: "instant" });
        const index = chart.data.datasets.findIndex((d) => d.data[0].label === "ga" && d.named !== undefined);
        const point = chart.getDatasetMeta(index).data[0], box = chart.canvas.getBoundingClientRect();
        return [Math.round(box.left + point.x), Math.round(box.top + point.y)]""")
    page.hover(*place)
    time.sleep(0.2)
    title, lines = page.run("""const tip = Chart.getChart("tradeoff-chart").tooltip;
        return [tip.title, tip.body.flatMap((part) => part.lines)]""")
    assert title == ["ga"]
    values = 100 * chosen(frame, "ga", "test", "adjacent", "accuracy").value
    assert f"adjacent {values.mean():.1f} ± {values.std():.1f} %" in lines


def test_choosing_a_method_highlights_it_everywhere(page):
    page.run("""const names = [...document.querySelectorAll("#tradeoff-chips b")];
        names.find((name) => name.textContent === "ga").closest("button").click()""")
    assert page.run("return document.querySelector('#main-table tr.chosen th').textContent") == "ga"
    assert (
        page.run("const s = document.getElementById('method-group'); return s.selectedOptions[0].textContent") == "ga"
    )


def test_phone_dark_and_paper(page, study):
    background = "return getComputedStyle(document.body).backgroundColor"
    try:
        page.develop("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
        page.develop("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        page.open(study / "report" / "index.html")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert page.run(background) == "rgb(20, 24, 28)"
        assert page.run("return Chart.getChart('compare-chart').options.scales.y.ticks.color") == "#e8ecef"
        page.develop("Emulation.setEmulatedMedia", media="print")
        assert page.run(background) == "rgb(255, 255, 255)"
        page.run("dispatchEvent(new Event('beforeprint'))")
        boxes = page.run("return [...document.querySelectorAll('canvas')].map((c) => [c.offsetWidth, c.offsetHeight])")
        assert [width for width, _ in boxes] == [680] * 5
        assert min(height for _, height in boxes) > 200
        page.run("dispatchEvent(new Event('afterprint'))")
        assert len(page.develop("Page.printToPDF")["data"]) > 10_000
    finally:
        page.develop("Emulation.clearDeviceMetricsOverride")
        page.develop("Emulation.setEmulatedMedia", media="", features=[])
    assert page.log("browser") == []
