"""The tables of docs/speed.md about the H200, from `results/speed`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from places import RESULTS

SPEED = RESULTS / "speed"
WAYS = ("plain", "recorded", "compiled", "compiled and recorded")
STAGE_2_IMAGES = 128 + 500 + 10 * 512  # adjacent, all to forget, remote
IMAGES = {"training": 128, "stage 1": 128 + 16, "stage 2": STAGE_2_IMAGES}
METHODS = ("ft", "npo", "two-stage", "unweave")


def read(name: str) -> Any:
    """Return the content of a file of measurements."""
    return json.loads((SPEED / name).read_text())


def lines(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def protocol() -> str:
    """Return the two-stage protocol beside the released loop."""
    found = read("h200/gpu.json")
    ours, theirs = found["stages"], found["yardstick"]
    whole = found["whole_yardstick_seconds"]
    rows = [
        [
            f"a step of stage {stage}",
            f"{1e3 * ours[stage]['step_seconds']:.1f} ms",
            f"{1e3 * theirs[stage]['step_seconds']:,.0f} ms",
            f"{found['ratios'][f'stage{stage}']:.1f}",
        ]
        for stage in ("1", "2")
    ]
    for name, key, ratio in (
        ("the whole protocol, with compiled code in the cache", "whole_seconds", "whole_ratio"),
        ("the whole protocol on a machine that has compiled nothing", "first_run_seconds", "first_run_ratio"),
    ):
        rows.append([name, f"{found[key]:.1f} s", f"{whole:.0f} s, extrapolated", f"{found[ratio]:.1f}"])
    alone, looks = found["projection"], found["evaluation"]
    rows.append(
        [
            "projection alone, two directions",
            f"{1e3 * alone['seconds']:.1f} ms",
            f"{1e3 * alone['yardstick_seconds']:.0f} ms",
            f"{found['ratios']['projection']:.1f}",
        ]
    )
    rows.append(
        [
            "evaluation of 60,000 images",
            f"{looks['seconds_224px']:.1f} s",
            f"{looks['yardstick_seconds_224px']:.0f} s (from 6,000)",
            f"{found['ratios']['evaluation']:.0f}",
        ]
    )
    peaks = [", ".join(f"{side[stage]['peak_bytes'] / 1e9:.1f} GB" for stage in ("1", "2")) for side in (ours, theirs)]
    rows.append(["peak memory, stage 1 and stage 2", *peaks, ""])
    return lines(["", "ours", "released loop, 16 loader processes", "ratio"], rows)


def passes() -> str:
    """Return forward and backward of 512 images."""
    found = read("h200/gpu.json")
    names = {
        "as it is": "not compiled",
        "compiled as torch does": "compiled by torch alone",
        "compiled": "compiled by unweave: folded, over blocks, pooled first",
    }
    peak = found["matmul_peak_flops"] / 1e12
    rows = [
        [
            name,
            f"{1e3 * row['seconds']:.1f} ms",
            f"{row['images_per_second']:,.0f}",
            f"{row['tflops']:.0f}",
            f"{row['share_of_peak']:.0%}",
        ]
        for key, name in names.items()
        for row in [found["passes"][key]]
    ]
    heads = ["", "time", "images/s", "TFLOP/s", f"of the {peak:.0f} TFLOP/s of large bfloat16 products"]
    return lines(heads, rows)


def recorded() -> str:
    """Return the milliseconds of a step by way, the images per second of the fastest, and their share of the peak."""
    found = read("h200/captured.json")["sizes"]
    gpu = read("h200/gpu.json")
    of_an_image = gpu["passes"]["as it is"]["tflops"] * 1e12 / gpu["passes"]["as it is"]["images_per_second"]
    rows = []
    for size, parts in found.items():
        scale = (int(size.split()[0]) / 224) ** 2
        for part, ways in parts.items():
            rate = IMAGES[part] / min(way["seconds"] for way in ways.values())
            rows.append(
                [
                    f"{size}, {part}",
                    *(f"{1e3 * ways[way]['seconds']:.2f}" for way in WAYS),
                    f"{rate:,.0f}",
                    f"{rate * of_an_image * scale / gpu['matmul_peak_flops']:.0%}",
                ]
            )
    return lines(["ms a step", *WAYS, "images/s, the fastest", "of the matrix peak"], rows)


def cold() -> str:
    """Return the seconds of the protocol on a machine that has compiled nothing, by how code is compiled."""
    names = {
        "in the background": "compiled in the background",
        "from a file": "with the file of `unweave warm`",
        "not at all": "not compiled",
    }
    ways = read("h200/cold.json")["ways"]
    for more in further("cold"):
        ways |= more["ways"]
    rows = []
    for way, row in ways.items():
        one, two = (row["phases"][name]["until_then_seconds"] for name in ("stage 1", "stage 2"))
        switch = row["switches"][-1] if row["switches"] else None
        at = f"{switch['step']} of {switch['phase']}, at {switch['until_then_seconds']:.1f} s" if switch else ""
        rows.append([names[way], f"{one:.1f} s", f"{two - one:.1f} s", at, f"{row['whole_seconds']:.1f} s"])
    return lines(["372 + 96 steps", "stage 1", "stage 2", "code switched at step", "together"], rows)


def further(name: str) -> Iterator[Any]:
    """Yield the contents of further files of a measurement, such as `cold-file.json`: parts that ran on their own."""
    for file in sorted((SPEED / "h200").glob(f"{name}-*.json")):
        yield read(f"h200/{file.name}")


def language() -> str:
    """Return the steps of a language model of 135M parameters beside a plain trainer in the same run."""
    measured = dict.fromkeys(METHODS, read("h200/language.json")["steps"])
    for more in further("language"):
        measured |= {name: more["steps"] for name in METHODS if f"135m/32/{name}/auto" in more["steps"]}
    rows = []
    for name, steps in measured.items():
        rival = steps[f"135m/32/{'trainer-npo' if name == 'npo' else 'trainer'}/off"]
        plain, auto = (steps[f"135m/32/{name}/{way}"] for way in ("off", "auto"))
        rows.append(
            [
                name,
                f"{1e3 * plain['step_seconds']:.0f}",
                f"{1e3 * auto['step_seconds']:.0f}",
                f"{auto['tokens_per_second']:,.0f}",
                f"{rival['tokens_per_second']:,.0f}",
                f"{auto['tokens_per_second'] / rival['tokens_per_second']:.2f}",
                f"{auto['share_of_peak']:.1%}",
            ]
        )
    heads = ["", "ms a step, plain", "recorded", "tokens/s", "plain trainer's tokens/s", "ratio", "of the matrix peak"]
    return lines(heads, rows)


def all_tables() -> Iterator[str]:
    """Yield the tables of the page."""
    yield from (protocol(), passes(), recorded(), language())
    if (SPEED / "h200/cold.json").exists():
        yield cold()


if __name__ == "__main__":
    print("\n\n".join(all_tables()))
