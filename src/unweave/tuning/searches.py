"""The search of one method: a study of Optuna's, one trial after the other.

Trial k depends on the seed, the method, k and the trials before it, and on nothing else: the sampler is made anew for
every trial. So a search that was stopped goes on as if it had not been, whoever goes on with it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unweave.engine.batches import derive_seed
from unweave.errors import UsageError
from unweave.search import Choices, Span
from unweave.tuning.objectives import WORST
from unweave.tuning.space import DEFAULT, PAPER, Space

RANDOM_FIRST = 6  # trials before the sampler (TPE) begins to learn from them


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a trial: held-out accuracies, what it cost, and why it failed, if it did.

    What a failed trial cost in sample gradients is not known.
    """

    score: float = WORST  # the mean of the scores, estimated where not every seed was run
    scores: Sequence[float] = ()  # by seed
    accuracy: Mapping[str, float] = field(default_factory=dict)  # by subset
    seconds: float = 0.0
    sample_gradients: int | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Tried(Outcome):
    """A trial that is over: which it was, with which settings, and what came of it."""

    method: str
    trial: int
    origin: str
    settings: Mapping[str, Any]

    @property
    def standard_error(self) -> float:
        """How far the mean of the scores may be off; not known with one seed, and then 0."""
        return statistics.stdev(self.scores) / len(self.scores) ** 0.5 if len(self.scores) > 1 else 0.0


def require_optuna() -> Any:
    """Return the package Optuna, quiet; an error says how to get it."""
    try:
        import optuna
    except ImportError:
        raise UsageError("Tuning needs the package Optuna: pip install 'unweave[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(path: Path) -> Any:
    """Return Optuna's storage in a file. SQLite leaves nothing half written by a process that is killed."""
    engine = {"connect_args": {"timeout": 60}}  # seconds to wait for another process's few milliseconds
    return require_optuna().storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=engine)


class MethodSearch:
    """The trials of a method. Only one process at a time may ask and tell."""

    def __init__(self, storage: Any, space: Space, *, seed: int) -> None:
        self.optuna, self.space, self.seed = require_optuna(), space, seed
        self.study = self.optuna.create_study(
            storage=storage, study_name=space.method, direction="maximize", load_if_exists=True
        )
        now = space.as_kept()
        if self.study.user_attrs.setdefault("space", now) != now:
            raise UsageError(
                f"The settings of {space.method} or their search space have changed since this tuning began. "
                "Choose another --out."
            )
        self.study.set_user_attr("space", now)

    def tried(self) -> list[Tried]:
        """Return the trials that are over, in order."""
        trials = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.COMPLETE,))
        return [Tried(**trial.user_attrs["tried"]) for trial in trials]

    def rival(self, tried: Tried) -> Tried | None:
        """Return the best trial so far, if a trial that is clearly behind it need not be run to its end.

        The default, and what the paper prints, are run with every seed: others are measured by them.
        """
        best = max(self.tried(), key=lambda trial: trial.score, default=None)
        return best if best is not None and best.scores and tried.origin not in (DEFAULT, PAPER) else None

    def ask(self) -> tuple[Any, Tried]:
        """Begin the next trial: return Optuna's and ours, which waits for its outcome."""
        state = self.optuna.trial.TrialState
        for left in self.study.get_trials(deepcopy=False, states=(state.RUNNING,)):  # by a process that died
            self.study.tell(left.number, state=state.FAIL)
        number = len(self.tried())
        origin = self.space.fixed(number)
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=derive_seed(self.seed, self.space.method, number) % 2**32,
            n_startup_trials=RANDOM_FIRST,
            multivariate=False,
            constant_liar=False,
        )
        if origin == DEFAULT and not self.study.get_trials(deepcopy=False, states=(state.WAITING,)):
            self.study.enqueue_trial({name: self.space.default[name] for name in self.space.searched})
        spaces = {} if origin == PAPER else {name: self._space(of) for name, of in self.space.searched.items()}
        trial = self.study.ask(spaces)
        found = {} if origin == DEFAULT else {name: _short(value) for name, value in trial.params.items()}
        settings = self.space.settings(origin, found)
        return trial, Tried(method=self.space.method, trial=number, origin=origin, settings=settings)

    def tell(self, trial: Any, tried: Tried) -> None:
        """End a trial. One that failed has the worst score, so that the search learns to stay away."""
        trial.set_user_attr("tried", asdict(tried))
        self.study.tell(trial, tried.score)

    def _space(self, of: Span | Choices) -> Any:
        if isinstance(of, Choices):
            return self.optuna.distributions.CategoricalDistribution(of.values)
        return self.optuna.distributions.FloatDistribution(of.low, of.high, log=of.log)


def _short(value: Any) -> Any:
    """Return a number with the four digits that a person would write down."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
