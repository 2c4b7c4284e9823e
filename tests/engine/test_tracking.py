from __future__ import annotations

import subprocess
import sys

import pytest
from accelerate import tracking as accelerate_tracking

from tests.helpers.tiny import tiny
from unweave import Compute, StopWhen, Track, UsageError, unlearn
from unweave.lab.study import plan, run_study

QUICK = {"stage1_epochs": 2, "stage2_epochs": 3, "stage2_adjacent_batch": 4, "compute": Compute("cpu")}


def scalars(folder):
    """Every scalar that TensorBoard finds in a folder, by name: pairs of step and value."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_the_history(model, split, tmp_path):
    result = unlearn(
        model, split, "two-stage", profile="released", out=tmp_path / "first", callbacks=[Track("tensorboard")], **QUICK
    )
    found = scalars(tmp_path / "tracking" / "first")
    rows = result.history.rows
    for name in ("forget_loss", "multiplier"):
        logged = [(step, row[name]) for step, row in enumerate(rows) if row["phase"] == "stage 1" and name in row]
        assert found[f"stage 1/{name}"] == [(step, pytest.approx(value)) for step, value in logged]
    assert len(found["stage 2/adjacent_loss"]) == len(result.history.column("adjacent_loss", phase="stage 2"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "tracking"]


def test_trackers_get_no_hash_of_a_split_and_their_folder_is_private(model, split, tmp_path):
    """Who knows the data could find the forgotten samples from the hash by trying."""
    pytest.importorskip("tensorboard")
    unlearn(
        model, split, "two-stage", profile="released", out=tmp_path / "first", callbacks=[Track("tensorboard")], **QUICK
    )
    files = [path for path in (tmp_path / "tracking").rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not any(split.hash.encode() in path.read_bytes() for path in files)
    assert split.hash in (tmp_path / "first" / "run.json").read_text()
    assert (tmp_path / "tracking").stat().st_mode & 0o077 == 0


@pytest.mark.filterwarnings("ignore")  # what other packages warn of is theirs
def test_weights_and_biases_offline(model, split, tmp_path, monkeypatch):
    """As docs/how-to/watch.md says: without an account, into files."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    unlearn(model, split, "two-stage", profile="released", out=tmp_path / "first", callbacks=[Track("wandb")], **QUICK)
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert next(run.glob("*.wandb")).stat().st_size > 500


@pytest.mark.filterwarnings("ignore")
def test_mlflow_into_a_file(model, split, tmp_path, monkeypatch):
    """As docs/how-to/watch.md says: without a server, into a data base of one file."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    result = unlearn(
        model, split, "two-stage", profile="released", out=tmp_path / "first", callbacks=[Track("mlflow")], **QUICK
    )
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'first'")
    (run,) = client.search_runs([experiment.experiment_id])
    logged = client.get_metric_history(run.info.run_id, "stage 2/adjacent_loss")
    losses = result.history.column("adjacent_loss", phase="stage 2")
    assert [metric.value for metric in logged] == pytest.approx(losses)
    assert run.data.params["method"] == "two-stage"


def test_the_command_tells_tensorboard(unweave_command, tmp_path):
    pytest.importorskip("tensorboard")
    words = ("run", "digits", "--method", "ga", "--set", "epochs=1", "--device", "cpu", "--track", "tensorboard")
    code, _, err = unweave_command(*words, "--no-guard", "--out", tmp_path / "first")
    assert code == 0, err
    assert "ascend/loss" in scalars(tmp_path / "tracking" / "first")


class Recorder(accelerate_tracking.GeneralTracker):
    """A tracker of one's own, as Accelerate describes it."""

    name = "recorder"
    requires_logging_directory = False
    runs: dict = {}  # noqa: RUF012

    def __init__(self, run_name, **_):
        super().__init__()
        self.rows = self.runs.setdefault(run_name, [])

    @property
    def tracker(self):
        return self.rows

    def store_init_configuration(self, values):
        self.rows.append(values)

    def log(self, values, step=None, **_):
        self.rows.append((step, values))

    def finish(self):
        self.rows.append("finished")


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setitem(accelerate_tracking.LOGGER_TYPE_TO_CLASS, "recorder", Recorder)
    monkeypatch.setattr(Recorder, "runs", {})
    return Recorder


def test_a_resumed_run_tells_the_rest(model, split, tmp_path, recorder):
    asked = []

    def stop():
        asked.append(None)
        return len(asked) == 4

    with pytest.raises(RuntimeError, match="can be resumed"):
        unlearn(
            model,
            split,
            "two-stage",
            profile="released",
            out=tmp_path / "run",
            callbacks=[Track("recorder"), StopWhen(stop)],
            **QUICK,
        )
    result = unlearn(
        model,
        split,
        "two-stage",
        profile="released",
        out=tmp_path / "run",
        resume=True,
        callbacks=[Track("recorder")],
        **QUICK,
    )
    told = recorder.runs["run"]
    assert [row for row in told if row == "finished"] == ["finished"] * 2
    steps = [row[0] for row in told if isinstance(row, tuple)]
    assert steps == list(range(len(result.history)))
    config = told[0]
    assert (config["method"], config["alpha"], config["seed"]) == ("two-stage", 0.5, 0)


def test_a_run_into_the_current_folder_is_named_after_it(model, split, tmp_path, recorder, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    unlearn(model, split, "two-stage", profile="released", out=".", callbacks=[Track("recorder")], **QUICK)
    assert set(recorder.runs) == {"here"}
    assert (tmp_path / "here" / "scores.json").exists()


def test_a_study_tells_of_every_cell(tmp_path, recorder):
    run_study(tiny(), plan(["original", "ga"], seeds=2), tmp_path / "s", device="cpu", track=["recorder"])
    assert set(recorder.runs) == {"original.seed-0", "original.seed-1", "ga.seed-0", "ga.seed-1"}


def test_a_wrong_tracker_is_refused_before_anything(model, split, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="Did you mean 'tensorboard'"):
        unlearn(
            model,
            split,
            "two-stage",
            profile="released",
            out=tmp_path / "run",
            compute=Compute("cpu"),
            callbacks=[Track("tensorbord")],
        )
    monkeypatch.setattr(accelerate_tracking, "get_available_trackers", list)
    with pytest.raises(UsageError, match="pip install comet-ml"):
        Track("comet_ml").check()
    assert list(tmp_path.iterdir()) == []
    words = [sys.executable, "-m", "unweave", "run", "digits", "--track", "nothing", "--out", str(tmp_path / "x")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "There is no tracker 'nothing'" in done.stderr
