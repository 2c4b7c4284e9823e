"""What memory unlearning a language model takes: measured, and by a formula that is fitted at one shape.

peak = parameters · a + tokens · layers · width · b + logits

a is in bytes per parameter: 4 for the weight, 4 for its gradient, 8 for Adam, the rest for copies in bfloat16 and the
further gradients of a method. b is in bytes per activation of a token, layer and unit of width. Both follow from two
batch sizes of the first shape; other shapes check them. The logits are held in pieces and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

METHODS = ("ft", "npo", "two-stage", "unweave")
ASKED = ("1.5b", "8b")  # shapes that the formula is for, at the smaller batch size


def with_adapters(model: nn.Module) -> nn.Module:
    """Return the model with LoRA adapters of rank 16 on all linear layers of its blocks."""
    import peft

    settings = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(model, settings)  # type: ignore[arg-type]


def parameters_of(shape: Any) -> int:
    """Return how many parameters a shape has.

    >>> from bench.language import SHAPES
    >>> {name: round(parameters_of(shape) / 1e6) for name, shape in SHAPES.items() if name != "tiny"}
    {'135m': 135, '0.5b': 494, '1.5b': 1544, '8b': 8030}
    """
    width, keys = shape.hidden, shape.hidden // shape.heads * shape.key_heads
    block = 2 * width * width + 2 * width * keys + 3 * width * shape.inner + 2 * width
    return shape.layers * block + width + (1 if shape.tied else 2) * shape.words * width


def explained(steps: Mapping[str, Any], shapes: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Return the fit of each method, what it says of every measured shape, and of those that are asked for.

    >>> from bench.language import SHAPES
    >>> rows = {f"135m/{batch}/ft/off": {"peak_bytes": int(16 * 134_515_008 + batch * 128 * 30 * 576 * 40)}
    ...         for batch in (32, 64)}
    >>> found = explained(rows, SHAPES, 128)["ft"]
    >>> round(found["bytes_per_parameter"], 3), round(found["bytes_per_activation"], 3)
    (16.0, 40.0)
    """
    found = {}
    for method in METHODS:
        peaks = {
            (key.split("/")[0], int(key.split("/")[1])): row["peak_bytes"]
            for key, row in steps.items()
            if key.endswith(f"/{method}/off") and row.get("peak_bytes")
        }
        if fit := _fit(peaks, shapes, tokens):
            found[method] = fit
    return found


def _fit(peaks: Mapping[tuple[str, int], int], shapes: Mapping[str, Any], tokens: int) -> dict[str, Any] | None:
    name = next(iter(peaks), ("", 0))[0]
    batches = sorted(batch for shape, batch in peaks if shape == name)
    if len(batches) < 2:
        return None

    def activations(shape: str, batch: int) -> int:
        return int(batch * tokens * shapes[shape].layers * shapes[shape].hidden)

    small, large = batches[0], batches[-1]
    more = activations(name, large) - activations(name, small)
    each = (peaks[name, large] - peaks[name, small]) / more
    weight = (peaks[name, small] - each * activations(name, small)) / parameters_of(shapes[name])

    def said(shape: str, batch: int) -> float:
        return parameters_of(shapes[shape]) * weight + activations(shape, batch) * each

    checks = [
        {"shape": shape, "batch": batch, "measured_bytes": peak, "formula_bytes": said(shape, batch)}
        for (shape, batch), peak in peaks.items()
    ]
    asked = {shape: said(shape, small) for shape in ASKED}
    return {
        "fitted_on": name,
        "bytes_per_parameter": weight,
        "bytes_per_activation": each,
        "checks": checks,
        "batch": small,
        "formula_bytes": asked,
    }


def show(found: Mapping[str, Any]) -> None:
    """Print the fits."""
    for method, fit in found.items():
        asked = ", ".join(f"{shape} {peak / 1e9:.0f} GB" for shape, peak in fit["formula_bytes"].items())
        checks = ", ".join(
            f"{one['shape']}/{one['batch']} {one['measured_bytes'] / 1e9:.1f} GB "
            f"(formula {one['formula_bytes'] / 1e9:.1f})"
            for one in fit["checks"]
        )
        print(
            f"{method}: {fit['bytes_per_parameter']:.1f} bytes a parameter, {fit['bytes_per_activation']:.1f} an "
            f"activation; {checks}; by formula {asked}"
        )
