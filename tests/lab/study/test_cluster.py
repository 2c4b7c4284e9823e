"""A Ray cluster of two nodes, both on this machine: the results of one process, and the same resume."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from unweave import Compute, UsageError
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.study import plan, run_workers
from unweave.lab.study.cluster import on_cluster

ONE = {"workers": 1, "computing": Compute("cpu")}

STUDY = ["study", "digits", "--small", "--methods", "original,ga,ft", "--seeds", "1", "--device", "cpu", "--json"]


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'unweave[cluster]'")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found.address
    found.shutdown()


def numbers(folder):
    from pyarrow import parquet

    rows = parquet.read_table(folder / "results.parquet").to_pylist()
    return {
        (row["method"], row["split"], row["subset"], row["metric"]): row["value"]
        for row in rows
        if row["metric"] in ("accuracy", "loss", "sample_gradients")
    }


@pytest.mark.filterwarnings("ignore")  # of Ray, which the versions word differently
def test_a_study_on_two_nodes_is_that_of_one_machine_and_resumes(cluster, shell, tmp_path):
    done = shell(*STUDY, "--out", tmp_path / "nodes", "--cluster", cluster)
    assert done.code == 0, done.err
    assert json.loads(done.out)["done"] == 3
    assert shell(*STUDY, "--out", tmp_path / "alone").code == 0
    assert numbers(tmp_path / "nodes") == pytest.approx(numbers(tmp_path / "alone"), rel=1e-4, abs=1e-6)
    shutil.rmtree(tmp_path / "nodes" / "cells" / "ga.seed-0")
    again = shell(*STUDY, "--out", tmp_path / "nodes", "--cluster", cluster)
    assert (again.code, json.loads(again.out)["done"]) == (0, 3)
    assert numbers(tmp_path / "nodes") == pytest.approx(numbers(tmp_path / "alone"), rel=1e-4, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_tuning_runs_on_the_nodes(cluster, shell, tmp_path):
    words = ["tune", "digits", "--small", "--methods", "ga", "--trials", "2", "--device", "cpu", "--json"]
    done = shell(*words, "--out", tmp_path / "tuning", "--cluster", cluster)
    assert done.code == 0, done.err
    assert json.loads(done.out)["done"] == 2


@pytest.mark.filterwarnings("ignore")
def test_an_address_without_a_cluster_is_named(shell, tmp_path):
    pytest.importorskip("ray")
    refused = shell(*STUDY, "--out", tmp_path / "none", "--cluster", "http://nowhere")
    assert (refused.code, "There is no Ray cluster at http://nowhere" in refused.err) == (2, True), refused.err


def test_ray_is_asked_for_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    cells = plan(["original"], seeds=1)
    with pytest.raises(UsageError, match=r"A cluster needs the package ray: pip install 'unweave\[cluster\]'"):
        run_workers(
            lambda: find_benchmark("digits", options={"small": True}), cells, tmp_path, workers=1, cluster="auto"
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["", " "])
def test_an_empty_address_is_refused_before_ray_would_start_a_cluster(address):
    with pytest.raises(UsageError, match="address of the cluster is empty"), on_cluster(address, print, **ONE):
        raise AssertionError("a cluster was used")


@pytest.mark.parametrize("error", [AssertionError("odd address"), KeyError("grpc"), TypeError("x"), ImportError()])
def test_whatever_ray_raises_for_an_address_is_said_in_our_words(error, monkeypatch):
    def init(**_):
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(UsageError, match="There is no Ray cluster at nowhere:"), on_cluster("nowhere", print, **ONE):
        raise AssertionError("a cluster was used")
