"""The search for one method's settings: an Optuna study that gets each trial when it ends.

Trial k depends only on the seed, the method, k and the trials before it, because every trial has a new sampler. So an
interrupted search gives the same result as an uninterrupted one, whichever process resumes it. The first trials are
random and independent of each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unweave.engine import derive_seed
from unweave.errors import UsageError
from unweave.lab.packages import require_package
from unweave.lab.tuning.objectives import WORST
from unweave.lab.tuning.search_space import DEFAULT, SEARCHED, WRITTEN, Space
from unweave.settings import Choices, Span
from unweave.storage import COUNT, NUMBER, OBJECT, TEXT, require_form

TRIED: dict[str, Any] = {"method": TEXT, "trial": COUNT, "origin": TEXT, "settings": OBJECT, "error": TEXT}
TRIED |= {"score": NUMBER, "scores": [NUMBER], "accuracy": {"*": NUMBER}, "seconds": NUMBER, "sample_gradients?": COUNT}
RANDOM_FIRST = 6  # trials before the sampler (TPE) learns from them


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a trial: scores and accuracies on held-out data, the cost, and the error if it failed.

    The sample gradients of a failed trial are unknown.
    """

    score: float = WORST  # the mean over seeds, an estimate if the trial stopped early
    scores: Sequence[float] = ()  # by seed
    accuracy: Mapping[str, float] = field(default_factory=dict)  # by subset
    seconds: float = 0.0
    sample_gradients: int | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Tried(Outcome):
    """A trial: its method, number, settings and outcome."""

    method: str
    trial: int
    origin: str
    settings: Mapping[str, Any]

    @property
    def standard_error(self) -> float:
        """The standard error of the mean score; 0 for one seed, where it is unknown."""
        return statistics.stdev(self.scores) / len(self.scores) ** 0.5 if len(self.scores) > 1 else 0.0


def require_optuna() -> Any:
    """Import Optuna and turn its messages off."""
    optuna = require_package("optuna", "Tuning")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(path: Path) -> Any:
    """Return Optuna's storage in a file. With SQLite, a killed process leaves nothing half-written."""
    engine = {"connect_args": {"timeout": 60}}  # seconds to wait for other processes, which write for milliseconds
    return require_optuna().storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=engine)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn every error of reading trials into a `UsageError`: Optuna and SQLite raise many kinds for an odd file."""
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:
        words = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"{path} cannot be read as trials of a tuning: {words[:200]} Choose another --out, or remove the folder."
        ) from error


class MethodSearch:
    """The trials of one method."""

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
        """Return the finished trials, in the order of their numbers."""
        return [tried for tried, _ in self._over()]

    def ready(self, trials: int, *, at_once: bool) -> list[int]:
        """Return the numbers of the trials that can run now: the first that is left.

        With ``at_once``, also all random trials that are left: they do not depend on earlier ones.
        """
        over = {tried.trial for tried in self.tried()}
        left = [number for number in range(trials) if number not in over]
        return [number for number in left if number == left[0] or (at_once and number < RANDOM_FIRST)]

    def rival(self, tried: Tried) -> Tried | None:
        """Return the best trial so far, or None if this trial must run with every seed.

        Settings that somebody wrote down run with every seed, because the others are measured against them.
        """
        best = max(self.tried(), key=lambda trial: trial.score, default=None)
        return best if best is not None and best.scores and tried.origin not in WRITTEN else None

    def ask(self, number: int) -> tuple[dict[str, Any], Tried]:
        """Draw the settings of a trial; return the drawn values and the trial, still without an outcome."""
        origin = self.space.fixed(number)
        drawn = self._drawn(number) if origin == SEARCHED else self._default() if origin == DEFAULT else {}
        found = {} if origin == DEFAULT else {name: _short(value) for name, value in drawn.items()}
        settings = self.space.settings(origin, found)
        return drawn, Tried(method=self.space.method, trial=number, origin=origin, settings=settings)

    def tell(self, drawn: Mapping[str, Any], tried: Tried) -> None:
        """Record a trial. A failed trial has the worst score, so the search avoids its settings."""
        self.study.add_trial(
            self.optuna.create_trial(
                params=dict(drawn),
                distributions={name: self._space(self.space.searched[name]) for name in drawn},
                value=tried.score,
                user_attrs={"tried": asdict(tried)},
            )
        )

    def _over(self) -> list[tuple[Tried, Any]]:
        trials = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.COMPLETE,))
        for trial in trials:
            require_form(trial.user_attrs, {"tried": TRIED}, f"trial {trial.number} of {self.space.method}")
        return sorted(((Tried(**trial.user_attrs["tried"]), trial) for trial in trials), key=lambda one: one[0].trial)

    def _default(self) -> dict[str, Any]:
        return {name: self.space.default[name] for name in self.space.searched}

    def _drawn(self, number: int) -> dict[str, Any]:
        """Draw values from the space, given the trials before this one."""
        sampler = self.optuna.samplers.TPESampler(
            seed=derive_seed(self.seed, self.space.method, number) % 2**32,
            n_startup_trials=RANDOM_FIRST,
            multivariate=False,
            constant_liar=False,
        )
        study = self.optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([trial for tried, trial in self._over() if tried.trial < number])
        drawn: dict[str, Any] = study.ask({name: self._space(of) for name, of in self.space.searched.items()}).params
        return drawn

    def _space(self, of: Span | Choices) -> Any:
        if isinstance(of, Choices):
            return self.optuna.distributions.CategoricalDistribution(of.values)
        return self.optuna.distributions.FloatDistribution(of.low, of.high, log=of.log)


def _short(value: Any) -> Any:
    """Round a float to four significant digits."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
