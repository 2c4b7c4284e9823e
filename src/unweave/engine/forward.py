"""One pass of a model over a batch, with everything that is around it: precision, compiled code, pieces, counting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from unweave.data import Data, Samples, by_length, labels_of
from unweave.engine.compiling import Compile, Forwards
from unweave.engine.cost import Meter
from unweave.engine.micro_batches import MicroBatches
from unweave.errors import UsageError
from unweave.runtime import Resolved, autocast
from unweave.tasks import Loss, cross_entropy, require_one_each

# Tokens that are not run, times weights of the model, beyond which a CPU gains more than another pass costs it.
WORTH_A_PASS = 2e9


class Passes:
    """Runs the loss, or another function of a model and a batch that has a row of results for every sample.

    ``micro_batch`` is the most samples that are differentiated at once. ``sharded`` says that the weights are cut among
    processes, so that all of these must run as often. What is run is counted by the ``meter``.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        *,
        loss: Loss,
        device: torch.device,
        precision: Resolved,
        compile: Compile,
        micro_batch: int | None,
        sharded: bool,
        meter: Meter,
    ) -> None:
        self.samples, self.loss, self.device, self.precision, self.meter = samples, loss, device, precision, meter
        self.forwards = Forwards("off" if sharded else compile, device)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.micro_batches = MicroBatches(micro_batch, device, trained, in_step=sharded)
        # Tokens that must be spared for a batch to be run in pieces of one length. A GPU would wait for the lengths,
        # and for small passes; compiled code is for one shape.
        whole = device.type != "cpu" or sharded or self.forwards.mode == "on"
        self.worth = math.inf if whole else WORTH_A_PASS / sum(parameter.numel() for parameter in model.parameters())

    @property
    def own_loss(self) -> bool:
        """Whether the loss is our cross-entropy: any other may know neither classes nor logits."""
        return self.loss is cross_entropy

    def are_shared_by(self, model: nn.Module) -> bool:
        """Tell whether a sample's loss is the same in whatever batch it is."""
        return not model.training and self.own_loss

    def run(self, function: Callable[[nn.Module, Data], Tensor], model: nn.Module, data: Data, *, total: int) -> Tensor:
        """Run this process's part of a batch of ``total`` samples; all processes together count as one."""
        here = len(labels_of(data))
        done = 0

        def run(data: Data) -> Tensor:
            nonlocal done
            before, done = done * total // here, done + len(labels_of(data))
            self.meter.count(done * total // here - before, differentiated=torch.is_grad_enabled())
            with autocast(self.device, self.precision), _explained():
                found = self.forwards.run(function, model, data)
            return require_one_each(found, len(labels_of(data))) if function is self.loss else found

        if pieces := self._by_length(model, data):
            parts = [self.micro_batches.run(run, piece, training=False) for _, piece in pieces]
            return torch.cat(parts)[torch.cat([places for places, _ in pieces]).argsort()]
        return self.micro_batches.run(run, data, training=model.training)

    def _by_length(self, model: nn.Module, data: Data) -> list[tuple[Tensor, Data]]:
        """Take a batch of sentences apart, where that changes nothing and spares enough work on their padding."""
        if self.worth == math.inf or not self.are_shared_by(model) or self.samples.cut_padding is False:
            return []
        return by_length(data, worth=self.worth)


@contextmanager
def _explained() -> Iterator[None]:
    """Say in our words why a batch of one sample cannot be normalised."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UsageError(
            "A batch of one sample has no statistics to be normalised by in training mode. Take normalisation=eval."
        ) from error
