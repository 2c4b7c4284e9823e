"""Run models. Steps, evaluation, the guard and the search for neighbours all use this module.

It handles precision, compiled code, micro-batches, padding, processes and counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from unweave.data import Batch, Data, KeepData, Samples, by_length, labels_of, may_cut, plain_labels
from unweave.engine.compiling import Captures, Compile, Forwards
from unweave.engine.cost import Meter
from unweave.engine.micro_batches import MicroBatches
from unweave.errors import UsageError
from unweave.runtime import (
    Resolved,
    autocast,
    channels_last,
    exact_head,
    exchange,
    fast_products,
    processes,
    reading,
)

Function: TypeAlias = Callable[[nn.Module, Data], Tensor]  # a row of results for every sample of a batch

AT_ONCE = {"cuda": 1024}  # samples in a pass without gradients; 512 elsewhere
# Least product of saved padding tokens and model weights for which another pass pays on a CPU.
WORTH_A_PASS = 2e9
ONE_SAMPLE = "A batch of one sample cannot be normalised in training mode. Use normalisation=eval or larger batches."


class Forward:
    """Runs functions of a model and a batch.

    Args:
        device: Where models and batches are.
        precision: The precision of forward and backward passes.
        compile: Whether to compile forward passes.
        parameters: The weights to differentiate; none for evaluation only.
        micro_batch: The most samples to differentiate at once.
        sharded: Whether the weights are sharded, so that all processes must run equally often.
        meter: Counts the samples that are run.
        keep_data: Where to keep samples after reading them.
        most_memory: The most bytes to use on the device; with a limit, no other process compiles there.
    """

    def __init__(
        self,
        *,
        device: torch.device,
        precision: Resolved,
        compile: Compile = "off",
        parameters: Sequence[nn.Parameter] = (),
        micro_batch: int | None = None,
        sharded: bool = False,
        meter: Meter | None = None,
        keep_data: KeepData = "auto",
        most_memory: int | None = None,
    ) -> None:
        self.keep_data: KeepData = keep_data
        self.device, self.precision, self.meter, self.sharded = device, precision, meter, sharded
        captures = Captures(device, parameters) if parameters else None
        self.compiling = Forwards("off" if sharded else compile, device, captures, most_memory=most_memory)
        more = {"when_short": captures.stop} if captures else {}
        self.micro_batches = MicroBatches(
            micro_batch, device, parameters, in_step=sharded, quiet=not parameters, **more
        )
        self.apart = False  # whether batches of sentences may be split by length; set by `may_run_apart`
        self._sizes: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()

    def may_run_apart(self, allowed: bool) -> None:
        """Set whether batches of sentences may be split by length.

        Only a CPU splits them: a GPU would wait for the lengths and for small passes. Compiled code expects one shape.
        """
        self.apart = allowed and self.device.type == "cpu" and not self.sharded and self.compiling.mode != "on"

    # One batch

    def run(self, function: Function, model: nn.Module, data: Data, *, total: int | None = None) -> Tensor:
        """Run this process's part of a batch of ``total`` samples, and count the batch once over all processes."""
        here = len(labels_of(data))
        total = here if total is None else total
        done = 0

        def run(data: Data) -> Tensor:
            nonlocal done
            before, done = done * total // here, done + len(labels_of(data))
            if self.meter:
                self.meter.count(done * total // here - before, differentiated=torch.is_grad_enabled())
            try:
                with autocast(self.device, self.precision):
                    return self.compiling.run(function, model, data)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise UsageError(ONE_SAMPLE) from error

        if pieces := self._by_length(model, data):
            parts = [self.micro_batches.run(run, piece, training=False) for _, piece in pieces]
            return torch.cat(parts)[torch.cat([places for places, _ in pieces]).argsort()]
        return self.micro_batches.run(run, data, training=model.training)

    def _by_length(self, model: nn.Module, data: Data) -> list[tuple[Tensor, Data]]:
        """Split a batch of sentences by length if that saves enough work on padding."""
        if not self.apart or model.training or not isinstance(data, Mapping):
            return []
        if model not in self._sizes:
            self._sizes[model] = sum(parameter.numel() for parameter in model.parameters())
        return by_length(data, worth=WORTH_A_PASS / self._sizes[model])

    # Many samples

    def rows(
        self,
        function: Function,
        model: nn.Module,
        samples: Samples,
        rows: Tensor,
        *,
        batch_size: int | None = None,
        labels: Callable[[Data], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run a function in evaluation mode, without gradients, on the samples at these positions.

        Returns the results and the labels of the samples, on the device, in the order of ``rows``. The model is
        unchanged afterwards. Several processes share the samples, and each gets all results. The last linear layer
        runs in float32. ``labels`` reads the labels of a batch (`Task.label_rows`).
        """
        part = processes.part_of(len(rows))
        mine = part.rows(rows) if part else rows
        samples.keep(mine, self.device, how=self.keep_data)
        cut = may_cut(samples, model, function, rows, self.device)
        lengths = samples.token_lengths(self.device) if cut else None
        # Batches of sentences of similar length need little padding.
        order = torch.arange(len(mine)) if lengths is None else lengths[mine.cpu()].argsort(stable=True)
        size = batch_size or AT_ONCE.get(self.device.type, 512)

        def run(data: Data) -> Tensor:
            with autocast(self.device, self.precision):
                return function(model, data)

        with self._looking(model):
            found, read = [], []  # on the device, so that the loop never waits
            for batch in _in_order(samples, mine[order.to(mine.device)], self.device, size, lengths, cut=cut):
                found.append(self.micro_batches.values(run, batch.data))
                read.append(labels(batch.data) if labels else plain_labels(labels_of(batch.data)))
        back = order.argsort().to(self.device)
        results, known = (exchange.gathered(torch.cat(some)[back], part) for some in (found, read))
        return results, known

    @contextmanager
    def _looking(self, model: nn.Module) -> Iterator[None]:
        """Prepare a model for evaluation, as exact as the precision allows, and restore it afterwards."""
        with (
            reading(model, self.device),
            channels_last(model, self.device),
            exact_head(model, self.precision),
            fast_products(self.device, self.precision),
        ):
            yield


def _in_order(
    samples: Samples, rows: Tensor, device: torch.device, size: int, lengths: Tensor | None, *, cut: bool
) -> Iterator[Batch]:
    if not samples.kept(device):
        return samples.batches(((some, None) for some in rows.cpu().split(size)), device, cut=cut)
    ends = [None if lengths is None else int(lengths[some].max()) for some in rows.cpu().split(size)]
    there = rows.to(device).split(size)
    return (samples.batch(some, device, longest=end, cut=cut) for some, end in zip(there, ends, strict=True))
