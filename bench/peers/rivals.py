"""Run a method on a case, ours in this process and a peer's in its own, and return a row that is judged alike."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import unweave as uw
from bench.peers.case import Case
from unweave import UsageError
from unweave.data import SUBSETS
from unweave.lab.tuning import erase_score

ADAPTERS = Path(__file__).parent / "adapters"
OURS = "unweave"


@dataclass(frozen=True)
class Peer:
    """Another project: the Python of its environment, its checkout or unpacked wheel, and our adapter."""

    name: str
    python: Path
    place: Path
    adapter: Path

    @classmethod
    def find(cls, name: str, *, python: Path, place: Path, adapter: Path | None = None) -> Peer:
        """Return the peer, with the adapter of its name if none is given."""
        chosen = adapter or ADAPTERS / f"run_{name}.py"
        for what, path in (("--python", python), ("--place", place), ("The adapter", chosen)):
            if not path.exists():
                raise UsageError(f"{what} {path} does not exist.")
        return cls(name, python.absolute(), place.absolute(), chosen)  # a link to a Python is what makes an environment

    @property
    def commit(self) -> str | None:
        """The commit of the checkout; None for an unpacked wheel."""
        git = shutil.which("git")
        if git is None or not (self.place / ".git").exists():
            return None
        said = subprocess.run([git, "-C", self.place, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        return said.stdout.strip()


def run_ours(case: Case, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a method of ours by `unlearn`, with the library's defaults where nothing is set; a failure is a row too."""
    row: dict[str, Any] = {"tool": OURS, "method": method, "settings": dict(settings)}
    begun, busy = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", uw.RunWarning)
        try:
            result = uw.unlearn(
                case.model(),
                case.split("train"),
                method,
                seed=case.about["seed"],
                compute=uw.Compute("cpu"),
                callbacks=[uw.Progress(show=False)],
                **settings,
            )
        except uw.CollapseError as error:
            return row | {"error": f"stopped by the guard: {error}"}
    spent = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - busy}
    return row | {
        **{key: round(value, 2) for key, value in spent.items()},
        "gradients": result.cost.sample_gradients,
        "warnings": [str(one.message) for one in caught if issubclass(one.category, uw.RunWarning)],
        "error": None,
        "after": case.six(result.model),
    }


def run_peer(case: Case, peer: Peer, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a peer's method in its environment, and judge the weights that it leaves; a failure is a row too."""
    row: dict[str, Any] = {
        "tool": peer.name,
        "method": method,
        "settings": dict(settings),
        "commit of tool": peer.commit,
    }
    with tempfile.TemporaryDirectory() as folder:
        words = [case.folder.absolute(), folder, method, json.dumps(dict(settings)), peer.place]
        done = subprocess.run(
            [peer.python, peer.adapter, *map(str, words)], capture_output=True, text=True, cwd=folder, check=False
        )
        said = Path(folder) / "said.json"
        if done.returncode or not said.exists():
            lines = done.stderr.strip().splitlines() or ["no message"]
            return row | {"error": lines[-1]}
        row |= json.loads(said.read_text(encoding="utf-8"))
        model = case.model(Path(folder) / "weights.safetensors")
        if not all(bool(torch.isfinite(value).all()) for value in model.state_dict().values()):
            return row | {"error": "the weights are not finite"}
        return row | {"error": None, "after": case.six(model)}


def score_of(row: Mapping[str, Any]) -> float:
    """Return what tuning maximises: `unweave tune`'s score for the goal erase, on the case's test data."""
    if row["error"]:
        return 0.0
    before = row["before"]
    found = {subset: row["after"][f"{'train' if subset == 'forget' else 'test'} {subset}"] for subset in SUBSETS}
    return erase_score(found, {subset: before[f"test {subset}"] for subset in SUBSETS})


def drawn(space: Mapping[str, Any], number: int, *, seed: int) -> dict[str, Any]:
    """Return the settings of a trial; number 0 is the default.

    A space has for each setting a list of choices, or two numbers between which it is drawn log-uniformly.

    >>> drawn({"rate": (0.1, 1.0), "epochs": [1, 2]}, 0, seed=0)
    {}
    >>> sorted(drawn({"rate": (0.1, 1.0), "epochs": [1, 2]}, 1, seed=0))
    ['epochs', 'rate']
    """
    if number == 0:
        return {}
    source = random.Random(f"{seed} {number} {sorted(space)}")
    found: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, tuple):
            low, high = values
            found[name] = float(f"{low * (high / low) ** source.random():.3g}")
        else:
            found[name] = source.choice(values)
    return found
