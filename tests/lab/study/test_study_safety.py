"""The folder of a study may come from anybody: odd files end in a sentence, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.helpers.reports import METHODS, make_study
from tests.helpers.tiny import tiny
from unweave import RunError, UsageError
from unweave.lab.report import read_results, write_report
from unweave.lab.study import Cell, Store, originals, plan, read_times, run_study
from unweave.storage import write_whole

FEW = {(method, ""): METHODS[method, ""] for method in ("original", "two-stage", "ga")}
ODD = [None, True, -1, 2**70, 1e300, "", "../../x", "$x_{", [], {}, [[None]], {"a": {"b": []}}]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "s"
    make_study(folder, benchmark="tiny", methods=FEW, seeds=1)
    Store.open(folder).write_provenance({"command": "unweave study", "versions": {"torch": "2"}, "workers": 2})
    for file in folder.rglob("history.jsonl"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    return folder


@pytest.fixture
def study(original, tmp_path):
    return shutil.copytree(original, tmp_path / "s")


def files_of(folder):
    """One file of every kind."""
    kinds = {path.name: path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".jsonl")}
    return [path.relative_to(folder) for path in kinds.values()]


def places(content, limit=3):
    """Yield where something stands in JSON: keys and numbers, from the outside in."""
    entries = content.items() if isinstance(content, dict) else enumerate(content[:limit])
    for key, entry in list(entries):
        yield (key,)
        if isinstance(entry, dict | list):
            yield from ((key, *rest) for rest in places(entry, limit=1))


def put(content, place, value):
    """Put a value where something stood; with ``KeyError`` remove what stood there."""
    *way, last = place
    for key in way:
        content = content[key]
    if value is KeyError:
        del content[last]
    else:
        content[last] = value


def read_all(folder):
    """Read everything that a report, a comparison and the next start of the study read."""
    store = Store.open(folder)
    read_results(folder)
    for cell in plan(["original", "two-stage"], seeds=1):
        store.is_done(cell)
        store.check_settings(cell, {"alpha": 0.5})
    store.times()
    store.failures()
    for name in store.finished():
        store.comparable(name)
    store.rows()


def test_an_odd_value_anywhere_ends_in_a_sentence(original, study):
    tried = refused = 0
    for name in files_of(original):
        lines = (original / name).read_text()
        content = json.loads(lines.splitlines()[0] if name.suffix == ".jsonl" else lines)
        for number, place in enumerate(places(content)):
            for value in (ODD[number % len(ODD)], *([KeyError] if number % 2 else [])):
                changed = json.loads(json.dumps(content))
                put(changed, place, value)
                (study / name).write_text(json.dumps(changed) + "\n")
                tried += 1
                try:
                    read_all(study)
                except (UsageError, RunError) as error:
                    assert len(str(error)) < 800, (name, place, value)  # noqa: PT017
                    refused += 1
        shutil.copy(original / name, study / name)
    assert tried > 150
    assert refused > tried / 5
    read_all(study)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"7", b"[" * 10_000, b'{"runs": [], "runs": 1}', b'{"a": NaN}', b"\xff", b"[1e400]"]
)
def test_a_file_that_is_no_json_ends_in_a_sentence(original, study, content):
    for name in files_of(original):
        if name.name == "times.jsonl" and content != b"\xff":  # whose odd lines are skipped
            continue
        (study / name).write_bytes(content)
        if content or name.name != "history.jsonl":
            with pytest.raises((UsageError, RunError)):
                read_all(study)
        shutil.copy(original / name, study / name)


@pytest.mark.parametrize("content", [b"", b"PAR1", bytes(1000)])
def test_a_file_that_is_no_table_ends_in_a_sentence(study, content):
    (study / "results.parquet").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read as a table"):
        read_results(study)


def test_a_table_of_other_columns_ends_in_a_sentence(study):
    import pyarrow as pa
    from pyarrow import parquet

    shutil.rmtree(study / "cells")
    parquet_file = study / "results.parquet"
    names = ("variant", "method", "profile", "seed", "split", "subset", "metric", "value")
    for values in (["x"], [[1]], [None], [{"a": 1}], [1e300]):
        parquet.write_table(pa.table(dict.fromkeys(names, values)), parquet_file)
        with pytest.raises(UsageError):
            read_results(study)


def test_the_name_of_a_study_cannot_lead_out_of_the_report(study):
    about = json.loads((study / "study.json").read_text())
    preset = {"summary": "", "shows": ["accuracy"], "about": [], "rows": [["original", "default", ""]]}
    (study / "study.json").write_text(json.dumps(about | {"presets": {"../../../escaped": preset}}))
    with pytest.raises(UsageError, match=r"names a study '\.\./\.\./\.\./escaped'"):
        write_report(study)


# Links, pipes


@pytest.fixture
def outside(tmp_path):
    """A folder of weights that belong to somebody else."""
    folder = tmp_path / "outside"
    for name in ("cell", "cell/model", "cell/checkpoints"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_text("mine")
    (folder / "original.seed-0.safetensors").write_text("mine")
    (folder / "cell" / "scores.json").write_text("{}")
    return folder


def listing(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["cells", "cells/ga.seed-0", "models", "locks", "failed", "again", "times.jsonl"])
def test_a_study_with_a_link_is_refused_and_nothing_behind_it_is_touched(study, outside, name):
    cells = plan(["original", "ga"], seeds=1, benchmark=tiny())
    shutil.rmtree(study / name, ignore_errors=True)
    (study / name).unlink(missing_ok=True)
    (study / name).symlink_to(outside / "cell" if "/" in name or "." in name else outside)
    before = listing(outside)
    for act in (
        lambda: run_study(tiny(), cells, study, device="cpu", keep="none"),
        lambda: write_report(study),
        lambda: read_results(study),
    ):
        with pytest.raises(UsageError, match="is a link"):
            act()
    assert listing(outside) == before


@pytest.mark.parametrize(
    "name", ["study.json", "results.parquet", "times.jsonl", "locks/study.lock", "provenance.json"]
)
def test_a_pipe_in_a_study_is_refused_and_not_waited_for(study, name):
    (study / name).unlink(missing_ok=True)
    os.mkfifo(study / name)
    for act in (lambda: read_results(study), lambda: Store.create(study, "digits")):
        with pytest.raises(UsageError, match="not a regular file"):
            act()


def test_null_says_the_same_as_an_absent_entry(study):
    before = Store.open(study).rows()
    for file, place in (("study.json", ()), ("cells/ga.seed-0/run.json", ("configuration",))):
        content = json.loads((study / file).read_text())
        inner = content
        for name in place:
            inner = inner[name]
        inner |= {"options": None, "presets": None} if not place else {"settings": None, "notes": None}
        (study / file).write_text(json.dumps(content))
    store = Store.open(study)
    assert store.rows() == before
    store.check_settings(Cell(method="ga", seed=1), {"epochs": 1})
    file = study / "cells" / "ga.seed-0" / "scores.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "metrics": None, "cost": None}))
    assert len(store.rows()) < len(before)


# What a process left that was killed at the very end of its work


def test_the_time_of_training_is_noted_before_the_model_is_there(tmp_path, monkeypatch):
    """A process that is killed once the model is there would never note it."""

    class Killed(BaseException):
        pass

    def killed(path, content, **more):
        write_whole(path, content, **more)
        if path.parent.name == "models":
            raise Killed

    monkeypatch.setattr(originals, "write_whole", killed)
    with pytest.raises(Killed):
        run_study(tiny(), plan(["original"], seeds=1, benchmark=tiny()), tmp_path / "study", device="cpu")
    ((name, _),) = read_times(tmp_path / "study" / "times.jsonl")
    assert name == "trained.seed-0"


def test_the_next_start_of_a_study_tidies_up(study):
    left = [
        study / "models" / "original.seed-0.unfinished" / "00-00000003.safetensors",
        study / "cells" / "ga.seed-0" / "checkpoints" / "00-00000003.safetensors",
        study / "again" / "ga.seed-0" / "history.jsonl",
        study / "locks" / "model.original.seed-0.lock",
        study / "locks" / "cell.ga.seed-0.lock",
        study / "locks" / "cell.ga.seed-0.begun",
        study / ".report.partial" / "index.html",
        study / ".report.older" / "index.html",
    ]
    kept = [
        study / "models" / "original.seed-1.unfinished" / "00-00000003.safetensors",  # not trained to its end
        study / "cells" / "ga.seed-0" / "checkpoints" / "01-00000000.safetensors",  # between two phases
    ]
    for file in (*left, *kept, study / "models" / "original.seed-0.safetensors"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("weights")
    run_study(tiny(), plan(["original", "ga"], seeds=1, benchmark=tiny()), study, device="cpu")
    assert [file.exists() for file in (*left, *kept)] == [False] * 6 + [True] * 4
    write_report(study)
    assert [path.name for path in study.glob(".report*")] == []
