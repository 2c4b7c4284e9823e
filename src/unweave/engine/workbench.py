"""What a phase works with: the model being changed, its data on the device, its losses and gradients.

Every forward and backward pass of every method goes through here, so that precision, devices, processes and counting
are in one place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unweave.data import (
    Batch,
    Data,
    Partition,
    has_one_each,
    join,
    labels_of,
    require_classes,
    require_known_labels,
    settle_padding,
    shapes,
)
from unweave.engine.batches import Batches, derive_seed, grouped
from unweave.engine.compiling import Compile
from unweave.engine.cost import Cost, Meter
from unweave.engine.forward import Passes
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
from unweave.tasks import Loss, cross_entropy, log_odds, logits, try_on

Mode = Literal["eval", "train"]
IN_ORDER = 1024  # samples at a time, where nothing but their losses is asked for
AT_ONCE = 512  # samples of small batches in one pass of a CUDA device


class Workbench:
    """The model being changed, and the ways to read losses and gradients from it.

    ``precision`` is that of forward and backward passes; weights and gradients stay in float32. ``compile`` says when
    forward passes are compiled: where it pays (``auto``), wherever a shape of batch occurs twice (``on``), or never. On
    CUDA convolutional models are laid out channels last while they are here; `release` gives the model back as it was.
    ``micro_batch`` is the most samples that are differentiated at once, ``max_memory`` the most bytes taken on a CUDA
    device; where a batch needs more, it is cut into pieces, with the same results. With ``shard``, several processes
    work on a copy of the model whose weights are cut among them.
    """

    def __init__(
        self,
        model: nn.Module,
        split: Partition,
        *,
        device: torch.device,
        loss: Loss = cross_entropy,
        seed: int = 0,
        precision: Precision = "auto",
        compile: Compile = "auto",
        micro_batch: int | None = None,
        max_memory: int | str | None = None,
        shard: bool | None = False,
    ) -> None:
        self.sharded, self._pattern = sharding.is_wanted(shard), model
        exchange.spread([*model.parameters(), *model.buffers()])
        self.model = model = sharding.sharded(model, device) if self.sharded else model
        self.split, self.loss = split, loss
        self.device, self.seed, self.precision = device, seed, resolve_precision(precision, device)
        # Not where weights are cut among processes: there a batch that memory is too small for cannot be cut again.
        self.at_once = AT_ONCE if device.type == "cuda" and not self.sharded else 0
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise UsageError(
                "The model has no trainable parameters, so nothing can be unlearned. Set requires_grad on some."
            )
        for parameter in self.parameters:
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise UsageError(
                    f"The trained weights are {str(parameter.dtype).removeprefix('torch.')}, in which small steps are "
                    "lost. Pass model.float(); precision='bfloat16' makes the passes as fast."
                )
        _refuse_sparse(model)
        self.max_memory = None if max_memory is None else parse_bytes(max_memory)
        self._laid_out = [] if self.sharded else use_channels_last(model, device)
        self.statistics = SharedStatistics(model)
        self.meter = Meter(device)
        self.passes = Passes(
            model,
            split.samples,
            loss=loss,
            device=device,
            precision=self.precision,
            compile=compile,
            micro_batch=micro_batch,
            sharded=self.sharded,
            meter=self.meter,
        )
        self._classes: int | None = None
        self._touched: set[int] | None = None  # parameters that had a part in a gradient since the last step

    # Data

    def batches(self, *subsets: str, size: int, by_label: bool = False) -> Batches:
        """Return shuffled batches over one or several subsets together.

        Read in order instead, they go through the data set by position or, ``by_label``, by training label.
        """
        if not any(len(self.split[subset]) for subset in subsets):
            raise UsageError(f"This method needs {' or '.join(subsets)} data, but the split has none.")
        samples, rows = self.split.samples, self.split.rows(*subsets)
        samples.keep(rows, self.device)
        self.settle_padding(rows)
        # Another loss may have labels of another kind; ours needs a logit for each.
        classes = self._count_classes(rows) if self.own_loss else None
        kept = samples.kept_labels(rows, self.device)
        if classes is not None and kept is not None:
            require_known_labels(kept, rows, classes)
        if by_label:
            read = kept if kept is not None else torch.cat([labels_of(samples.read(row[None])) for row in rows])
            rows = rows[read.cpu().argsort(stable=True)]
        seed = derive_seed(self.seed, "batches", *subsets, size)
        return Batches(samples, rows, size=size, seed=seed, device=self.device, classes=classes)

    def settle_padding(self, rows: Tensor) -> None:
        """See whether padding may be cut before samples are taken in batches."""
        run = try_on if self.own_loss else self.loss
        settle_padding(self.split.samples, self.model, run, rows, self.device)

    def varies(self, batches: Batches) -> bool:
        """Tell whether a sample can look different each time (random transforms)."""
        return self.split.samples.varies(batches.rows)

    # Losses

    def losses(self, batch: Batch, *, model: nn.Module | None = None) -> Tensor:
        """Return the loss of every sample, with gradient where gradients are on."""
        return self._run(self.loss, batch, model)

    @property
    def own_loss(self) -> bool:
        """Whether the loss is our cross-entropy: any other may know neither classes nor logits."""
        return self.passes.own_loss

    @property
    def shares_passes(self) -> bool:
        """Whether a sample's loss is the same in whatever batch it is."""
        return self.passes.are_shared_by(self.model)

    def losses_together(self, *batches: Batch) -> list[Tensor]:
        """Return the losses of several batches, from one forward pass for each shape where that changes nothing.

        It would in training mode, where samples of a batch depend on each other; and it might with a loss that is not
        ours.
        """
        if not self.shares_passes:
            return [self.losses(batch) for batch in batches]
        alike: dict[Any, list[int]] = {}
        for place, batch in enumerate(batches):
            joins = has_one_each(batch.data, batch.part.size if batch.part else len(batch))
            alike.setdefault(shapes(batch.data) if joins else place, []).append(place)
        found: dict[int, Tensor] = {}
        for places in alike.values():
            some = [batches[place] for place in places]
            data = join([one.data for one in some]) if len(some) > 1 else some[0].data
            mine = self.passes.run(self.loss, self.model, data, total=sum(map(len, some)))
            parts = mine.split([one.part.size if one.part else len(one) for one in some])
            for place, one, part in zip(places, some, parts, strict=True):
                found[place] = exchange.gathered(part, one.part)
        return [found[place] for place in range(len(batches))]

    def losses_in_passes(self, batches: Iterable[Batch], *, most: int) -> Iterator[list[tuple[Batch, Tensor]]]:
        """Yield batches with their losses, those that share a forward pass together: ``most`` samples, or one batch.

        A CUDA device gets some hundred at a time, however few are asked for: a small pass takes as long as a large one,
        which is the time to tell the device what to do. Where its memory is too small for them, they are cut again.
        """
        for group in grouped(batches, most=max(most, self.at_once) if self.shares_passes else 0):
            yield list(zip(group, self.losses_together(*group), strict=True))

    def logits(self, batch: Batch, *, model: nn.Module | None = None) -> Tensor:
        """Return the logits of every sample, for methods that look beyond the loss."""
        return self._run(logits, batch, model)

    def log_odds(self, batch: Batch) -> Tensor:
        """Return the log-odds against the label of every sample; of a loss that is not ours, the losses."""
        return self._run(log_odds if self.own_loss else self.loss, batch, None)

    def _run(self, function: Callable[[nn.Module, Data], Tensor], batch: Batch, model: nn.Module | None) -> Tensor:
        self.statistics.real = batch.part.real if batch.part else None
        mine = self.passes.run(function, model or self.model, batch.data, total=len(batch))
        return exchange.gathered(mine, batch.part)

    def losses_in_order(self, batches: Batches) -> Tensor:
        """Return the loss of every sample of a subset, in the order of its rows, without gradient."""
        with torch.no_grad():
            many = (
                batches.in_batches_of(IN_ORDER) if self.device.type == "cuda" else batches
            )  # small ones leave it idle
            return torch.cat([self.losses(batch) for batch in many.in_order()])

    # Gradients

    def changed_weights(self) -> list[Tensor]:
        """Return the trained weights, and those that a trained adapter, such as LoRA's, is added to.

        Steps that are measured by the weights are measured by these: an adapter begins at zero, and how much it changes
        is seen beside the layer that it belongs to. Weights of a byte or less, no numbers by themselves, are left out.
        """
        weights: dict[int, Tensor] = {id(parameter): parameter for parameter in self.parameters}
        for module in self.model.modules():
            base = getattr(module, "base_layer", None)  # so peft calls it
            if isinstance(base, nn.Module) and any(parameter.requires_grad for parameter in module.parameters()):
                weights |= {id(w): w for w in base.parameters() if w.is_floating_point() and w.itemsize > 1}
        return [weight.detach() for weight in weights.values()]

    def gradient(self, objectives: Iterable[Tensor]) -> Gradient:
        """Return the gradient of the sum of the objectives over all processes, one tensor per trainable parameter.

        Objectives are taken one at a time, so that a generator holds one batch's activations at most; their
        gradients add up in place.
        """
        for parameter in self.parameters:
            parameter.grad = None
        for objective in objectives:
            objective.backward()
        touched = {id(parameter) for parameter in self.parameters if parameter.grad is not None}
        self._touched = touched if self._touched is None else self._touched | touched
        gradient = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in self.parameters
        ]
        for parameter in self.parameters:
            parameter.grad = None
        if not self.sharded:  # where torch has averaged them already
            exchange.average(gradient)
        return gradient

    def descend(self, optimizer: torch.optim.Optimizer, gradient: Gradient) -> None:
        """Let the optimiser take one step along a gradient.

        Weights that no objective has used since the last step, such as those of another head, are not even decayed.
        (Of several processes each may have used others, so there all of them take part.)
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
        """Return how many classes the model tells apart, seen on a sample of these batches."""
        return self._count_classes(batches.rows)

    def copied(self) -> nn.Module:
        """Return a copy of the model as it is now, that takes no gradients."""
        if not self.sharded:
            return copy.deepcopy(self.model).requires_grad_(False)
        found = sharding.sharded(self._pattern, self.device).requires_grad_(False)
        sharding.copy_into(found, self.model)
        for module, mine in zip(found.modules(), self.model.modules(), strict=True):
            module.training = mine.training
        return found

    def frozen_copy(self) -> nn.Module:
        """Return a copy of the model as it is now, in evaluation mode, that takes no gradients: a teacher."""
        return self.copied().eval()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Give the model other weights, in every process those that the first was given."""
        exchange.spread(list(state.values()))
        sharding.load(self.model, state)

    def like(self, model: nn.Module) -> nn.Module:
        """Return another model as this one is kept: cut among the processes if this one is, else as it was given."""
        return sharding.sharded(model, self.device) if self.sharded else model

    def release(self) -> nn.Module:
        """Return the model with its weights laid out in memory as they came, in one piece."""
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
        """Measure what happens inside; let products use TF32 on CUDA, and take no more memory there than allowed."""
        with (
            self.meter.running(),
            fast_products(self.device, self.precision),
            limited_to(self.max_memory, self.device),
        ):
            yield

    @property
    def cost(self) -> Cost:
        """What the work has taken so far."""
        return self.meter.cost

    def _count_classes(self, rows: Tensor) -> int:
        if self._classes is None:
            with reading(self.model, self.device):
                batch = self.split.samples.batch(rows[:1].to(self.device), self.device)
                self._classes = try_on(self.model, batch.data).shape[1]
            require_classes(self._classes)
        return self._classes


def _refuse_sparse(model: nn.Module) -> None:
    """Refuse embeddings whose gradients are sparse: they cannot be projected on others."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight.requires_grad:
            raise UsageError(
                f"The gradients of {name or 'the model'} are sparse, and methods need whole ones. Set sparse=False on "
                "it: it gives the same outputs."
            )
