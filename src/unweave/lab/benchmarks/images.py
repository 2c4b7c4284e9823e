"""Image classifiers that take the stored bytes and prepare the images on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PixelClassifier(nn.Module):
    """A network that prepares its images itself.

    It takes bytes of shape (images, 3, height, width), so a data set on the device needs a quarter of the memory. With
    ``augment``, training mode shifts every image by up to an eighth and mirrors half of them.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        size: int,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        augment: bool = False,
    ) -> None:
        super().__init__()
        self.network, self.size, self.augment = network, size, augment
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        images = pixels.float() / 255
        if self.augment and self.training:
            images = shift_and_mirror(images)
        if images.shape[-1] != self.size:
            shrinks = images.shape[-1] > self.size
            images = functional.interpolate(images, size=(self.size, self.size), mode="bilinear", antialias=shrinks)
        output: Any = self.network((images - self.mean) / self.std)
        scores: Tensor = output if isinstance(output, Tensor) else output.logits
        return scores


def shift_and_mirror(images: Tensor) -> Tensor:
    """Shift every image by up to an eighth of its side, filled with black, and mirror half of the images.

    All of it happens on the images' device, for the whole batch at once.
    """
    count, _, height, width = images.shape
    reach = height // 8
    padded = functional.pad(images, (reach, reach, reach, reach))
    down, right = torch.randint(0, 2 * reach + 1, (2, count, 1), device=images.device)
    mirrored = torch.rand(count, 1, device=images.device) < 0.5
    columns = torch.arange(width, device=images.device)
    columns = torch.where(mirrored, columns.flip(0), columns) + right
    rows = torch.arange(height, device=images.device) + down
    every = torch.arange(count, device=images.device)[:, None, None]
    return padded[every, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
