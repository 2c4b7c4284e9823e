"""A finished run: everything that its record is made from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.data import Partition
from unweave.engine import Cost
from unweave.errors import UsageError
from unweave.evaluation import Certificate, Scores
from unweave.runtime import pick_device
from unweave.storage import (
    COUNT,
    NUMBER,
    OBJECT,
    SCORES,
    TEXT,
    configuration_file,
    provenance,
    read_configuration,
    read_json,
    require_form,
)
from unweave.tasks import Task

UNKNOWN = "unknown"  # stands for what the folder of a run does not hold
CONFIG_FORM = {
    "method": TEXT,
    "profile": TEXT,
    "settings": OBJECT,
    "seed": COUNT,
    "precision": TEXT,
    "split": TEXT,
    "model": TEXT,
}
SCORES_FORM = {"schema": COUNT, "metrics": [OBJECT], "cost": {"seconds": NUMBER}}


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished run: its configuration, scores and cost, the unlearned model, and the splits of the caller.

    ``begun`` and ``finished`` are times in UTC. ``software`` and ``hardware`` are those of the run.
    """

    config: Mapping[str, Any]
    scores: Scores
    cost: Cost
    model: nn.Module
    split: Partition
    test: Partition | None = None
    certificate: Certificate | None = None
    task: Task | str | None = None
    device: torch.device = field(default_factory=lambda: pick_device(None))
    begun: str = UNKNOWN
    finished: str = UNKNOWN
    software: Mapping[str, Any] = field(default_factory=lambda: {"unweave": UNKNOWN})
    hardware: Mapping[str, Any] = field(default_factory=lambda: {"device": UNKNOWN})

    @classmethod
    def here(cls, *, device: torch.device, begun: str, **parts: Any) -> FinishedRun:
        """Return a run that has just finished in this process."""
        about = provenance(device)
        software = {"commit": about["commit"], **about["versions"]}
        return cls(**parts, device=device, begun=begun, finished=now(), software=software, hardware=about["hardware"])

    @classmethod
    def read(
        cls,
        folder: str | os.PathLike[str],
        *,
        model: nn.Module,
        split: Partition,
        test: Partition | None = None,
        **known: Any,
    ) -> FinishedRun:
        """Return the run of a folder.

        The folder holds the configuration, the scores and the cost. ``known`` holds other parts that the caller knows.
        Parts that nobody knows stay unknown, and the record names them.
        """
        at = Path(folder)
        config, content = read_configuration(at), read_json(at / SCORES)
        require_form(config, CONFIG_FORM, str(configuration_file(at)))
        require_form(content, SCORES_FORM, str(at / SCORES))
        names = {entry.name for entry in fields(Cost)}
        cost = Cost(**{name: value for name, value in content["cost"].items() if name in names})
        try:
            scores = Scores.from_dict(
                {name: entry for name, entry in content.items() if name not in ("cost", "stages")}
            )
        except TypeError as error:
            raise UsageError(f"{at / SCORES} cannot be read: {error}") from error
        versions = {name: config[name] for name in ("unweave", "torch") if isinstance(config.get(name), str)}
        known.setdefault("software", {"unweave": UNKNOWN, **versions})
        return cls(config=config, scores=scores, cost=cost, model=model, split=split, test=test, **known)

    @property
    def unknown(self) -> list[str]:
        """Names of the parts that nobody knows."""
        asked = {
            "when it began": self.begun,
            "when it finished": self.finished,
            "the version of unweave": self.software["unweave"],
            "the hardware": self.hardware["device"],
        }
        return [words for words, answer in asked.items() if answer == UNKNOWN]


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
