"""What a GPU measured becomes totals, ratios and a report. (The measuring itself needs a GPU.)"""

from __future__ import annotations

import json

import pytest
import torch

from bench import gpu, measure, workloads, yardsticks
from tests.helpers.places import ROOT

BY_STAGE = ("first_run", "stages", "yardstick")


@pytest.fixture
def measured():
    content = json.loads((ROOT / "results" / "speed" / "h200" / "gpu.json").read_text())
    for key in BY_STAGE:
        content[key] = {int(stage): row for stage, row in content[key].items()}
    # These numbers are older than the measurement of our own method.
    own = content["stages"][2]
    return {
        **content,
        "constrained": own,
        "constrained_ratio": content["whole_yardstick_seconds"] / own["whole_seconds"],
    }


def test_totals_and_ratios_follow_from_the_measurements(measured):
    found = gpu.totals(measured)
    assert found["steps_yardstick_seconds"] == pytest.approx(found["steps_ratio"] * found["steps_seconds"])
    for name, value in found.items():
        assert value == pytest.approx(measured[name]), name


def test_everything_measured_is_shown_and_written(measured, monkeypatch, capsys):
    written = []
    monkeypatch.setattr(workloads, "images", lambda: type("Workload", (), {"note": measured["workload"]}))
    monkeypatch.setattr(gpu, "matmul_peak", lambda device: measured["matmul_peak_flops"])
    monkeypatch.setattr(gpu, "start_up", lambda workload, device: None)
    monkeypatch.setattr(gpu, "large_passes", lambda workload, device, peak: measured["passes"])
    monkeypatch.setattr(gpu, "kernels", lambda workload, device: measured["profile"])
    monkeypatch.setattr(yardsticks, "released", lambda workload, stage, device, **how: measured["yardstick"][stage])
    monkeypatch.setattr(yardsticks, "plain", lambda workload, stage, device, **how: measured["stages"][stage])
    monkeypatch.setattr(gpu, "projections", lambda workload, device: measured["projection"])
    monkeypatch.setattr(gpu, "evaluations", lambda device: measured["evaluation"])
    monkeypatch.setattr(gpu, "one_small_batch", lambda workload, device, way: measured["training"][way])
    monkeypatch.setattr(measure, "write", lambda out, name, content, device: written.append((name, content)))

    def our_stage(workload, stage, device, way):
        if stage == "constrained":
            return measured["constrained"]
        return measured["first_run" if way == "auto" else "stages"][stage]

    monkeypatch.setattr(gpu, "our_stage", our_stage)
    ratios = gpu.measure_gpu(torch.device("cpu"), None, processes=[16], steps=16)
    assert ratios == {part: round(measured["ratios"][part], 2) for part in gpu.PARTS}
    ((name, content),) = written
    assert name == "gpu"
    assert content.keys() == measured.keys() - {"provenance"}
    shown = capsys.readouterr().out
    assert shown.count("\n") == 21
    assert f"released loop, 16 loader processes: {measured['whole_yardstick_seconds']:.1f} s" in shown
    assert f"stage 2: {1e3 * measured['stages'][2]['step_seconds']:.1f} ms" in shown
    assert "host waits: none" in shown
