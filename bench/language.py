"""How fast language models are unlearned: steps of NPO, two-stage and unweave beside a plain Hugging Face Trainer.

    python -m bench.language [--shapes 135m,0.5b,1.5b] [--batch 32,128] [--tokens 128] [--steps 20]
        [--compile off,on] [--without-adapters] [--out FOLDER] [--device cpu]

Models have random weights in the shape of a known model, and texts are random tokens of one length, half of them the
answer: speed and memory do not depend on either. All sides see batches of the same size and length, in bfloat16 on
CUDA with float32 weights. `trainer` fine-tunes; `trainer-npo` is NPO as open-unlearning computes it, with the reference
model asked in every step. A step's tokens are those of the batches that are differentiated. The share of the peak is
6 N + 12 layers · width · length operations for each of these tokens, against bfloat16 matrix products measured here.
The file is written again after every measurement. On a CPU, use ``--shapes tiny`` to rehearse.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import language_memory, language_trainer, measure
from bench.gpu import matmul_peak
from bench.measure import wait
from unweave.api import Split
from unweave.engine import Phase, Workbench, derive_seed
from unweave.methods import find_method
from unweave.runtime import pick_device, seed_everything

WARM_UP = 5  # steps that may compile, allocate and load kernels
STILL = 1e-12  # a step size that moves nothing


@dataclass(frozen=True)
class Shape:
    """The shape of a causal model."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    words: int
    tied: bool = True

    def make(self, device: torch.device) -> nn.Module:
        """Return a model of this shape with random weights, on the device."""
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            vocab_size=self.words,
            tie_word_embeddings=self.tied,
            max_position_embeddings=2048,
        )
        torch.manual_seed(0)
        with device:
            model: nn.Module = LlamaForCausalLM(config)
        return model.eval()


SHAPES = {
    "tiny": Shape(64, 128, 2, 4, 2, 500),
    "135m": Shape(576, 1536, 30, 9, 3, 49_152),  # SmolLM2-135M
    "0.5b": Shape(896, 4864, 24, 14, 2, 151_936),  # Qwen2.5-0.5B
    "1.5b": Shape(1536, 8960, 28, 12, 2, 151_936),  # Qwen2.5-1.5B
    "8b": Shape(4096, 14_336, 32, 32, 8, 128_256, tied=False),  # Llama-3.1-8B
}


@dataclass(frozen=True)
class Side:
    """What is measured: a batch size, a length and a way to compile."""

    batch: int
    tokens: int
    compile: Any
    steps: int
    device: torch.device
    lora: bool = False


