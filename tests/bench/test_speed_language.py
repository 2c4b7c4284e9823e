"""The bench of language models runs from end to end on a tiny shape."""

from __future__ import annotations

import json
import sys

import pytest
from bench.language import SHAPES, phase_of
from bench.language_memory import parameters_of

from bench import language


def test_every_side_is_measured_and_compared(tmp_path, monkeypatch, capsys):
    words = ["--shapes", "tiny", "--batch", "2,4", "--tokens", "16", "--steps", "2", "--compile", "off"]
    monkeypatch.setattr(sys, "argv", ["language", *words, "--out", str(tmp_path), "--device", "cpu"])
    language.main()
    content = json.loads((tmp_path / "language.json").read_text())
    steps = content["steps"]
    assert not [key for key, row in steps.items() if "error" in row]
    sides = ("trainer", "trainer-npo", "ft", "npo", "two-stage", "unweave")
    assert {f"tiny/{batch}/{name}/off" for batch in (2, 4) for name in sides} | {"tiny/2/npo/lora"} == set(steps)
    # Fine-tuning differentiates a batch, NPO a forget and a retained one, two-stage one of each subset. A step of
    # unweave takes all forget batches, here four, and one of each other subset.
    tokens = {name: steps[f"tiny/4/{name}/off"]["tokens"] for name in sides}
    assert tokens == {"trainer": 64, "trainer-npo": 128, "ft": 64, "npo": 128, "two-stage": 192, "unweave": 384}
    ratio = steps["tiny/4/npo/off"]["tokens_per_second"] / steps["tiny/4/trainer-npo/off"]["tokens_per_second"]
    assert content["ratios"]["tiny/4/npo/off"] == pytest.approx(ratio)
    assert "the trainer's tokens a second" in capsys.readouterr().out


def test_a_side_that_fails_does_not_end_the_others(monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory\nmore words")

    monkeypatch.setattr(language.Shape, "make", fail)
    side = language.Side(2, 16, "off", 1, language.pick_device("cpu"))
    assert language.measured("npo", SHAPES["tiny"], side, 1.0) == {"error": "out of memory"}


def test_shapes_have_the_parameters_of_their_models():
    shape = SHAPES["tiny"]
    made = sum(weight.numel() for weight in shape.make(language.pick_device("cpu")).parameters())
    assert made == parameters_of(shape)


def test_timed_steps_move_nothing():
    assert all(
        value <= language.STILL
        for name in ("ft", "npo", "two-stage", "unweave")
        for setting, value in phase_of(name, 4).settings.to_dict().items()
        if setting.endswith("learning_rate")
    )
