"""What recorded passes save on a GPU: steps plain, recorded, compiled, and compiled and recorded.

    python -m bench.captured [--sizes 224,64] [--out FOLDER]

A ResNet-18 with frozen statistics sees random images. For each size of image: a step of training with 128 images, of
stage 1 (144 images) and of stage 2. A row says how long a step takes and for how much of that the host works; where the
two are equal, the host is the limit. Every way sees the same batches in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bench import gpu, measure, workloads
from bench.measure import wait
from bench.workloads import Workload
from unweave.engine import Phase, Workbench
from unweave.engine.compiling import captures, forwards
from unweave.runtime import pick_device

WAYS = {  # compile=, and whether passes are recorded
    "plain": ("off", False),
    "recorded": ("auto", True),
    "compiled": ("on", False),
    "compiled and recorded": ("on", True),
}
WARM, TIMED = 8, {"training": 60, "stage 1": 60, "stage 2": 8}  # steps


@contextmanager
def way_of(name: str) -> Iterator[Any]:
    """Set one of the ways; yield what ``compile`` is then."""
    compile_, is_recorded = WAYS[name]
    with patch.object(captures, "can_record", lambda device: is_recorded and device.type == "cuda"):
        if compile_ == "auto":  # recorded only
            with patch.object(forwards.Forwards, "_pays", lambda *_: False):
                yield compile_
        else:
            yield compile_


def steps_of(part: str, workload: Workload, device: torch.device, compile_: Any) -> tuple[Workbench, Phase]:
    """Return the workbench and the phase of one part."""
    if part == "training":
        return gpu.small_batches(workload, device, compile_)
    return measure.phase_of(workload, 1 if part == "stage 1" else 2, device, compile=compile_)


def timed(part: str, workload: Workload, device: torch.device, compile_: Any) -> dict[str, float]:
    """Return the seconds of a step, and those that the host works on it."""
    bench, phase = steps_of(part, workload, device, compile_)
    begun = time.perf_counter()
    measure.take_steps(bench, phase, WARM)
    wait(device)
    start, host = time.perf_counter(), time.thread_time()
    count = TIMED[part]
    measure.take_steps(bench, phase, count, first=WARM)
    host = time.thread_time() - host
    wait(device)
    seconds = (time.perf_counter() - start) / count
    row = {"seconds": seconds, "host_seconds": host / count, "first_steps_seconds": start - begun}
    if part == "training":
        row["images_per_second"] = 128 / seconds
    return row


def main() -> None:
    """Measure, print, write after every row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="224,64", help="pixels of the images' sides, joined by commas")
    parser.add_argument("--parts", default=",".join(TIMED), help="joined by commas")
    parser.add_argument("--out", type=Path, help="folder for captured.json")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    found: dict[str, Any] = {}
    for size in words.sizes.split(","):
        workload = workloads.images(size=int(size))
        if device.type == "cuda":
            gpu.start_up(workload, device)
        for part in words.parts.split(","):
            for name in WAYS:
                with way_of(name) as compile_:
                    row = timed(part, workload, device, compile_)
                found.setdefault(f"{size} px", {}).setdefault(part, {})[name] = row
                print(
                    f"{size} px, {part}, {name}: {1e3 * row['seconds']:.2f} ms a step, the host works "
                    f"{1e3 * row['host_seconds']:.2f} ms; first {WARM} steps {row['first_steps_seconds']:.1f} s",
                    flush=True,
                )
                measure.write(words.out, "captured", {"sizes": found}, device)


if __name__ == "__main__":
    main()
