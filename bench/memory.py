"""What stage 2 takes above fine-tuning, and whether runs keep to ``max_memory``.

    python -m bench.memory [--parts gradients,images,sentences,language] [--quick] [--small] [--out FOLDER]

`gradients`: `uw.unlearn` on a network of 10⁹ float32 parameters, by fine-tuning with momentum, by stage 2 and by both
stages of two-stage. How many gradients their peaks are apart.

The other parts take steps of two-stage on images, sentences and texts of a language model, first without a limit,
then with shares of what that took. Passes are recorded where it pays, and not compiled. `taken_bytes` is what torch
took from the device (``max_memory_reserved``), which is what a limit is about; `device_bytes` is what the driver says
is in use at the end, with its own memory for the process. `allocation_retries` counts how often torch had to give
unused memory back before it found room, which takes time. The file is written again after every row. ``--quick`` takes
half as many steps. On a CPU there is no limit to set: ``--small`` rehearses the rest.
"""

from __future__ import annotations

import argparse
import gc
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import unweave as uw
from bench import captured, language, measure, workloads
from bench.measure import wait
from bench.scaling import peak_memory
from unweave.engine import Phase, Workbench
from unweave.errors import RunError, RunWarning, UsageError
from unweave.methods import Method, find_method
from unweave.runtime import parse_bytes, pick_device

WIDTH, BLOCKS, CLASSES, BATCH = 4096, 60, 20, 128  # 60 · 4096² = 1.007 · 10⁹ weights
SHARES = (None, 0.75, 0.5, 0.35)  # of what a run without a limit takes
WARM, TIMED = 4, {"stage 1": 20, "stage 2": 4}  # steps; half of them with --quick
STILL = 1e-12  # a step size that moves nothing


class Block(nn.Module):
    """A layer whose input is added to its output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Add what the layer makes of the values."""
        return values + torch.relu(self.linear(values))


def large(width: int, blocks: int, device: torch.device) -> nn.Module:
    """Return a network of ``blocks`` equal layers. No layer is a large part of it, as in a language model."""
    torch.manual_seed(0)
    with device:
        return nn.Sequential(*(Block(width) for _ in range(blocks)), nn.Linear(width, CLASSES)).eval()


