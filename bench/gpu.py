"""How fast a GPU is: ResNet-18 at 224 px and the steps of the released protocol, against the released loop."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import measure, released_loop, workloads, yardsticks
from bench.measure import Laps, Stage, wait
from bench.workloads import Workload
from bench.yardsticks import STEPS
from unweave.data import SUBSETS
from unweave.engine import Phase, Workbench
from unweave.engine.compiling import forwards as compiled
from unweave.maths import remove_span
from unweave.methods import Descent, DescentSettings

OWN_STEPS = 96  # of our own method on CIFAR-100
KERNELS = {  # words in the names of kernels; all other kernels are "other"
    "sums over images (triton)": ("triton_red", "triton_per"),
    "element by element (triton)": ("triton_poi",),
    "convolutions and products": ("xmma", "cutlass", "gemm", "conv", "cudnn", "implicit", "sm90", "sm80"),
    "copies": ("Memcpy", "Memset"),
}
PARTS = ("stage1", "stage2", "projection", "evaluation")


def measure_gpu(device: torch.device, out: Path | None, *, processes: Sequence[int], steps: int) -> dict[str, float]:
    """Measure everything, print it, write it; return the ratios to the released loop with the first ``processes``."""
    workload = workloads.images()
    content: dict[str, Any] = {"workload": workload.note, "matmul_peak_flops": matmul_peak(device)}
    start_up(workload, device)
    # First, so that it includes the warm-up of a run and no other part has warmed up before.
    content["first_run"] = {stage: our_stage(workload, stage, device, "auto") for stage in STEPS}
    content["passes"] = large_passes(workload, device, content["matmul_peak_flops"])
    for _ in range(2):  # in the first pass, shapes are compiled at their second batch, amid the timed steps
        content["stages"] = {stage: our_stage(workload, stage, device, "on") for stage in STEPS}
        content["constrained"] = our_stage(workload, "constrained", device, "on")
    content["profile"] = kernels(workload, device)
    content["yardsticks"] = yardsticks.both(workload, device, processes=processes, steps=steps, compiled=True)
    content["yardstick"] = content["yardsticks"]["released"][str(processes[0])]
    content["projection"] = projections(workload, device)
    content["evaluation"] = evaluations(device)
    content["training"] = {way: one_small_batch(workload, device, way) for way in ("off", "on")}
    content |= totals(content)
    show(content)
    measure.write(out, "gpu", content, device)
    return {part: round(content["ratios"][part], 2) for part in PARTS}


def large_passes(workload: Workload, device: torch.device, peak: float) -> dict[str, dict[str, float]]:
    """Time passes of 512 images uncompiled, compiled by torch alone, and compiled by us."""
    found = {"as it is": one_batch(workload, device, peak, "off")}
    with patch.object(compiled, "BACKEND", "inductor"):
        found["compiled as torch does"] = one_batch(workload, device, peak, "on")
    return {**found, "compiled": one_batch(workload, device, peak, "on")}


def totals(content: dict[str, Any]) -> dict[str, Any]:
    """Compute the seconds of the whole protocol and the ratios to the yardstick."""
    ours, theirs, own = content["stages"], content["yardstick"], content["constrained"]
    projection, evaluation = content["projection"], content["evaluation"]
    fresh, total, yardstick = (
        sum(found[stage]["whole_seconds"] for stage in STEPS) for found in (content["first_run"], ours, theirs)
    )
    steps, yardstick_steps = (
        sum(STEPS[stage] * found[stage]["step_seconds"] for stage in STEPS) for found in (ours, theirs)
    )
    bookkeeping = projection["seconds"] + ours[2]["bookkeeping_seconds"]
    return {
        "constrained_ratio": yardstick / own["whole_seconds"],
        "projection_and_bookkeeping_share": bookkeeping / ours[2]["step_seconds"],
        "whole_seconds": total,
        "whole_yardstick_seconds": yardstick,
        "whole_ratio": yardstick / total,
        "first_run_seconds": fresh,
        "first_run_ratio": yardstick / fresh,
        "steps_seconds": steps,
        "steps_yardstick_seconds": yardstick_steps,
        "steps_ratio": yardstick_steps / steps,
        "ratios": {
            "stage1": theirs[1]["step_seconds"] / ours[1]["step_seconds"],
            "stage2": theirs[2]["step_seconds"] / ours[2]["step_seconds"],
            "projection": projection["yardstick_seconds"] / projection["seconds"],
            "evaluation": evaluation["yardstick_seconds_224px"] / evaluation["seconds_224px"],
        },
    }


def show(content: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"\nbfloat16 matrix products: {content['matmul_peak_flops'] / 1e12:.0f} TFLOP/s")
    _show_passes(content)
    _show_stages(content)
    share, seconds = content["projection_and_bookkeeping_share"], content["evaluation"]["seconds_32px"]
    waits = content["stages"][2]["host_waits"]
    print(f"projection and bookkeeping: {share:.1%} of a step of stage 2; host waits: {waits}")
    print(f"six accuracies, losses and attack features of 60,000 images: {seconds:.2f} s at 32 px")


def _show_passes(content: dict[str, Any]) -> None:
    for way, row in content["passes"].items():
        print(
            f"512 images, forward and backward, {way}: {1e3 * row['seconds']:.1f} ms, "
            f"{row['images_per_second']:,.0f} images/s, {row['tflops']:.0f} TFLOP/s ({row['share_of_peak']:.0%} of "
            f"that), warm-up {row['warm_up_seconds']:.1f} s"
        )
    for way, row in content["training"].items():
        print(
            f"a step of training, 128 images, compile {way}: {1e3 * row['seconds']:.1f} ms, of which the host works "
            f"{1e3 * row['host_seconds']:.1f} ms; {row['images_per_second']:,.0f} images/s"
        )
    for kind, part in content["profile"].items():
        print(f"of a compiled pass, {kind}: {part:.0%}")


def _show_stages(content: dict[str, Any]) -> None:
    ours, theirs, own = content["stages"], content["yardstick"], content["constrained"]
    for stage in STEPS:
        print(
            f"stage {stage}: {1e3 * ours[stage]['step_seconds']:.1f} ms a step, "
            f"{ours[stage]['peak_bytes'] / 1e9:.1f} GB; yardstick "
            f"{1e3 * theirs[stage]['step_seconds']:.0f} ms, {theirs[stage]['peak_bytes'] / 1e9:.1f} GB"
        )
    print(
        f"the whole protocol (372 + 96 steps): {content['first_run_seconds']:.1f} s on a machine that has compiled "
        f"nothing, {content['whole_seconds']:.1f} s with compiled code at hand; yardstick "
        f"{content['whole_yardstick_seconds']:.0f} s (from {theirs[1]['steps']} and {theirs[2]['steps']} steps): "
        f"{content['first_run_ratio']:.1f}×, {content['whole_ratio']:.1f}×"
    )
    yardsticks.show(content["yardsticks"])
    print(
        f"their steps alone: {content['steps_seconds']:.1f} s; yardstick {content['steps_yardstick_seconds']:.0f} s: "
        f"{content['steps_ratio']:.1f}×"
    )
    print(
        f"our own method, {OWN_STEPS} steps of {1e3 * own['step_seconds']:.1f} ms: {own['whole_seconds']:.1f} s, "
        f"{own['peak_bytes'] / 1e9:.1f} GB; {content['constrained_ratio']:.0f}×"
    )


def start_up(workload: Workload, device: torch.device) -> None:
    """Do the imports and load the first kernels, so that no stage pays for them."""
    bench, _ = measure.phase_of(workload, 2, device, compile="off")
    bench.gradient([bench.losses(bench.batches("forget", size=16)[0]).mean()])
    wait(device)


def matmul_peak(device: torch.device, *, size: int = 8192) -> float:
    """Return the floating-point operations per second of large bfloat16 matrix products."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    wait(device)
    start = time.perf_counter()
    for _ in range(50):
        a @ b
    wait(device)
    return 50 * 2 * size**3 / (time.perf_counter() - start)


