"""What is to be forgotten: functions that mark samples of some data, and change them where the request is about that.

Marks depend on the data only, not on a model or its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch

from bench.strangers.data import Data, Part

Mark: TypeAlias = Callable[[Data], Data]


def named(name: str) -> Mark:
    """Mark a fine class or group, of training and test data."""

    def mark(data: Data) -> Data:
        if name not in data.train.fine:
            raise ValueError(f"The data has no class {name!r}, only {sorted(set(data.train.fine))}.")
        return Data(*(replace(part, marked=part.fine == name) for part in (data.train, data.test)))

    return mark


def some(count: int | float) -> Mark:
    """Mark a number of training samples, or a share of them, at random."""

    def mark(data: Data) -> Data:
        return replace(data, train=replace(data.train, marked=_drawn(len(data.train.labels), count)))

    return mark


def wrong(share: float) -> Mark:
    """Give a share of the training samples another label, and mark them."""

    def mark(data: Data) -> Data:
        marked = _drawn(len(data.train.labels), share)
        labels = data.train.labels.clone()
        draw = torch.Generator().manual_seed(1)
        labels[marked] += torch.randint(1, data.classes, (int(marked.sum()),), generator=draw)
        return replace(data, train=replace(data.train, labels=labels % data.classes, marked=marked))

    return mark


def dark(share: float) -> Mark:
    """Mark the darkest images, whatever they show."""

    def mark(data: Data) -> Data:
        light = [part.inputs.flatten(1).mean(1).numpy() for part in (data.train, data.test)]
        limit = np.quantile(light[0], share)
        return Data(replace(data.train, marked=light[0] < limit), replace(data.test, marked=light[1] < limit))

    return mark


def camera(share: float) -> Mark:
    """Let a share of the images come from another camera, upside down and with grain, and mark them."""

    def taken(part: Part, seed: int) -> Part:
        marked = _drawn(len(part.labels), share, seed)
        inputs = part.inputs.clone()
        grain = torch.randn(inputs[marked].shape, generator=torch.Generator().manual_seed(seed))
        inputs[marked] = inputs[marked].flip(-2) + 0.3 * grain
        return replace(part, inputs=inputs, marked=marked)

    return lambda data: Data(taken(data.train, 0), taken(data.test, 1))


def _drawn(size: int, count: int | float, seed: int = 0) -> np.ndarray:
    chosen = np.zeros(size, dtype=bool)
    number = round(count * size) if isinstance(count, float) else count
    chosen[np.random.default_rng(seed).permutation(size)[:number]] = True
    return chosen
