"""Batch normalisation in training mode over a whole batch that several processes share.

Torch's own ``SyncBatchNorm`` works on GPUs only and counts every row; ours does not count repeated rows.
"""

from __future__ import annotations

from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unweave.runtime import exchange, processes


class SharedStatistics:
    """Makes the batch normalisation layers of a model use the statistics of all processes' batches together.

    ``real`` is the number of rows of this process's batch that count; the rest are repeated.
    """

    def __init__(self, model: nn.Module) -> None:
        self.real: int | None = None
        several = processes.count() > 1
        self._layers = [m for m in model.modules() if isinstance(m, _BatchNorm)] if several else []
        # Called only if needed, because it imports the whole compiler. Communication gains nothing from compiling.
        forward = torch.compiler.disable(_forward) if self._layers else _forward
        for layer in self._layers:
            layer.shared = self  # type: ignore[assignment]
            layer.forward = MethodType(forward, layer)  # type: ignore[method-assign]

    def __deepcopy__(self, memo: dict[int, object]) -> SharedStatistics:
        return self  # a copied model gets the same batches

    def release(self) -> None:
        """Restore the layers."""
        for layer in self._layers:
            del layer.forward, layer.shared
        self._layers = []


def _forward(layer: _BatchNorm, inputs: Tensor) -> Tensor:
    """Normalise by mean and variance over all processes; in evaluation mode, as usual."""
    if not layer.training:
        return type(layer).forward(layer, inputs)
    shared: SharedStatistics = layer.shared  # type: ignore[assignment]
    values = inputs.float() if inputs.dtype in (torch.bfloat16, torch.float16) else inputs
    counted = values[: shared.real].transpose(0, 1).flatten(1)  # (channels, samples × positions)
    total = exchange.summed(torch.cat([counted.sum(dim=1), counted.new_full((1,), counted.shape[1])]))
    mean, count = total[:-1] / total[-1], total[-1].detach()
    variance = exchange.summed((counted - mean[:, None]).square().sum(dim=1)) / count
    _keep(layer, mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
    shape = (1, -1, *(1 for _ in inputs.shape[2:]))
    found = (values - mean.view(shape)) * (variance + layer.eps).rsqrt().view(shape)
    if layer.affine:
        found = found * layer.weight.view(shape) + layer.bias.view(shape)
    return found.to(inputs.dtype)


@torch.no_grad()
def _keep(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics towards those of this batch."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked += 1
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), share)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), share)