def texts(shape: Shape, side: Side) -> tuple[dict[str, Tensor], Split]:
    """Return random texts, and a split of them with 4 forget batches, 4 adjacent ones and 8 remote ones."""
    generator = torch.Generator().manual_seed(0)
    count = 16 * side.batch
    ids = torch.randint(3, shape.words, (count, side.tokens), generator=generator)
    labels = ids.clone()
    labels[:, : side.tokens // 2] = -100
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return data, Split(data, range(4 * side.batch), range(4 * side.batch, 8 * side.batch))


def phase_of(name: str, size: int) -> Phase:
    """Return the last phase of a method, with batches of one size and steps that move nothing."""
    method = find_method(name)
    values: dict[str, Any] = {}
    for row in method.describe():
        setting = row["name"]
        if setting.endswith("learning_rate"):
            values[setting] = STILL
        elif setting.endswith("_batch") or setting == "batch_size":
            values[setting] = size
        elif setting.endswith("_batches"):
            values[setting] = 1
        elif setting in ("target", "clip"):  # random texts have a loss of about 11: never forgotten, so all is computed
            values[setting] = 30.0
    if name == "ft":
        values |= {"optimizer": "adamw", "normalisation": "eval"}
    return list(method.configure(values).phases())[-1]


def ours(name: str, model: nn.Module, split: Split, side: Side) -> dict[str, Any]:
    """Time the steps of one of our methods."""
    bench = Workbench(model, split, device=side.device, compile=side.compile)
    phase = phase_of(name, side.batch)
    phase.prepare(bench)
    phase.begin()
    steps = phase.steps or 10**6

    def take(first: int, count: int) -> None:
        for number in range(first, first + count):
            seed_everything(derive_seed(0, phase.name, number) % 2**32, bench.device)
            bench.forward.compiling.step(number, of=steps)
            phase.step(number)

    begun = time.perf_counter()
    take(0, WARM_UP)
    wait(side.device)
    begun = time.perf_counter() - begun
    before = bench.meter.cost.sample_gradients
    lap = timed(lambda: take(WARM_UP, side.steps), side.device) / side.steps
    tokens = (bench.meter.cost.sample_gradients - before) / side.steps * side.tokens
    return {"step_seconds": lap, "tokens": tokens, "warm_up_seconds": begun}


def timed(work: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of some work."""
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def measured(name: str, shape: Shape, side: Side, peak: float) -> dict[str, Any]:
    """Measure one side on a new model; a side that fails says why."""
    gc.collect()
    if side.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(side.device)
    data, split = texts(shape, side)
    try:
        model = shape.make(side.device)
        model = language_memory.with_adapters(model) if side.lora else model
        count = sum(weight.numel() for weight in model.parameters())
        if name.startswith("trainer"):
            row = language_trainer.measure(name, model, data, side, warm_up=WARM_UP)
        else:
            row = ours(name, model, split, side)
    except (RuntimeError, ImportError) as error:  # out of memory, for example
        return {"error": str(error).splitlines()[0][:300]}
    operations = 6 * count + 12 * shape.layers * shape.hidden * side.tokens
    row |= {"tokens_per_second": row["tokens"] / row["step_seconds"], "parameters": count}
    row["share_of_peak"] = row["tokens_per_second"] * operations / peak
    row["peak_bytes"] = torch.cuda.max_memory_allocated(side.device) if side.device.type == "cuda" else None
    return row


def show(key: str, row: dict[str, Any]) -> None:
    """Print one measurement."""
    if "error" in row:
        print(f"{key:<34} failed: {row['error']}", flush=True)
        return
    memory = f"{row['peak_bytes'] / 1e9:7.1f} GB" if row["peak_bytes"] else ""
    print(
        f"{key:<34}{1e3 * row['step_seconds']:9.1f} ms{row['tokens_per_second']:12,.0f} tokens/s"
        f"{row['share_of_peak']:8.1%}{memory}  warm-up {row['warm_up_seconds']:.1f} s",
        flush=True,
    )


def ratios(rows: dict[str, Any]) -> dict[str, float]:
    """Return how many times faster ours is than the trainer, on the same shape and batch, by tokens a second.

    >>> fast, slow = {"tokens_per_second": 3.0}, {"tokens_per_second": 2.0}
    >>> ratios({"135m/32/npo/on": fast, "135m/32/trainer-npo/off": slow})
    {'135m/32/npo/on': 1.5}
    """
    found = {}
    for key, row in rows.items():
        shape, batch, name, _ = key.split("/")
        rival = rows.get(f"{shape}/{batch}/{'trainer-npo' if name == 'npo' else 'trainer'}/off", {})
        if not name.startswith("trainer") and "tokens_per_second" in row and "tokens_per_second" in rival:
            found[key] = row["tokens_per_second"] / rival["tokens_per_second"]
    return found


def measure_all(given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure every side of every shape, and write the file after each."""
    peak = matmul_peak(device, size=8192 if device.type == "cuda" else 512)
    print(f"bfloat16 matrix products: {peak / 1e12:.1f} TFLOP/s", flush=True)
    content: dict[str, Any] = {"matmul_peak_flops": peak, "tokens_of_a_text": given.tokens, "steps": {}}
    for shape in given.shapes:
        for batch in given.batch:
            for name, way in sides(given.methods, given.compile):
                side = Side(batch, given.tokens, way, given.steps, device)
                key = f"{shape}/{batch}/{name}/{way}"
                content["steps"][key] = measured(name, SHAPES[shape], side, peak)
                show(key, content["steps"][key])
                content["ratios"] = ratios(content["steps"])
                measure.write(given.out, given.name, content, device)
        if given.without_adapters:
            continue
        side = Side(given.batch[0], given.tokens, "off", given.steps, device, lora=True)
        key = f"{shape}/{given.batch[0]}/npo/lora"
        content["steps"][key] = measured("npo", SHAPES[shape], side, peak)
        show(key, content["steps"][key])
    content["memory"] = language_memory.explained(content["steps"], SHAPES, given.tokens)
    measure.write(given.out, given.name, content, device)
    return content


def sides(methods: Sequence[str], ways: Sequence[str]) -> list[tuple[str, str]]:
    """Return what to measure: the trainers as they are, ours in every way to compile."""
    return [("trainer", "off"), ("trainer-npo", "off"), *((name, way) for way in ways for name in methods)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=["135m", "0.5b"], help=", ".join(SHAPES))
    parser.add_argument("--batch", type=lambda text: [int(one) for one in text.split(",")], default=[32, 128])
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["ft", "npo", "two-stage", "unweave"])
    parser.add_argument("--compile", type=lambda text: text.split(","), default=["off", "on"])
    parser.add_argument("--without-adapters", action="store_true", help="leave out NPO with LoRA adapters")
    parser.add_argument("--out", type=Path, help="folder for the file")
    parser.add_argument("--name", default="language", help="of the file")
    parser.add_argument("--device", help="cpu or cuda; the best there is if not given")
    given = parser.parse_args()
    device = pick_device(given.device)
    content = measure_all(given, device)
    for key, ratio in content["ratios"].items():
        print(f"{key:<34}{ratio:6.2f} × the trainer's tokens a second")
    language_memory.show(content["memory"])


if __name__ == "__main__":
    main()
