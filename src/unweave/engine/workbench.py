"""The workbench of a phase: the model being changed, its data on the device, its losses and gradients.

Every forward and backward pass of every method goes through here, so that precision, devices, processes and counting
are in one place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unweave.data import (
    Batch,
    Check,
    Data,
    KeepData,
    Partition,
    as_groups,
    form_of,
    join,
    labels_of,
    may_cut,
    require_classes,
)
from unweave.engine.batches import Batches, derive_seed, grouped
from unweave.engine.compiling import Compile
from unweave.engine.cost import Cost, Meter
from unweave.engine.forward import Forward
from unweave.engine.shared_statistics import SharedStatistics
from unweave.errors import UsageError
from unweave.maths import Gradient
from unweave.runtime import (
    Precision,
    exchange,
    fast_products,
    limited_to,
    parse_bytes,
    processes,
    reading,
    resolve_precision,
    sharding,
    use_channels_last,
    use_contiguous,
)
from unweave.tasks import Task, find_task, scoring_task

Mode = Literal["eval", "train"]
IN_ORDER = 1024  # samples in a pass that computes losses only
AT_ONCE = 512  # samples in a pass that small batches share on CUDA
TEXTS_AT_ONCE = 64  # the same of texts, of which a hundred tokens each keep the device busy and fill its memory


class Workbench:
    """The model being changed, with methods to compute its losses and gradients.

    ``precision`` is the precision of forward and backward passes; weights and gradients stay in float32. ``compile``
    says whether forward passes are compiled: where it pays (``auto``), for every batch shape that occurs twice
    (``on``), or never (``off``). On CUDA, convolutional models use the channels-last layout; `release` restores the
    original one. ``micro_batch`` is the most samples to differentiate at once, ``max_memory`` the most bytes to use on
    a CUDA device. A batch that needs more is split, with the same results. With ``shard``, several processes work on a
    copy of the model and shard its weights.
    """

    def __init__(
        self,
        model: nn.Module,
        split: Partition,
        *,
        device: torch.device,
        task: Task | str | None = None,
        reads: Sequence[str] = (),
        seed: int = 0,
        precision: Precision = "auto",
        compile: Compile = "auto",
        micro_batch: int | None = None,
        max_memory: int | str | None = None,
        keep_data: KeepData = "auto",
        shard: bool | None = False,
    ) -> None:
        self.sharded, self._pattern = sharding.is_wanted(shard), model
        exchange.spread([*model.parameters(), *model.buffers()])
        self.model = model = sharding.sharded(model, device) if self.sharded else model
        self.split = split
        self.keep_data: KeepData = keep_data
        self.device, self.seed, self.precision = device, seed, resolve_precision(precision, device)
        # Not with sharded weights: there a batch that does not fit into memory cannot be split again.
        self.at_once = AT_ONCE if device.type == "cuda" and not self.sharded else 0
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise UsageError(
                "The model has no trainable parameters, so nothing can be unlearned. Set requires_grad on some."
            )
        for parameter in self.parameters:
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise UsageError(
                    f"The trained weights are {str(parameter.dtype).removeprefix('torch.')}, which loses small steps. "
                    "Pass model.float(); precision='bfloat16' makes the passes as fast."
                )
        _refuse_sparse(model)
        self.max_memory = None if max_memory is None else parse_bytes(max_memory)
        self._laid_out = [] if self.sharded else use_channels_last(model, device)
        self._task, self._reads = task, reads
        self.statistics = SharedStatistics(model)
        self.meter = Meter(device)
        self.forward = Forward(
            device=device,
            precision=self.precision,
            compile=compile,
            parameters=self.parameters,
            micro_batch=micro_batch,
            sharded=self.sharded,
            meter=self.meter,
            keep_data=keep_data,
            most_memory=self.max_memory,
        )
        self._sample: Tensor | None = None  # the outputs for one sample, for their shape
        self._touched: set[int] | None = None  # parameters with a gradient since the last step

    @cached_property
    def task(self) -> Task:
        """The task of the model, found from one of the samples that the method reads."""
        rows = self.split.rows(*(self._reads or self.split.names))
        return find_task(self._task, self.model, self.split.samples, rows, self.device)

    # Data

    def batches(self, *subsets: str, size: int, by_label: bool = False) -> Batches:
        """Return shuffled batches over one or several subsets together.

        Read in order, they follow the positions in the data set or, with ``by_label``, the training labels.
        """
        if not any(len(self.split[subset]) for subset in subsets):
            raise UsageError(f"This method needs {' or '.join(subsets)} data, but the split has none.")
        samples, rows = self.split.samples, self.split.rows(*subsets)
        samples.keep(rows, self.device, how=self.keep_data)
        cut = may_cut(samples, self.model, self.task.tried_outputs, rows, self.device)
        self.forward.may_run_apart(self.task.independent and cut)
        check = self._label_check(rows)
        kept = samples.kept_labels(rows, self.device)
        if check and kept is not None:
            check(kept, rows)
        if by_label:
            read = kept if kept is not None else torch.cat([labels_of(samples.read(row[None])) for row in rows])
            rows = rows[as_groups(read.cpu()).argsort(stable=True)]
        seed = derive_seed(self.seed, "batches", *subsets, size)
        return Batches(samples, rows, size=size, seed=seed, device=self.device, check=check, cut=cut)

    def varies(self, batches: Batches) -> bool:
        """Return whether a sample may differ each time it is read (random transforms)."""
        return self.split.samples.varies(batches.rows)

    # Losses

    def losses(self, batch: Batch, *, model: nn.Module | None = None) -> Tensor:
        """Return the loss of every sample, with gradients if they are enabled."""
        return self._run(self.task.batch_losses, batch, model)

    @property
    def shares_passes(self) -> bool:
        """Whether a sample's loss does not depend on the rest of its batch."""
        return self.task.independent and not self.model.training

    def losses_together(self, *batches: Batch) -> list[Tensor]:
        """Return the losses of several batches. Batches of one shape share a forward pass if that changes nothing.

        It would change results in training mode, where the samples of a batch depend on each other, and it might with
        a user's own loss.
        """
        if not self.shares_passes:
            return [self.losses(batch) for batch in batches]
        alike: dict[Any, list[int]] = {}
        for place, batch in enumerate(batches):
            form = form_of(batch.data, batch.part.size if batch.part else len(batch))
            alike.setdefault(place if form is None else form, []).append(place)
        found: dict[int, Tensor] = {}
        for places in alike.values():
            some = [batches[place] for place in places]
            data = join([one.data for one in some]) if len(some) > 1 else some[0].data
            mine = self.forward.run(self.task.batch_losses, self.model, data, total=sum(map(len, some)))
            parts = mine.split([one.part.size if one.part else len(one) for one in some])
            for place, one, part in zip(places, some, parts, strict=True):
                found[place] = exchange.gathered(part, one.part)
        return [found[place] for place in range(len(batches))]

    def losses_in_passes(self, batches: Iterable[Batch], *, most: int) -> Iterator[list[tuple[Batch, Tensor]]]:
        """Yield groups of batches with their losses. A group is one pass of at most ``most`` samples, or one batch.

        On CUDA a pass may have 512 samples, or 64 texts, even if ``most`` is smaller: there a small pass takes as long
        as a large one, because launching it takes that long. A pass that does not fit into memory is split again.
        """
        shared = min(self.at_once, TEXTS_AT_ONCE) if self.task.has_tokens else self.at_once
        for group in grouped(batches, most=max(most, shared) if self.shares_passes else 0):
            yield list(zip(group, self.losses_together(*group), strict=True))

    def logits(self, batch: Batch, *, model: nn.Module | None = None) -> Tensor:
        """Return the logits of every sample, for methods that need more than the loss."""
        return self._run(self.task.outputs, batch, model)

    def log_odds(self, batch: Batch) -> Tensor:
        """Return every sample's log-odds against its label, or its loss if the task has no probabilities."""
        return self._run(self.task.batch_odds, batch, None)

    def margins(self, batch: Batch) -> Tensor:
        """Return how far every sample is from being recognised (`Task.margins`)."""
        return self._run(self.task.batch_margins, batch, None)

    def labels(self, batch: Batch) -> Tensor:
        """Return the labels of a batch in the form that the task's losses need."""
        return self.task.labels(batch.labels)

    def run(self, function: Callable[[nn.Module, Data], Tensor], batch: Batch) -> Tensor:
        """Return a row of results for every sample, for methods that need more than the task's outputs.

        The row of a sample must not depend on the other samples of the batch: a batch may be run in pieces.
        """
        return self._run(function, batch, None)

    def _run(self, function: Callable[[nn.Module, Data], Tensor], batch: Batch, model: nn.Module | None) -> Tensor:
        self.statistics.real = batch.part.real if batch.part else None
        mine = self.forward.run(function, model or self.model, batch.data, total=len(batch))
        return exchange.gathered(mine, batch.part)

    def losses_in_order(self, batches: Batches) -> Tensor:
        """Return the loss of every sample of a subset, in the order of its rows, without gradients."""
        with torch.no_grad():
            many = (
                batches.in_batches_of(IN_ORDER) if self.device.type == "cuda" else batches
            )  # small ones leave the GPU idle
            return torch.cat([self.losses(batch) for batch in many.in_order()])

    # Gradients

    def changed_weights(self) -> list[Tensor]:
        """Return the trained weights, and the base weights of trained adapters such as LoRA's.

        Methods that scale a step by the weights use these. An adapter starts at zero, so its change is compared with
        the layer that it adapts. Weights of one byte or less are skipped, because they are codes, not values.
        """
        weights: dict[int, Tensor] = {id(parameter): parameter for parameter in self.parameters}
        for module in self.model.modules():
            base = getattr(module, "base_layer", None)  # the name in peft
            if isinstance(base, nn.Module) and any(parameter.requires_grad for parameter in module.parameters()):
                weights |= {id(w): w for w in base.parameters() if w.is_floating_point() and w.itemsize > 1}
        return [weight.detach() for weight in weights.values()]

    def gradient(self, objectives: Iterable[Tensor]) -> Gradient:
        """Return the gradient of the sum of the objectives over all processes, one tensor per trainable parameter.

        Objectives are differentiated one at a time, so a generator holds the activations of one batch at most. Their
        gradients add up in place.
        """
        for parameter in self.parameters:
            parameter.grad = None
        for objective in objectives:
            objective.backward()
        found = [parameter.grad for parameter in self.parameters]
        pairs = list(zip(self.parameters, found, strict=True))
        touched = {id(parameter) for parameter, part in pairs if part is not None}
        self._touched = touched if self._touched is None else self._touched | touched
        gradient = [torch.zeros_like(parameter) if part is None else part for parameter, part in pairs]
        for parameter in self.parameters:
            parameter.grad = None
        if not self.sharded:  # with sharding, torch has averaged them already
            exchange.average(gradient)
        return gradient

    def descend(self, optimizer: torch.optim.Optimizer, gradient: Gradient) -> None:
        """Take one step of the optimiser along a gradient.

        Weights that no objective has used since the last step, such as those of another head, are skipped and not
        decayed. With several processes no weights are skipped, because each process may have used different ones.
        """
        every = self._touched is None or processes.count() > 1
        for parameter, part in zip(self.parameters, gradient, strict=True):
            parameter.grad = part if every or id(parameter) in (self._touched or ()) else None
        self._touched = None
        optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def move(self, direction: Gradient, *, by: float) -> None:
        """Add a multiple of a direction to the parameters."""
        torch._foreach_add_(list[Tensor](self.parameters), direction, alpha=by)

    # The model

    def classes(self, batches: Batches) -> int:
        """Return the number of classes, found from one sample of these batches."""
        samples, rows = batches.samples, batches.rows
        task = scoring_task(self.task, self.model, samples, rows, self.device)
        found = task.classes(self._outputs_of_one(rows, task)) if task.has_choices else None
        if found is None:
            raise UsageError(
                f"The task {self.task.name} has no classes, but this method needs them. Take a method that needs "
                "losses only, such as two-stage or unweave."
            )
        return found

    def limit(self, batches: Batches) -> float:
        """Return the upper bound on losses and log-odds of recognised samples (`Task.limit`)."""
        return self.task.limit(self._outputs_of_one(batches.rows)) if self.task.independent else 0.0

    def copied(self) -> nn.Module:
        """Return a copy of the current model that takes no gradients."""
        if not self.sharded:
            return copy.deepcopy(self.model).requires_grad_(False)
        found = sharding.sharded(self._pattern, self.device).requires_grad_(False)
        sharding.copy_into(found, self.model)
        for module, mine in zip(found.modules(), self.model.modules(), strict=True):
            module.training = mine.training
        return found

    def frozen_copy(self) -> nn.Module:
        """Return a copy of the current model that takes no gradients, in evaluation mode: a teacher."""
        return self.copied().eval()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load weights into the model; every process loads those of the first."""
        exchange.spread(list(state.values()))
        sharding.load(self.model, state)

    def like(self, model: nn.Module) -> nn.Module:
        """Return another model, sharded if this one is, else unchanged."""
        return sharding.sharded(model, self.device) if self.sharded else model

    def release(self) -> nn.Module:
        """Return the model unsharded and with its original memory layout."""
        if self.sharded:
            found = copy.deepcopy(self._pattern)
            found.load_state_dict(sharding.collected(self.model.state_dict(), everywhere=True))
            for module, mine in zip(found.modules(), self.model.modules(), strict=True):
                module.training = mine.training
            return found
        use_contiguous(self._laid_out)
        self.statistics.release()
        return self.model

    def mode(self, mode: Mode) -> None:
        """Put normalisation and dropout in evaluation mode (frozen statistics, no dropout) or training mode."""
        self.model.train(mode == "train")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Measure the block; on CUDA, let products use TF32, limit the memory, and compile in the background."""
        with (
            self.meter.running(),
            fast_products(self.device, self.precision),
            limited_to(self.max_memory, self.device),
            self.forward.compiling.working(),
        ):
            yield

    @property
    def cost(self) -> Cost:
        """The cost so far."""
        return self.meter.cost

    def _outputs_of_one(self, rows: Tensor, task: Task | None = None) -> Tensor:
        if self._sample is None:
            with reading(self.model, self.device):
                batch = self.split.samples.batch(rows[:1].to(self.device), self.device)
                self._sample = (task or self.task).tried_outputs(self.model, batch.data)
        return self._sample

    def _label_check(self, rows: Tensor) -> Check | None:
        """Return a check that rejects labels without a model output, or None if one sample cannot be tried."""
        if not self.task.independent:
            return None
        outputs = self._outputs_of_one(rows)
        if (classes := self.task.classes(outputs)) is not None:
            require_classes(classes)
        return partial(self.task.require_labels, outputs=outputs)


def _refuse_sparse(model: nn.Module) -> None:
    """Raise a `UsageError` for embeddings with sparse gradients, which cannot be projected."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight.requires_grad:
            raise UsageError(
                f"The gradients of {name or 'the model'} are sparse, but methods need dense ones. Set sparse=False on "
                "it; the outputs stay the same."
            )
