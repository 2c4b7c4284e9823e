"""The sentences and the rows of tables of `docs/speed.md` whose numbers come from `results/speed`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from places import RESULTS
from sentences import Sentence

GIGABYTE, MILLI = 1e9, 1e3


def speed() -> Iterator[Sentence]:
    """Yield the sentences."""
    for part in (_summary, _processor, _sentences, _gpu_sentences, _retraining, _packing, _quality):
        yield from part()


def _said(phrase: str, *numbers: float) -> Sentence:
    return Sentence("docs/speed.md", phrase, numbers)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "speed" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _summary() -> Iterator[Sentence]:
    found = _read("h200/gpu")
    yield _said(
        "takes {:.1f} s with compiled code in the cache, and {:.1f} s on a machine that has compiled nothing. Our "
        "transcription of the authors' loop would take {:.0f} s",
        found["whole_seconds"],
        found["first_run_seconds"],
        found["whole_yardstick_seconds"],
    )
    overhead = max(row["ratio"]["median"] for row in _read("overhead-cpu")["parts"].values())
    yield _said("steps of two-stage take at most {:.2f} times as long", overhead)
    above = _read("h200/memory")["gradients"]["gradients_above_fine_tuning"]["stage 2"]
    yield _said("the peak of stage 2 is {:.2f} gradients above fine-tuning", above)
    loads = _read("h200/roofline")["workloads"]
    yield _said(
        "at 64 px a step takes up to {:.1f} times as long as its largest floor, at 224 px up to {:.1f} times",
        *(max(row["of_the_floor"] for name, row in loads.items() if name.startswith(size)) for size in ("64", "224")),
    )


def _processor() -> Iterator[Sentence]:
    released, alone = (_read("ratios-digits-cpu")["parts"][kind] for kind in ("as_released", "in_one_process"))
    yield _said(
        "a step of stage 1 {:.1f}×, of stage 2 {:.1f}× ({:.1f}×), the projection alone {:.1f}×, an evaluation {:.0f}× "
        "({:.1f}×)",
        released["stage1"]["ratio"],
        released["stage2"]["ratio"],
        alone["stage2"]["ratio"],
        released["projection"]["ratio"],
        released["evaluation"]["ratio"],
        alone["evaluation"]["ratio"],
    )


def _sentences() -> Iterator[Sentence]:
    parts = _read("sentences-cpu")["parts"]
    yield _said(
        "takes {:.1f} s instead of {:.1f} for a step of stage 1, {:.1f} s instead of {:.1f} for a step of stage 2, and "
        "{:.1f} s instead of {:.1f} for an evaluation. This is {:.1f} times as fast",
        *(parts[name][what] for name in ("stage 1", "stage 2", "evaluation") for what in ("seconds", "whole_seconds")),
        parts["evaluation"]["ratio"],
    )


def _gpu_sentences() -> Iterator[Sentence]:
    found = _read("h200/gpu")
    passes = found["passes"]
    yield _said("would write took {:.0f} s in the same run", found["yardsticks"]["plain_whole_seconds"])
    yield _said(
        "Compiling takes {:.0f} to {:.0f} s the first time",
        *(passes[name]["warm_up_seconds"] for name in ("compiled", "compiled as torch does")),
    )
    yield _said(
        "Projection and bookkeeping take {:.1f}% of a step of stage 2", 100 * found["projection_and_bookkeeping_share"]
    )
    yield _said("of 60,000 images at 32 px take {:.2f} s", found["evaluation"]["seconds_32px"])
    yield _said(
        "convolutions take {:.0f}% of the time, elementwise operations {:.0f}%, sums over images {:.0f}%",
        *(100 * found["profile"][name] for name in list(found["profile"])[:3]),
    )


def _retraining() -> Iterator[Sentence]:
    plain, auto = (_read("h200/retrain")["compile"][way]["retrain"] for way in ("off", "auto"))
    (phase,) = auto["phases"].values()
    yield _said(
        "({:,d} steps, `python -m bench.methods --methods retrain --compile off,auto`, "
        "[`h200/retrain.json`](../results/speed/h200/retrain.json)) takes {:.0f} s plain and {:.0f} s with the "
        "defaults on a machine that has compiled nothing, {:.0f} s of which go into the first six steps",
        phase["steps"],
        plain["seconds"],
        auto["seconds"],
        phase["first_steps_seconds"],
    )


def _packing() -> Iterator[Sentence]:
    found = _read("h200/packed")["tuning"]
    yield _said(
        "all {:d} methods were tuned for {:.0f} s, the first {:.0f} s of which went into starting and training the "
        "original. {:d} trials were finished",
        len(found["methods"]),
        found["seconds"],
        found["start_seconds"],
        found["finished_trials"],
    )
    yield _said("{:d} trials of all methods take {:.1f} minutes", found["trials"], found["whole_seconds"] / 60)


def _quality() -> Iterator[Sentence]:
    runs = _read("h200/quality")["runs"]
    places = [f"{part} {subset}" for part in ("train", "test") for subset in ("forget", "adjacent", "remote")]
    cells = " | ".join(["{:.1f}, {:.1f}"] * len(places))
    for words, way in (("default", "default"), ("plain float32", "plain")):
        both = [run for run in runs if run["way"] == way]
        yield _said(f"| {words}, seeds 0 and 1 | {cells} |", *(100 * run[place] for place in places for run in both))
