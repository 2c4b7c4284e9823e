"""The yardstick: a plain transcription of how the paper's released loop does the same work.

We wrote it from our description of that loop's behaviour, not from its code. On purpose, it does what that loop does:

- samples are stored images, decoded, resized and normalised one at a time, each time they are needed;
- the loaders of forget and remote data, and their worker processes, are created again for every step of stage 2;
- the reference losses of stage 2 come from a frozen copy of the model, run again on every batch;
- gradients are Python lists, added into new lists batch by batch; dot products go to the host one by one;
- precision, memory layout and eager mode are PyTorch's defaults;
- evaluation passes over each subset once for its accuracy and again for the outputs that attacks need.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

RIDGE = 1e-8  # added to the diagonal of the Gram matrix, once for every parameter tensor


class StoredImages(Dataset[tuple[Tensor, int]]):
    """Images as bytes (height × width × channels, or height × width) that are decoded and prepared one at a time."""

    def __init__(
        self, images: np.ndarray[Any, Any], labels: Sequence[int], *, scale: float, size: int | None = None
    ) -> None:
        self.images, self.labels, self.scale, self.size = images, labels, scale, size

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[row])
        if self.size is not None:
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image))
        pixels = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
        prepared = pixels.float() / self.scale
        if len(prepared) == 3:
            mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
            prepared = (prepared - mean[:, None, None]) / std[:, None, None]
        return prepared.contiguous(), int(self.labels[row])


class Loaders:
    """Loaders of subsets. Each call makes a new loader, with a new shuffle and new worker processes."""

    def __init__(self, subsets: dict[str, Dataset[Any]], *, workers: int, device: torch.device) -> None:
        self.subsets, self.workers, self.device = subsets, workers, device

    def __call__(self, subset: str, size: int, *, shuffle: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield one pass of batches."""
        loader = DataLoader(
            self.subsets[subset],
            batch_size=size,
            shuffle=shuffle,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
        )
        for inputs, labels in loader:
            yield inputs.to(self.device), labels.to(self.device)


def losses_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every sample."""
    output = model(inputs)
    logits = output if isinstance(output, Tensor) else output.logits
    return functional.cross_entropy(logits, labels, reduction="none")


def cycled(loader: Iterator[Any]) -> Iterator[Any]:
    """Keep the batches of the first pass, and repeat them forever."""
    kept = []
    for batch in loader:
        kept.append(batch)
        yield batch
    while True:
        yield from kept


def stage1(
    model: nn.Module,
    loaders: Loaders,
    *,
    steps: int,
    remote_batch: int,
    forget_batch: int,
    learning_rate: float,
    penalty: float = 10.0,
    clip: float = 10.0,
    pinned: float = 0.0,
    clock: Callable[[], None] = lambda: None,
) -> None:
    """Take some steps of stage 1; ``clock`` is called before the first step and after each."""
    model.eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    forget = cycled(loaders("forget", forget_batch))
    multiplier = 0.0
    remote: Iterator[Any] = iter(())
    clock()
    for _ in range(steps):
        batch = next(remote, None)
        if batch is None:
            remote = loaders("remote", remote_batch)
            batch = next(remote)
        forget_losses = losses_of(model, *next(forget))
        below = (forget_losses < clip).float()  # above the cap, a sample keeps its loss but has no gradient
        forget_loss = (forget_losses * below + (forget_losses * (1 - below)).detach()).mean()
        gap = losses_of(model, *batch).mean() - pinned
        objective = -forget_loss + multiplier * gap + penalty / 2 * gap**2
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        multiplier += penalty * gap.item()
        clock()


def stage2(
    model: nn.Module,
    loaders: Loaders,
    *,
    steps: int,
    adjacent_batch: int,
    forget_batch: int,
    remote_batch: int,
    batch_limit: int,
    learning_rate: float,
    momentum: float = 0.9,
    alpha: float = 0.5,
    clock: Callable[[], None] = lambda: None,
) -> None:
    """Take some steps of stage 2; ``clock`` is called before the first step and after each."""
    model.eval()
    reference = copy.deepcopy(model).eval()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=learning_rate)
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    adjacent: Iterator[Any] = iter(())
    clock()
    for _ in range(steps):
        batch = next(adjacent, None)
        if batch is None:
            adjacent = loaders("adjacent", adjacent_batch)
            batch = next(adjacent)
        goal = _gradient(losses_of(model, *batch).mean(), parameters)
        forget = [torch.zeros_like(parameter) for parameter in parameters]
        for number, (inputs, labels) in enumerate(loaders("forget", forget_batch)):
            if number >= batch_limit:
                break
            with torch.no_grad():
                before = -losses_of(reference, inputs, labels)
            now = -losses_of(model, inputs, labels)
            apart = (torch.sort(now).values - torch.sort(before).values) ** 2
            found = _gradient((1 - alpha) * now.mean() + alpha * apart.mean(), parameters)
            forget = [total + part for total, part in zip(forget, found, strict=True)]
        remote = [torch.zeros_like(parameter) for parameter in parameters]
        for number, (inputs, labels) in enumerate(loaders("remote", remote_batch)):
            if number >= batch_limit:
                break
            found = _gradient(-losses_of(model, inputs, labels).mean(), parameters)
            remote = [total + part for total, part in zip(remote, found, strict=True)]
        direction = [momentum * v + g for v, g in zip(velocity, goal, strict=True)]
        velocity = project(direction, forget, remote)
        optimizer.zero_grad()
        for parameter, part in zip(parameters, velocity, strict=True):
            parameter.grad = part.clone()
        optimizer.step()
        clock()


def project(direction: list[Tensor], first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    """Remove the span of two gradients from a direction: dot products in float64, the 2×2 system on the host."""
    gram, dots = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for u, f, r in zip(direction, first, second, strict=True):
        u64, f64, r64 = (part.reshape(-1).double() for part in (u, f, r))
        gram[0, 0] += torch.dot(f64, f64).cpu() + RIDGE
        gram[1, 1] += torch.dot(r64, r64).cpu() + RIDGE
        gram[0, 1] += torch.dot(f64, r64).cpu()
        dots[0] += torch.dot(u64, f64).cpu()
        dots[1] += torch.dot(u64, r64).cpu()
    gram[1, 0] = gram[0, 1]
    one, two = (float(weight) for weight in torch.linalg.solve(gram, dots))
    return [u - one * f - two * r for u, f, r in zip(direction, first, second, strict=True)]


@torch.no_grad()
def evaluate(model: nn.Module, parts: dict[str, Loaders], *, size: int) -> dict[str, Any]:
    """Return six accuracies, and the probabilities that attacks need."""
    model.eval()
    found: dict[str, Any] = {}
    for part, loaders in parts.items():
        for subset in loaders.subsets:
            right = count = 0
            for inputs, labels in loaders(subset, size, shuffle=False):
                right += int((_logits(model, inputs).argmax(1) == labels).sum().item())
                count += len(labels)
            found[f"{part} {subset} accuracy"] = right / count
        for subset in loaders.subsets:
            outputs = [
                functional.softmax(_logits(model, inputs), dim=1).cpu()
                for inputs, _ in loaders(subset, size, shuffle=False)
            ]
            found[f"{part} {subset} probabilities"] = torch.cat(outputs)
    return found


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    output = model(inputs)
    return output if isinstance(output, Tensor) else output.logits


def _gradient(objective: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    return list(torch.autograd.grad(objective, parameters))
