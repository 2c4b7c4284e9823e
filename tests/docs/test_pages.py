"""Snippets of the how-to pages run, command lines exist, and the reference has every metric and every file."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
import warnings

import pytest
import torch
import typer
from torch import nn

import unweave as uw
from tests.helpers.pages import commands, python_blocks
from tests.helpers.places import ROOT
from unweave.cli.app import app
from unweave.cli.commands import COMMANDS
from unweave.lab.report.meanings import WORDS
from unweave.methods import METHODS

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("how-to/*.md"))
EXPLAINED = sorted(DOCS.glob("explanation/*.md"))


@pytest.fixture(scope="module")
def learned():
    """A network that knows three kinds of points, two of which share a label, and its data."""
    torch.manual_seed(0)
    kinds = torch.arange(600) % 3
    centres = torch.tensor([[3.0, 0, 0, 0], [3.0, 4, 0, 0], [-3.0, 0, 3, 0]])
    parts = [(centres[kinds] + 0.7 * torch.randn(600, 4), (kinds == 2).long()) for _ in range(2)]
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(parts[0][0]), parts[0][1]).backward()
        optimizer.step()
    return model.eval(), parts, (kinds == 0).nonzero().flatten()


def run(page, space):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uw.RunWarning)
        for block in python_blocks(DOCS / "how-to" / page):
            exec(compile(block, page, "exec"), space)
    return space


@pytest.fixture
def given(learned):
    model, (train, test), gone = learned
    splits = [uw.Split(data, forget=gone, adjacent=gone + 1) for data in (train, test)]
    return {"model": model, "data": train, "gone": gone, "split": splits[0], "test": splits[1]}


def test_adjacent_data(given, capsys):
    run("adjacent-data.md", dict(given))
    printed = capsys.readouterr().out
    assert "Entanglement" in printed
    assert len(re.findall(r"(?m)^0\.[02] [\d.]+$", printed)) == 2


def test_read_a_verdict(given, capsys):
    space = run("read-a-verdict.md", dict(given))
    assert space["result"].verdict.forgotten
    assert "('test', 'remote', " in capsys.readouterr().out


def test_watch_a_run(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("watch.md", dict(given))
    assert list((tmp_path / "runs" / "tracking" / "first").glob("events.*"))


def test_migrate(given):
    from tests.helpers import texts

    tokenizer, model = texts.tokenizer(), texts.llama()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    language = {"rows": texts.rows(), "tokenizer": tokenizer, "gone": range(2), "near": range(2, 8)}
    images = {"train_set": given["data"], "forget_positions": given["gone"], "near_positions": given["split"].adjacent}
    space = {**language, **images, "model": model}
    language_block, image_block = python_blocks(DOCS / "how-to" / "migrate.md")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uw.RunWarning)
        exec(compile(language_block, "migrate.md", "exec"), space)
        assert space["result"].settings.learning_rate == 1e-5
        exec(compile(image_block, "migrate.md", "exec"), {**space, "model": given["model"], "uw": uw})


def test_names_of_settings_on_the_page_of_migration():
    text = (DOCS / "how-to" / "migrate.md").read_text(encoding="utf-8")
    tables = text.partition("## From SCRUB")[::2]
    for table, method in zip(tables, ("npo", "scrub"), strict=True):
        known = {field.name for field in dataclasses.fields(METHODS[method])}
        rows = re.findall(r"(?m)^\| `.*?\| (.*) \|$", table)
        named = {name for row in rows for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", row)}
        assert named
        assert named <= known
    methods = re.findall(r"(?m)^\| `trainer=NPO`.*\| `\"npo\"` \((.*)\) \|$", text)[0]
    assert set(re.findall(r"`([a-z-]+)`", methods)) <= set(METHODS)


def lines_of(text):
    """Return the command lines of a page's examples, long lines joined."""
    text = re.sub(r"\\\n\s*", "", text)
    examples = [*re.findall(r"(?ms)^```(?:shell|bash)\n(.*?)^```", text), *re.findall(r"(?m)^    (.*)$", text)]
    return re.findall(r"(?m)^((?:unweave|torchrun .*-m unweave) [a-z].*)$", "\n".join(examples))


@pytest.fixture(scope="module")
def known():
    for module, _ in COMMANDS.values():
        importlib.import_module(f"unweave.cli.{module}")
    return dict(commands(typer.main.get_group(app)))


