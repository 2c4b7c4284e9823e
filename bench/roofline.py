"""What limits each kind of step on a GPU: its operations, the bytes it must move, or its launches.

    python -m bench.roofline [--parts "224 px training,..."] [--small] [--out FOLDER]

First the rates of the device: large bfloat16 matrix products; a large copy and a large multiply-add, in bytes read and
written; kernels of one element, launched one by one and repeated as one CUDA graph. Then for each workload, counted on
one plain step:

- operations: those of convolutions, matrix products and attention, by the formulas of `torch.utils.flop_counter`;
- bytes: every tensor that one of these operations or the optimiser takes or gives, once. Work element by element
  between them counts as fused into them, and nothing as kept in a cache from one operation to the next;
- kernels: those that the device ran in a step of the fastest way (torch's profiler), and how often the host launched.

Each of the three over its rate is a floor; no step with the same operations, and as many kernels, is faster than the
largest. A small ``--small`` workload rehearses everything on a CPU. The file is written again after every row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from bench import captured, gpu, language, measure, workloads
from bench.measure import wait
from unweave.engine import Phase, Workbench
from unweave.methods import Retrain
from unweave.runtime import pick_device

OPTIMISERS = ("_fused_", "_foreach_")  # how the names of their operations begin
FIRST = 8  # steps that compile, record and load kernels
STILL = 1e-12  # a step size that moves nothing


# Rates


def rates(device: torch.device, *, small: bool) -> dict[str, float]:
    """Return what the device can do in a second."""
    numbers = 1 << (16 if small else 29)  # 2 GiB of float32, far more than the cache holds
    first, second, target = (torch.rand(numbers, device=device) for _ in range(3))
    copied = measure.seconds(lambda: target.copy_(first), device, repeats=10)
    added = measure.seconds(lambda: torch.addcmul(first, first, second, out=target), device, repeats=10)
    return {
        "operations": gpu.matmul_peak(device, size=256 if small else 8192),
        "copy_bytes": 2 * 4 * numbers / copied,
        "multiply_add_bytes": 3 * 4 * numbers / added,
        "launches": 1 / launch_seconds(device),
        "launches_in_a_graph": 1 / graph_seconds(device),
    }


def launch_seconds(device: torch.device, *, count: int = 5_000) -> float:
    """Return the seconds of a kernel of one element that the host launches through torch."""
    one = torch.zeros(1, device=device)
    return measure.seconds(lambda: [one.add_(1) for _ in range(count)], device, repeats=3) / count


def graph_seconds(device: torch.device, *, count: int = 1_000) -> float:
    """Return the seconds of a kernel of one element in a CUDA graph, each after the one before."""
    if device.type != "cuda":
        return launch_seconds(device)
    one, graph = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
    one.add_(1)
    with torch.cuda.graph(graph):
        for _ in range(count):
            one.add_(1)
    return measure.seconds(graph.replay, device, repeats=10) / count


# Counts of a step


class Counted(TorchDispatchMode):
    """Counts the operations of convolutions, matrix products and attention, and the bytes of these and the optimiser.

    Torch's FlopCounterMode counts the same operations, but its hooks on modules do not bear pieces of logits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count it."""
        packet, kwargs = func.overloadpacket, kwargs or {}
        counts, optimises = packet in flop_registry, packet.__name__.startswith(OPTIMISERS)
        if not counts and not optimises and func is not torch.ops.prim.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
        found = func(*args, **kwargs)
        if counts:
            self.operations += flop_registry[packet](*_with_all_heads(packet, args), **kwargs, out_val=found)
        if counts or optimises:
            given = [one for one in tree_leaves((args, kwargs, found)) if isinstance(one, Tensor)]
            again = tree_leaves(args[0]) if packet.__name__.endswith("_") else []  # in place: read and written
            self.bytes += sum(one.numel() * one.element_size() for one in [*given, *again])
        return found


