"""Data sets that read a whole batch at once and know their labels without reading the inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from unweave.data.labels import Data
from unweave.data.trees import map_tensors


class Stored(ABC):
    """A data set whose samples never vary, read a batch at a time.

    >>> class Squares(Stored):
    ...     def __len__(self):
    ...         return 4
    ...     def batch(self, rows):
    ...         return rows.float()[:, None] ** 2, self.labels()[rows]
    ...     def labels(self):
    ...         return torch.tensor([0, 0, 1, 1])
    >>> Squares()[3]
    (tensor([9.]), tensor(1))
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return how many samples there are."""

    @abstractmethod
    def batch(self, rows: Tensor) -> Data:
        """Return the samples at these positions."""

    @abstractmethod
    def labels(self) -> Tensor:
        """Return the label of every sample."""

    def __getitem__(self, position: int) -> Any:

        return map_tensors(lambda tensor: tensor[0], self.batch(torch.tensor([position])))
