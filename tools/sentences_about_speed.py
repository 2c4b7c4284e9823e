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
    for part in (_processor, _sentences, _gpu, _gpu_sentences, _passes, _quality):
        yield from part()


def _said(phrase: str, *numbers: float) -> Sentence:
    return Sentence("docs/speed.md", phrase, numbers)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "speed" / f"{name}.json").read_text(encoding="utf-8"))
    return found


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


def _gpu() -> Iterator[Sentence]:
    found = _read("h200/gpu")
    ours, theirs, ratios = found["stages"], found["yardstick"], found["ratios"]
    whole = found["whole_yardstick_seconds"]
    steps = (theirs["1"]["steps"], theirs["2"]["steps"])
    yield _said(
        "| a step of stage 1 | {:.1f} ms | {:.0f} ms | {:.1f} |",
        MILLI * ours["1"]["step_seconds"],
        MILLI * theirs["1"]["step_seconds"],
        ratios["stage1"],
    )
    yield _said(
        "| a step of stage 2 | {:.0f} ms | {:,.0f} ms | {:.1f} |",
        MILLI * ours["2"]["step_seconds"],
        MILLI * theirs["2"]["step_seconds"],
        ratios["stage2"],
    )
    extrapolated = "{:.0f} s, extrapolated from {:d} and {:d} steps | {:.1f} |"
    for words, seconds, ratio in (
        ("372 + 96 | {:.1f} s", found["steps_seconds"], found["steps_ratio"]),
        ("with compiled code in the cache | {:.1f} s", found["whole_seconds"], found["whole_ratio"]),
        ("on a machine that has compiled nothing | {:.0f} s", found["first_run_seconds"], found["first_run_ratio"]),
    ):
        yield _said(f"{words} | {extrapolated}", seconds, whole, *steps, ratio)
    yield _said(
        "| projection alone, two directions | {:.1f} ms | {:.0f} ms | {:.1f} |",
        MILLI * found["projection"]["seconds"],
        MILLI * found["projection"]["yardstick_seconds"],
        ratios["projection"],
    )
    yield _said(
        "| evaluation of 60,000 images | {:.1f} s | {:.0f} s (from 6,000) | {:.0f} |",
        found["evaluation"]["seconds_224px"],
        found["evaluation"]["yardstick_seconds_224px"],
        ratios["evaluation"],
    )
    yield _said(
        "| peak memory, stage 1 and stage 2 | {:.1f} GB, {:.1f} GB | {:.1f} GB, {:.1f} GB |",
        *(side[stage]["peak_bytes"] / GIGABYTE for side in (ours, theirs) for stage in ("1", "2")),
    )


def _gpu_sentences() -> Iterator[Sentence]:
    found = _read("h200/gpu")
    theirs, passes = found["yardstick"], found["passes"]
    yield _said(
        "and {:.0f} of its {:.0f} s are extrapolated from {:d} steps of stage 2, and {:.0f} from {:d} steps of stage 1",
        theirs["2"]["whole_seconds"],
        found["whole_yardstick_seconds"],
        theirs["2"]["steps"],
        theirs["1"]["whole_seconds"],
        theirs["1"]["steps"],
    )
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


def _passes() -> Iterator[Sentence]:
    found = _read("h200/gpu")
    yield _said("of the {:.0f} TFLOP/s of large bfloat16 products", found["matmul_peak_flops"] / 1e12)
    for words, name in (
        ("not compiled", "as it is"),
        ("compiled by torch alone", "compiled as torch does"),
        ("compiled by unweave: folded, over blocks, pooled first", "compiled"),
    ):
        one = found["passes"][name]
        yield _said(
            f"| {words} | {{:.1f}} ms | {{:,.0f}} | {{:.0f}} | {{:.0f}}% |",
            MILLI * one["seconds"],
            500 * round(one["images_per_second"] / 500),  # to 500, as the page says it
            one["tflops"],
            100 * one["share_of_peak"],
        )


def _quality() -> Iterator[Sentence]:
    runs = _read("h200/quality")["runs"]
    places = [f"{part} {subset}" for part in ("train", "test") for subset in ("forget", "adjacent", "remote")]
    cells = " | ".join(["{:.1f}, {:.1f}"] * len(places))
    for words, way in (("default", "default"), ("plain float32", "plain")):
        both = [run for run in runs if run["way"] == way]
        yield _said(f"| {words}, seeds 0 and 1 | {cells} |", *(100 * run[place] for place in places for run in both))