@pytest.mark.parametrize("page", [*PAGES, DOCS / "record.md", ROOT / "README.md"], ids=lambda page: page.stem)
def test_commands_and_flags_exist(page, known):
    for line in lines_of(page.read_text(encoding="utf-8")):
        words = shlex.split(line.replace("…", ""), comments=True)
        words = words[words.index("unweave") :]
        name = " ".join(words[:3]) if " ".join(words[:3]) in known else " ".join(words[:2])
        assert name in known, line
        flags = {flag for parameter in known[name].params for flag in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= flags, line


@pytest.mark.parametrize("page", [*PAGES, *EXPLAINED, DOCS / "compared.md"], ids=lambda page: page.stem)
def test_pages_are_short_and_in_the_navigation(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) < 800
    assert max(map(len, (line for line in text.splitlines() if not line.startswith("|")))) <= 120
    assert f": {page.relative_to(DOCS)}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


# Metrics


def rows_of_metrics():
    text = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    return {row[0]: row[1:] for row in re.findall(r"(?m)^\| `([^`]+)` \| (.*?) \| (.*?) \| ?(.*?) ?\|$", text)}


def entry(name):
    """Return the row of a metric, which may be that of a family of attacks."""
    for written, row in rows_of_metrics().items():
        form = written.replace("ATTACK", r"mia_(population|rmia|ulira|svc_FEATURE)")
        form = form.replace("FEATURE", "(correctness|confidence|entropy|modified_entropy|probability)")
        if re.fullmatch(form, name):
            return row
    raise AssertionError(f"docs/reference/metrics.md has no {name}")


@pytest.fixture(scope="module")
def measured(learned):
    model, (train, test), gone = learned
    splits = [uw.Split(data, forget=gone, adjacent=gone + 1) for data in (train, test)]
    every = ["membership", "reference", "probe", "relearn"]
    return uw.evaluate(
        model,
        *splits,
        reference=[model, model],
        original=model,
        questions=every,
        resamples=0,
        relearn=uw.RelearnSettings(steps=2),
    )


def test_every_metric_of_a_classifier_is_explained_with_its_direction(measured):
    arrows = {"lower": "↓", "higher": "↑", "reference": "→"}
    names = {metric.metric for metric in measured.metrics}
    assert len(names) > 50
    for metric in measured.metrics:
        formula, direction, pitfalls = entry(metric.metric)
        assert formula
        assert arrows[metric.better] in direction, metric
        assert pitfalls or metric.metric.startswith("relearn")


def test_every_metric_of_answers_is_explained_with_its_direction():
    numbers = {"log_probabilities": [[-0.1, -0.3, -0.2]] * 12, "right": [[True, False, True]] * 12}
    numbers |= {"expected": [[-1.0] * 3] * 12, "spread": [[0.5] * 3] * 12, "written": ["a c"] * 12}
    sheet = uw.AnswerSheet(questions=["q"] * 12, answers=["a b"] * 12, wrong=[[0.5, 0.7]] * 12, **numbers)
    groups = ("forget", "adjacent", "held_out", "retain", "real_authors", "world_facts")
    said = dict.fromkeys(groups, dataclasses.replace(sheet, gradient=[1.0] * 12))
    found = uw.score_answers(said, reference=said, before=said, resamples=0).metrics
    assert len({metric.metric for metric in found}) > 12
    for metric in found:
        formula, direction, pitfalls = entry(metric.metric)
        assert formula
        assert pitfalls
        parts = dict.fromkeys(("forget", "others"), direction)
        parts |= {words: arrow for arrow, words in re.findall(r"([↓↑]) (forget|others)", direction)}
        arrow = {"lower": "↓", "higher": "↑", "reference": "→"}[metric.better]
        assert arrow in parts["forget" if metric.subset in ("forget", "") else "others"], metric


def test_every_metric_that_the_report_knows_is_explained():
    plain = [form for form, _ in WORDS if re.fullmatch(r"\w+", form)]
    assert len(plain) > 20
    for name in plain:
        entry(name)


def test_nothing_is_explained_that_does_not_exist(measured):
    exists = {metric.metric for metric in measured.metrics} | {form for form, _ in WORDS}
    for name in rows_of_metrics():
        if "ATTACK" not in name and "FEATURE" not in name:
            assert name in exists or any(re.fullmatch(form, name) for form, _ in WORDS), name


# Files


def test_every_format_is_listed():
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    formats = set(re.findall(r'"format": "(unweave-[a-z-]+)"', sources))
    assert len(formats) > 5
    for name in formats:
        assert f"`{name}`" in text


def test_every_file_of_a_run_with_a_record_is_listed(given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uw.RunWarning)
        result = uw.unlearn(given["model"], given["split"], test=given["test"], out="runs/17")
    uw.record.write(result, uw.Request(id="17"))
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    for file in (tmp_path / "runs" / "17").iterdir():
        assert f"`{file.name}{'/' if file.is_dir() else ''}`" in text
    for block in python_blocks(DOCS / "reference" / "files.md"):
        exec(compile(block, "files.md", "exec"), {})
    assert "rounds" in capsys.readouterr().out
