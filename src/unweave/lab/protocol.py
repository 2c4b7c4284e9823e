"""The protocol of comparisons on CIFAR-100, fixed before its runs: classes, seeds, budgets, measures, tests.

Studies and tunings keep its version with their numbers. `docs/protocol.md` shows it, with the rules that are not
numbers. A change of any field is a new version; a test pins what each version said.

>>> PROTOCOL.version, len(PROTOCOL.reporting), PROTOCOL.tuning
('1', 10, ('kangaroo', 'cloud'))
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything about a comparison that must be chosen before its numbers are seen."""

    version: str = "1"
    benchmark: str = "cifar100-resnet18"
    development: tuple[str, ...] = ("man", "oak_tree", "hamster", "raccoon", "crocodile", "dolphin", "castle", "clock")
    # By the SHA-256 of "tuning NAME", the first two of different superclasses, none of which has a reporting class, a
    # development class or a class of the suite of strangers.
    tuning: tuple[str, ...] = ("kangaroo", "cloud")
    reporting: tuple[str, ...] = (
        *("boy", "willow_tree", "rabbit", "turtle", "otter"),
        *("aquarium_fish", "bee", "bottle", "rose", "bus"),
    )
    large: tuple[str, ...] = ("willow_tree", "bus", "turtle", "boy")  # the first four by the SHA-256 of "large NAME"
    sizes: tuple[int, int] = (64, 224)  # pixels: of all reporting classes, and of the large ones
    seeds: tuple[int, ...] = (0, 1, 2)
    tuning_seeds: tuple[int, ...] = (100, 101)
    trials: int = 20  # of each method, for each goal
    goals: tuple[str, ...] = ("erase", "retrain")
    shadow_models: int = 64
    retrained_models: int = 50  # and as many again for the distance of retraining from itself
    measures: tuple[str, ...] = (
        *("train_forget", "test_forget", "adjacent", "remote", "erase_score"),
        *("tow_split", "attack", "losses", "gradients"),
    )
    level: float = 0.95
    test: str = "paired t test over classes, corrected by Holm's method for all tests of a table"
    frozen: str = "defaults-1"  # the tag of the commit whose defaults are run; it precedes every look at reporting data

    def digest(self) -> str:
        """Return a short hash of everything in it."""
        said = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:12]

    def markdown(self) -> str:
        """Return it as a table for `docs/protocol.md`."""
        first, second = self.sizes
        rows = {
            "version": f"{self.version} (`{self.digest()}`)",
            "defaults": f"those of the commit with the tag `{self.frozen}`",
            "development classes": ", ".join(self.development),
            "tuning classes": ", ".join(self.tuning),
            f"reporting classes, {first} px, every method": ", ".join(self.reporting),
            f"of these also at {second} px, six methods": ", ".join(self.large),
            "seeds": f"{_list(self.seeds)}; in tuning {_list(self.tuning_seeds)}",
            "budget of tuning": f"{self.trials} trials of each method, each with {len(self.tuning_seeds)} seeds, on "
            f"every tuning class, for each goal ({_list(self.goals)}) anew",
            "attacks": f"{self.shadow_models} shadow models; {self.retrained_models} unlearned and as many retrained "
            f"models, and {self.retrained_models} more for retraining's distance from itself",
            "intervals": f"{self.level:.0%}, Student's t over the means of classes",
            "tests": self.test,
        }
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {words} |" for name, words in rows.items())])


def _list(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


PROTOCOL = Protocol()
