"""Keep the best weights of a run instead of the last ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from unweave.data import RETAINED, Partition
from unweave.engine.callbacks import Callback, Running
from unweave.engine.phase import Logged, Phase
from unweave.engine.watch import evenly
from unweave.errors import UsageError
from unweave.runtime import own_random_numbers, sharding


@dataclass(eq=False)
class Best(Callback):
    """Return the best weights of a run instead of the last.

    A step qualifies if the model recognises no more of the forget data than allowed. The best step is the one that
    qualifies with the highest mean accuracy on adjacent and remote data. If none qualifies, the last weights are kept.

    Args:
        split: The data to evaluate on. None: the split of the run. Give held-out data to stop before the run overfits
            the kept data.
        forget_at_most: The largest share of forget samples that the model may recognise.
        every: Steps between two evaluations.
        samples: The most samples of each subset to evaluate.

    Raises:
        UsageError: A number is outside its range.

    >>> Best(forget_at_most=0.01, every=20)
    Best(split=None, forget_at_most=0.01, every=20, samples=1000)
    """

    split: Partition | None = None
    _: KW_ONLY
    forget_at_most: float = 0.0
    every: int = 10
    samples: int = 1000
    value: float = field(default=-math.inf, init=False, repr=False)
    weights: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.forget_at_most <= 1 or self.every < 1 or self.samples < 1:
            raise UsageError(
                f"Best(forget_at_most={self.forget_at_most}, every={self.every}, samples={self.samples}): "
                "forget_at_most must be in [0, 1], every and samples at least 1."
            )

    def describe(self) -> Mapping[str, object]:
        """Return the criteria, which decide the final weights."""
        how = {"forget_at_most": self.forget_at_most, "every": self.every, "samples": self.samples}
        return {"best": how | ({"split": self.split.hash} if self.split else {})}

    def begin(self, running: Running) -> None:
        """Choose the samples."""
        split = self.split or running.split
        self._rows = {name: evenly(split.rows(name), self.samples) for name in ("forget", *RETAINED)}
        self._samples, self.value, self.weights = split.samples, -math.inf, {}

    def step(self, phase: Phase, number: int) -> Logged:
        """Evaluate, and keep the weights if they are the best so far."""
        if number % self.every and number != phase.steps - 1:
            return {}
        bench = phase.bench
        with bench.meter.paused(), own_random_numbers(bench.device):
            shares = {name: self._recognised(phase, rows) for name, rows in self._rows.items() if len(rows)}
        kept = sum(shares[name] for name in RETAINED if name in shares) / max(1, len(shares) - ("forget" in shares))
        if shares.get("forget", 0.0) <= self.forget_at_most and kept > self.value:
            self.value = kept
            state = sharding.collected(bench.model.state_dict())
            self.weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
        return {}

    def _recognised(self, phase: Phase, rows: Tensor) -> float:
        bench = phase.bench
        outputs, labels = bench.forward.rows(bench.task.tried_outputs, bench.model, self._samples, rows)
        recognised = bench.task.recognised(outputs, bench.task.labels(labels))
        if recognised is None:
            raise UsageError(
                "Best needs a task that tells which samples are recognised. Use OwnLoss(loss, recognised=...)."
            )
        return int(recognised.sum()) / len(recognised)

    def finish(self, running: Running) -> None:
        """Restore the best weights."""
        if self.weights:
            sharding.load(running.bench.model, self.weights)

    def state(self) -> Mapping[str, Tensor]:
        """Return the best weights and their value."""
        return {"value": torch.tensor(self.value, dtype=torch.float64), **self.weights} if self.weights else {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.weights = {name: tensor for name, tensor in state.items() if name != "value"}
        self.value = float(state["value"]) if self.weights else -math.inf
