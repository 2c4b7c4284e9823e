"""How long the two-stage protocol takes on a machine that has compiled nothing, by how its code is compiled.

    python -m bench.cold [--ways "in the background,from a file,not at all"] [--out FOLDER]

A ResNet-18 at 224 px, random images, the counts and settings of CIFAR-100 (372 + 96 steps), every step taken. Each way
runs in a process of its own with an empty cache. The seconds begin with the model on the device, torch imported and the
first kernels loaded, and end with the last step. "from a file" runs `unweave.warm` first, in another process.

    python -m bench.cold --rehearse

takes the digits on the CPU, with a compiler that does nothing, to see that everything works.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

import unweave as uw
from bench import gpu, measure, workloads
from bench.measure import wait
from bench.workloads import Workload
from unweave.engine import Callback, Logged, Phase, Running, Workbench, run_phases
from unweave.engine.compiling import background, forwards
from unweave.runtime import pick_device

WAYS = ("in the background", "from a file", "not at all")
FILE = "UNWEAVE_COMPILED"


class Switches(Callback):
    """Notes the seconds of each phase, and the steps at which code switched."""

    def begin(self, running: Running) -> None:
        """Start the clock."""
        self.bench = running.bench
        self.begun = self.last = time.perf_counter()
        self.phases: dict[str, dict[str, float]] = {}
        self.switches: list[dict[str, Any]] = []
        self.chosen: list[Any] = []

    def step(self, phase: Phase, number: int) -> Logged:
        """Note a switch; wait for the device there and at the ends of phases only."""
        compiling = self.bench.forward.compiling
        chosen = [*compiling.chosen, *compiling.folded]
        if chosen != self.chosen or number == phase.steps - 1:
            wait(self.bench.device)
        now = time.perf_counter()
        if chosen != self.chosen:
            sizes = {"compiled": compiling.chosen, "folded": compiling.folded}
            samples = {name: [variant.samples for variant in some] for name, some in sizes.items()}
            at = {"phase": phase.name, "step": number, "samples": samples, "step_seconds": now - self.last}
            self.switches.append({**at, "until_then_seconds": self.last - self.begun})
            self.chosen = chosen
        if number == phase.steps - 1:
            self.phases[phase.name] = {"steps": phase.steps, "until_then_seconds": now - self.begun}
        self.last = now
        return {}


def protocol(workload: Workload, device: torch.device, way: str) -> dict[str, Any]:
    """Run the protocol; return its seconds, its switches, and the last values logged."""
    model = workload.ours().to(device)
    compile_: Any = "off" if way == "not at all" else "auto"
    wait(device)
    switches = Switches()
    start = time.perf_counter()
    bench = Workbench(model, workload.train, device=device, compile=compile_)
    history = run_phases(bench, list(workload.settings.phases()), callbacks=[switches])
    wait(device)
    whole = time.perf_counter() - start
    ends = {name: [row for row in history.rows if row["phase"] == name][-1] for name in switches.phases}
    return {"whole_seconds": whole, "phases": switches.phases, "switches": switches.switches, "last_rows": ends}


def one(way: str, workload: Workload, device: torch.device, file: Path) -> dict[str, Any]:
    """Do one way's work in this process: the protocol, or writing the file of compiled code."""
    if device.type == "cuda":
        gpu.start_up(workload, device)
    if way != "write the file":
        return protocol(workload, device, way)
    start = time.perf_counter()
    uw.warm(workload.ours(), workload.train, workload.settings, out=file, compute=uw.Compute(device))
    return {"seconds": time.perf_counter() - start, "bytes": file.stat().st_size}


def in_a_fresh_process(way: str, *words: str, file: Path) -> dict[str, Any]:
    """Return what a process with an empty cache measures."""
    with TemporaryDirectory() as folder:
        cache = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        named = {FILE: str(file)} if way == "from a file" else {}
        done = subprocess.run(
            [sys.executable, "-m", "bench.cold", "--one", way, "--file", str(file), *words],
            env={**os.environ, **cache, **named},
            stdout=subprocess.PIPE,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(way: str, row: dict[str, Any]) -> None:
    """Print one result."""
    if "whole_seconds" not in row:
        print(f"{way}: {row['seconds']:.1f} s, {row['bytes'] / 1e6:.1f} MB", flush=True)
        return
    parts = [f"{name} by {part['until_then_seconds']:.1f} s" for name, part in row["phases"].items()]
    parts += [
        f"code for {switch['samples']} samples at step {switch['step']} of {switch['phase']}, which took "
        f"{switch['step_seconds']:.1f} s"
        for switch in row["switches"]
    ]
    print(f"{way}: {row['whole_seconds']:.1f} s; {'; '.join(parts)}", flush=True)


def rehearse() -> None:
    """Let the CPU stand for a GPU on which compiling takes no time."""
    free = {**dict.fromkeys(forwards.WARM_UP_SECONDS, 0.0), "never compiled": 1e9}
    for place, name, value in (
        (forwards, "may_choose", lambda mode, device: mode == "auto"),
        (background, "can_compile_beside", lambda device: True),
        (forwards, "WARM_UP_SECONDS", free),
        (forwards, "BACKEND", "eager"),
        (torch.compiler, "save_cache_artifacts", lambda: (b"no code", None)),
        (torch.compiler, "load_cache_artifacts", lambda code: None),
    ):
        patch.object(place, name, value).start()


def main() -> None:
    """Measure, print, write after every way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ways", default=",".join(WAYS), help="joined by commas")
    parser.add_argument("--rehearse", action="store_true", help="the digits on the CPU")
    parser.add_argument("--out", type=Path, help="folder for the file")
    parser.add_argument("--name", default="cold", help="of the file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        if words.rehearse:
            rehearse()
        device = pick_device("cpu" if words.rehearse else None)
        workload = workloads.digits(workers=0) if words.rehearse else workloads.images(test=100)
        print(json.dumps(one(words.one, workload, device, words.file)), flush=True)
        return
    content: dict[str, Any] = {"workload": "digits" if words.rehearse else "resnet-18 at 224 px", "ways": {}}
    more = ["--rehearse"] if words.rehearse else []
    with TemporaryDirectory() as folder:
        file = Path(folder, "code")
        for way in words.ways.split(","):
            if way == "from a file":
                content["file"] = in_a_fresh_process("write the file", *more, file=file)
                show("write the file", content["file"])
            content["ways"][way] = in_a_fresh_process(way, *more, file=file)
            show(way, content["ways"][way])
            measure.write(words.out, words.name, content, pick_device("cpu" if words.rehearse else None))


if __name__ == "__main__":
    main()