def gradients(device: torch.device, *, small: bool) -> dict[str, Any]:
    """Return the peaks of fine-tuning with momentum and of two-stage, and their difference in gradients."""
    width, blocks = (1024, 16) if small else (WIDTH, BLOCKS)
    model = large(width, blocks, device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    count = 12 * BATCH
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(count, width, generator=generator), torch.randint(0, CLASSES, (count,), generator=generator)
    split = uw.Split(data, forget=range(2 * BATCH), adjacent=range(2 * BATCH, 6 * BATCH))
    still = {"stage1_learning_rate": STILL, "stage2_learning_rate": STILL, "stage2_epochs": 1}
    methods: dict[str, Method] = {
        "fine-tuning": uw.FineTune(momentum=0.9, learning_rate=STILL, batch_size=BATCH, epochs=1, normalisation="eval"),
        "stage 2": uw.TwoStage(**{**still, "stage1_epochs": 0}),  # type: ignore[arg-type]
        "both stages": uw.TwoStage(**{**still, "stage1_epochs": 1}),  # type: ignore[arg-type]
    }
    rows = {}
    for name, method in methods.items():
        with peak_memory(device) as memory:
            result = uw.unlearn(model, split, method, compute=uw.Compute(device), guard=None)
        rows[name] = {
            "peak_bytes": memory.peak_bytes,
            "seconds": result.cost.seconds,
            "steps": len(result.history.rows),
        }
        del result
    after = [row for row in rows if row != "fine-tuning"]
    above = {row: (rows[row]["peak_bytes"] - rows["fine-tuning"]["peak_bytes"]) / (4 * parameters) for row in after}
    for name, row in rows.items():
        more = f", {above[name]:+.2f} gradients above fine-tuning" if name in above else ""
        print(f"{parameters:,} parameters, {name}: peak {row['peak_bytes'] / 1e9:.2f} GB{more}", flush=True)
    return {"parameters": parameters, "rows": rows, "gradients_above_fine_tuning": above}


@dataclass(frozen=True)
class Work:
    """A stage of two-stage on some data: makes a new model and a split, and has the method's settings."""

    make: Callable[[torch.device], tuple[nn.Module, uw.Split]]
    phase: Callable[[], Phase]
    stage: str


def images(*, small: bool) -> Iterator[tuple[str, Work]]:
    """Yield both stages on a ResNet-18."""
    load = workloads.digits(workers=0) if small else workloads.images(test=100)
    for number, stage in enumerate(TIMED):
        yield (
            f"{load.name}, {stage}",
            Work(
                lambda device: (load.ours().to(device), load.train),
                lambda number=number: list(load.settings.phases())[number],  # type: ignore[misc]
                stage,
            ),
        )


def sentences(*, small: bool) -> Iterator[tuple[str, Work]]:
    """Yield stage 2 of an encoder of BERT's size, with sentences of up to 128 tokens."""
    words, length = (300, 16) if small else (30_000, 128)

    def make(device: torch.device) -> tuple[nn.Module, uw.Split]:
        from transformers import BertConfig, BertForSequenceClassification

        shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        config = BertConfig(vocab_size=words, num_labels=CLASSES, **(shape if small else {}))
        torch.manual_seed(0)
        with device:
            model: nn.Module = BertForSequenceClassification(config).eval()
        count = 100 if small else 8_000
        ids = torch.randint(3, words, (count, length))
        mask = torch.arange(length) < torch.randint(length // 2, length + 1, (count, 1))
        data = {"input_ids": ids * mask, "attention_mask": mask.long(), "labels": torch.arange(count) % CLASSES}
        return model, uw.Split(data, range(count // 10), range(count // 10, count // 5))

    method = find_method("two-stage").configure(
        {"stage2_learning_rate": STILL, "stage2_forget_batches": 2, "stage2_remote_batches": 2}
    )
    yield (
        f"an encoder {'smaller than' if small else 'of the size of'} BERT, stage 2",
        Work(make, lambda: list(method.phases())[1], "stage 2"),
    )


def texts(*, small: bool) -> Iterator[tuple[str, Work]]:
    """Yield stage 2 of a language model of 135M parameters, with 32 texts of 128 tokens in a batch."""
    shape = language.SHAPES["tiny" if small else "135m"]

    def make(device: torch.device) -> tuple[nn.Module, uw.Split]:
        side = language.Side(4 if small else 32, 128, "auto", 0, device)
        return shape.make(device), language.texts(shape, side)[1]

    work = Work(make, lambda: language.phase_of("two-stage", 4 if small else 32), "stage 2")
    yield f"a language model of {'few' if small else '135M'} parameters, stage 2", work


PARTS = {"images": images, "sentences": sentences, "language": texts}


def limited(work: Work, device: torch.device, limit: int | None, *, steps: float = 1.0) -> dict[str, Any]:
    """Take steps within a limit; return the memory and the time that they take, or the error that ended them."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.init()  # resetting fails before it
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.reset_accumulated_memory_stats(device)
    model, split = work.make(device)
    row: dict[str, Any] = {"limit_bytes": limit}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RunWarning)
        try:
            with captured.way_of("recorded") as how:  # compiling would take most of the time here
                bench = Workbench(model, split, device=device, compile=how, max_memory=limit)
                row |= _steps(work, bench, device, int(steps * WARM), int(steps * TIMED[work.stage]))
        except (RunError, UsageError, torch.OutOfMemoryError) as error:
            row["error"] = str(error).splitlines()[0][:200]
        finally:
            row["halvings"] = sum("ran out of memory" in str(one.message) for one in said)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        row |= {
            "taken_bytes": torch.cuda.max_memory_reserved(device),
            "used_bytes": torch.cuda.max_memory_allocated(device),
            "allocation_retries": torch.cuda.memory_stats(device)["num_alloc_retries"],
            "device_bytes": total - free,
        }
    return row


def _steps(work: Work, bench: Workbench, device: torch.device, warm: int, timed: int) -> dict[str, Any]:
    phase = work.phase()
    with bench.working():
        phase.prepare(bench)
        phase.begin()
        phase.steps = max(phase.steps, 400)  # as a longer run, in which passes are recorded where it pays
        begun = time.perf_counter()
        measure.take_steps(bench, phase, warm)
        wait(device)
        start = time.perf_counter()
        measure.take_steps(bench, phase, timed, first=warm)
        wait(device)
    seconds = (time.perf_counter() - start) / timed
    captures = bench.forward.compiling.captures
    return {
        "step_seconds": seconds,
        "first_steps_seconds": start - begun,
        "samples_at_once": bench.forward.micro_batches.size,
        "recorded_passes": len(captures._found) if captures else 0,
    }


def with_limits(name: str, work: Work, device: torch.device, *, steps: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield a row without a limit, then one for each share of what that took."""
    free: dict[str, Any] = {}
    for share in SHARES if device.type == "cuda" else SHARES[:1]:
        limit = None if share is None else parse_bytes(int(share * free["taken_bytes"]))
        row = limited(work, device, limit, steps=steps)
        free = free or row
        row |= {"share": share}
        if limit is not None:
            row["taken_of_limit"] = row["taken_bytes"] / limit
        if "step_seconds" in row and "step_seconds" in free:
            row["times_as_long"] = row["step_seconds"] / free["step_seconds"]
        _show(name, row)
        yield row


def _show(name: str, row: dict[str, Any]) -> None:
    limit = "no limit" if row["limit_bytes"] is None else f"limit {row['limit_bytes'] / 1e9:.2f} GB"
    taken = f"took {row['taken_bytes'] / 1e9:.2f} GB, " if "taken_bytes" in row else ""
    if "error" in row:
        print(f"{name}, {limit}: {taken}{row['error']}", flush=True)
        return
    print(
        f"{name}, {limit}: {taken}{1e3 * row['step_seconds']:.1f} ms a step ({row.get('times_as_long', 1):.2f}×), "
        f"{row['halvings']} halvings, {row['samples_at_once']} at once, {row['recorded_passes']} recorded",
        flush=True,
    )


def main() -> None:
    """Measure, print, write after every row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", default=",".join(["gradients", *PARTS]), help="joined by commas")
    parser.add_argument("--quick", action="store_true", help="half as many steps")
    parser.add_argument("--small", action="store_true", help="tiny models, to rehearse")
    parser.add_argument("--out", type=Path, help="folder for the file")
    parser.add_argument("--name", default="memory", help="of the file")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    words = parser.parse_args()
    device = pick_device(words.device)
    logging.basicConfig(format="  %(message)s")
    logging.getLogger("unweave").setLevel(logging.INFO)  # why passes are not recorded
    content: dict[str, Any] = {}
    for part in words.parts.split(","):
        if part == "gradients":
            content[part] = gradients(device, small=words.small)
            measure.write(words.out, words.name, content, device)
            continue
        for name, work in PARTS[part](small=words.small):
            rows = content.setdefault("limits", {}).setdefault(name, [])
            for row in with_limits(name, work, device, steps=0.5 if words.quick else 1.0):
                rows.append(row)
                measure.write(words.out, words.name, content, device)


if __name__ == "__main__":
    main()