def one_batch(workload: Workload, device: torch.device, peak: float, compile_: Any) -> dict[str, float]:
    """Time forward and backward of 512 images."""
    bench, _ = measure.phase_of(workload, 2, device, compile=compile_)
    batches = bench.batches("remote", size=512)

    def both() -> None:
        bench.gradient([bench.losses(batches[0]).mean()])

    with FlopCounterMode(display=False) as counter:
        both()
    wait(device)
    start = time.perf_counter()
    both()
    both()
    wait(device)
    warm_up = time.perf_counter() - start
    lap = measure.seconds(both, device, repeats=20)
    flops = counter.get_total_flops() / lap
    return {
        "seconds": lap,
        "images_per_second": 512 / lap,
        "tflops": flops / 1e12,
        "share_of_peak": flops / peak,
        "warm_up_seconds": warm_up - 2 * lap,
    }


def kernels(workload: Workload, device: torch.device) -> dict[str, float]:
    """Return each kind of kernel's share of the device's time, in a compiled pass of 512 images."""
    bench, _ = measure.phase_of(workload, 2, device, compile="on")
    batches = bench.batches("remote", size=512)
    for _ in range(3):
        bench.gradient([bench.losses(batches[0]).mean()])
    wait(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            bench.gradient([bench.losses(batches[0]).mean()])
        wait(device)
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        if not event.self_device_time_total:  # without access to the device, all events are like this
            continue
        kind = next((kind for kind, words in KERNELS.items() if any(word in event.key for word in words)), "other")
        times[kind] += event.self_device_time_total
    total = sum(times.values())
    return {kind: spent / total for kind, spent in times.most_common()}


def small_batches(workload: Workload, device: torch.device, compile_: Any) -> tuple[Workbench, Phase]:
    """Return a training with 128 samples a step and frozen statistics."""
    bench = Workbench(workload.ours().to(device), workload.train, device=device, compile=compile_)
    settings = DescentSettings(optimizer="adam", learning_rate=2e-5, epochs=1, batch_size=128, normalisation="eval")
    phase = Descent(settings, subsets=SUBSETS)
    phase.prepare(bench)
    phase.begin()
    return bench, phase


def one_small_batch(workload: Workload, device: torch.device, compile_: Any) -> dict[str, float]:
    """Time a training step of 128 samples, and how long the host works on it, which may be the limit."""
    bench, phase = small_batches(workload, device, compile_)
    measure.take_steps(bench, phase, 6)
    wait(device)
    busy, start = 0.0, time.perf_counter()
    for number in range(6, 66):
        before = time.thread_time()
        phase.step(number)
        busy += time.thread_time() - before
    wait(device)
    lap = (time.perf_counter() - start) / 60
    return {"seconds": lap, "host_seconds": busy / 60, "images_per_second": 128 / lap}


def our_stage(workload: Workload, stage: Stage, device: torch.device, compile_: Any) -> dict[str, Any]:
    """Time a stage of ours: compiled where it pays for the protocol's steps (``auto``), or everywhere (``on``)."""
    torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    bench, phase = measure.phase_of(workload, stage, device, compile=compile_)
    wait(device)
    begun = time.perf_counter() - start
    start = time.perf_counter()
    measure.take_steps(bench, phase, 6)
    wait(device)
    first = time.perf_counter() - start
    laps = Laps(device)
    measure.take_steps(bench, phase, 30 if stage == 1 else 8, first=6, clock=laps)
    step = statistics.median(laps.seconds)
    start = time.perf_counter()
    more = 30 if stage == 1 else 8
    measure.take_steps(bench, phase, more, first=40)  # like a run, without waiting after each step
    wait(device)
    flowing = (time.perf_counter() - start) / more
    return {
        "step_seconds": flowing,
        "step_seconds_with_waiting": step,
        "begin_seconds": begun,
        "first_six_steps_seconds": first,
        "whole_seconds": begun + first + (STEPS.get(stage, OWN_STEPS) - 6) * flowing,
        "peak_bytes": torch.cuda.max_memory_allocated(device),
        "host_waits": _host_waits(bench, phase),
        "bookkeeping_seconds": _bookkeeping(bench, phase, device) if stage == 2 else 0.0,
    }


def _host_waits(bench: Any, phase: Any) -> str:
    """Return the operation that made the host wait in a step, or "none"."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        phase.step(60)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "none"


def _bookkeeping(bench: Any, phase: Any, device: torch.device) -> float:
    """Return the seconds of a step's bookkeeping: momentum and moving the weights."""
    parts = [torch.randn_like(parameter) for parameter in bench.parameters]

    def work() -> None:
        torch._foreach_add_(parts, phase.velocity, alpha=0.9)
        bench.move(parts, by=-1e-12)

    return measure.seconds(work, device, repeats=20)


def projections(workload: Workload, device: torch.device) -> dict[str, float]:
    """Time the projection alone, with two directions."""
    parameters = list(workload.theirs().to(device).parameters())
    first, second, third = ([torch.randn_like(p) for p in parameters] for _ in range(3))
    return {
        "seconds": measure.seconds(lambda: remove_span(first, [second, third], in_place=True), device, repeats=20),
        "yardstick_seconds": measure.seconds(lambda: released_loop.project(first, second, third), device, repeats=5),
    }


def evaluations(device: torch.device) -> dict[str, float]:
    """Time the evaluation of 60,000 images at both sizes; for the yardstick, ten times that of 6,000."""
    found = {}
    for size in (32, 224):
        workload = workloads.images(size=size)
        model = workload.ours().to(device)
        found[f"seconds_{size}px"] = measure.seconds(
            lambda model=model, workload=workload: measure.evaluate(model, workload, device), device, repeats=2
        )
    small = workloads.images(train=5000, test=1000)
    model, loaders = small.theirs().to(device), small.loaders(device)
    start = time.perf_counter()
    released_loop.evaluate(model, loaders, size=256)
    found["yardstick_seconds_224px"] = 10 * (time.perf_counter() - start)
    return found