def _with_all_heads(packet: Any, args: Any) -> Any:
    """Return the arguments of an attention with as many heads of keys and values as of queries, for torch's formula."""
    if "scaled_dot_product" not in packet.__name__:
        return args
    heads = max(one.shape[1] for one in args if isinstance(one, Tensor) and one.ndim == 4)
    return [
        one.new_empty((one.shape[0], heads, *one.shape[2:]), device="meta")
        if isinstance(one, Tensor) and one.ndim == 4
        else one
        for one in args
    ]


def counted(step: Callable[[], Any]) -> dict[str, float]:
    """Return the operations and the bytes of a step that is neither compiled nor recorded."""
    step()
    with Counted() as count:
        step()
    return {"operations": count.operations, "bytes": count.bytes}


def launched(step: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Return how many kernels the device ran in a step, for how long, and how often the host launched something."""
    if device.type != "cuda":
        return {"kernels": 0, "host_launches": 0, "kernel_seconds": 0.0}
    wait(device)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
        wait(device)
    kernels, calls, busy = 0, 0, 0.0
    for event in profiler.key_averages():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device and not event.is_user_annotation:
            kernels += event.count
            busy += event.self_device_time_total / 1e6
        elif any(word in event.key for word in ("LaunchKernel", "GraphLaunch", "cudaMemcpy", "cudaMemset")):
            calls += event.count
    return {"kernels": kernels, "host_launches": calls, "kernel_seconds": busy}


# Workloads


@dataclass(frozen=True)
class Work:
    """Something that is repeated: makes its workbench and its phase, neither compiled nor in the fastest way."""

    make: Callable[[torch.device, Any], tuple[Workbench, Phase]]
    way: str  # the fastest, of `bench.captured`
    timed: int = 40  # steps


def works(*, small: bool) -> Iterator[tuple[str, Work]]:
    """Yield the workloads by name."""
    for size in (8,) if small else (224, 64):
        data = workloads.digits(workers=0) if small else workloads.images(size=size, test=100)
        way = "recorded" if size == 64 else "compiled and recorded"  # at 64 px as fast as both
        parts = {part: partial(captured.steps_of, part, data) for part in captured.TIMED}
        if size != 64:
            parts["retraining"] = partial(retraining, data)
        for part, make in parts.items():
            yield (
                f"{size} px, {part}",
                Work(make, "plain" if small else way, 2 if small else captured.TIMED.get(part, 40)),
            )
    shape = "tiny" if small else "135m"
    for name in ("ft", "npo", "two-stage"):
        yield (
            f"language model, {name}",
            Work(partial(texts, name, shape), "recorded", 2 if small else 20),
        )


def retraining(data: workloads.Workload, device: torch.device, how: Any) -> tuple[Workbench, Phase]:
    """Return retraining by the paper's recipe, in training mode."""
    method = data.configured(Retrain).with_given(initial=data.ours)
    bench = Workbench(data.ours().to(device), data.train, device=device, compile=how)
    (phase,) = method.phases()
    phase.prepare(bench)
    phase.begin()
    return bench, phase


def texts(name: str, shape: str, device: torch.device, how: Any) -> tuple[Workbench, Phase]:
    """Return a method on a language model, with 32 texts of 128 tokens in a batch."""
    side = language.Side(4 if shape == "tiny" else 32, 128, how, 0, device)
    model = language.SHAPES[shape].make(device)
    bench = Workbench(model, language.texts(language.SHAPES[shape], side)[1], device=device, compile=how)
    phase = language.phase_of(name, side.batch)
    phase.prepare(bench)
    phase.begin()
    phase.steps = max(phase.steps, 400)
    return bench, phase


def of_work(work: Work, device: torch.device) -> dict[str, Any]:
    """Count a plain step, and time steps of the fastest way."""
    bench, phase = work.make(device, "off")
    with captured.way_of("plain"):
        row = counted(lambda: measure.take_steps(bench, phase, 1))
    del bench, phase
    with captured.way_of(work.way) as how:
        bench, phase = work.make(device, how)
        measure.take_steps(bench, phase, FIRST)
        wait(device)
        start = time.perf_counter()
        measure.take_steps(bench, phase, work.timed, first=FIRST)
        wait(device)
        row["seconds"] = (time.perf_counter() - start) / work.timed
        row |= launched(lambda: measure.take_steps(bench, phase, 1, first=FIRST + work.timed), device)
    return {"way": work.way, **row}


def evaluation(device: torch.device, *, small: bool) -> dict[str, Any]:
    """Count and time an evaluation of images at 224 px: accuracies, losses and features of attacks."""
    data = workloads.digits(workers=0) if small else workloads.images()
    some = data if small else workloads.images(train=5_000, test=1_000)
    model = data.ours().to(device)
    row = counted(lambda: measure.evaluate(model, some, device))
    scale = (len(data.train.samples) + len(data.test.samples)) / (len(some.train.samples) + len(some.test.samples))
    row = {name: value * scale for name, value in row.items()}
    row["seconds"] = measure.seconds(lambda: measure.evaluate(model, data, device), device, repeats=1)
    return {"way": "plain", **row, **launched(lambda: measure.evaluate(model, data, device), device)}


def floors(row: dict[str, Any], rate: dict[str, float]) -> dict[str, float]:
    """Return the least seconds of a step by each limit.

    Kernels that the host launches in graphs follow each other as fast as in a graph.

    >>> rate = {"operations": 100.0, "copy_bytes": 10.0, "launches_in_a_graph": 5.0, "launches": 2.0}
    >>> floors({"operations": 50, "bytes": 20, "kernels": 5, "host_launches": 1}, rate)
    {'operations': 0.5, 'bytes': 2.0, 'launches': 1.0}
    """
    return {
        "operations": row["operations"] / rate["operations"],
        "bytes": row["bytes"] / rate["copy_bytes"],
        "launches": max(row["kernels"] / rate["launches_in_a_graph"], row["host_launches"] / rate["launches"]),
    }


def show(name: str, row: dict[str, Any]) -> None:
    """Print what a step takes, its floors in milliseconds, and its share of the largest."""
    least = "  ".join(f"{by} {1e3 * seconds:8.2f}" for by, seconds in row["floors"].items())
    print(
        f"{name:<28}{1e3 * row['seconds']:9.2f} ms   floors: {least}   {row['of_the_floor']:5.2f}× {row['limit']}; "
        f"{row['kernels']} kernels, busy {1e3 * row['kernel_seconds']:.2f} ms, {row['host_launches']} launches",
        flush=True,
    )


def main() -> None:
    """Measure, print, write after every row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", help='words in the names of workloads, joined by commas, such as "64 px,language"')
    parser.add_argument("--small", action="store_true", help="tiny workloads, to rehearse")
    parser.add_argument("--out", type=Path, help="folder for the file")
    parser.add_argument("--name", default="roofline", help="of the file")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    content: dict[str, Any] = {"rates": rates(device, small=words.small), "workloads": {}}
    for name, rate in content["rates"].items():
        print(f"{name}: {rate:.3g} a second", flush=True)
    asked = words.parts.split(",") if words.parts else [""]
    every: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        (name, lambda work=work: of_work(work, device))
        for name, work in works(small=words.small)  # type: ignore[misc]
    ]
    every.append(("evaluation of 60,000 images", lambda: evaluation(device, small=words.small)))
    for name, measured in every:
        if not any(word in name for word in asked):
            continue
        row = measured()
        row["floors"] = floors(row, content["rates"])
        row["limit"] = max(row["floors"], key=lambda by: row["floors"][by])
        row["of_the_floor"] = row["seconds"] / row["floors"][row["limit"]]
        content["workloads"][name] = row
        show(name, row)
        measure.write(words.out, words.name, content, device)


if __name__ == "__main__":
    main()
