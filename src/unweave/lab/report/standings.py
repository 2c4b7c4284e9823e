"""What each method of a study did, judged once: headline, points and legend all read it from here.

A method *forgets* if it still recognises at most five percent of the forget samples, and *hardly* forgets if it
recognises more than that and over half of what the original does. It *keeps* if adjacent and remote accuracy are at
most two points below the original's, and *collapses* if one of them is more than ten points below; in between it
*pays*. Means over the seeds that a method shares with the original count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from unweave.lab.report.measures import Place
from unweave.lab.report.results import Group, Results
from unweave.lab.report.verdict_numbers import (
    COLLAPSE,
    FORGOTTEN,
    KEPT,
    SAME,
    losses,
    lost_in,
    order,
    percent,
    points,
    recognised,
)

# By how much a method forgets and how much it keeps, the best first.
WORDS = {
    ("forgets", "keeps"): "forgets and keeps",
    ("forgets", "pays"): "forgets at a price",
    ("forgets in part", "keeps"): "keeps, forgets in part",
    ("forgets in part", "pays"): "forgets in part, at a price",
    ("hardly forgets", "keeps"): "hardly forgets",
    ("hardly forgets", "pays"): "hardly forgets, at a price",
    ("forgets", "collapses"): "forgets, but ruins kept data",
    ("forgets in part", "collapses"): "ruins kept data",
    ("hardly forgets", "collapses"): "ruins kept data and hardly forgets",
}
RANKS = {key: number for number, key in enumerate(WORDS)}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What one method did.

    Attributes:
        group: The method.
        left: The share of forget samples that it still recognises.
        before: The share that the original recognises.
        loss: Its largest mean loss of accuracy on data to keep; 0 without a loss.
        worst: Where it loses most.
        beyond: The number of seeds in which it loses more than it may.
        seeds: The number of its seeds.
        order: Sorts methods of equal verdict: less recognised first.
    """

    group: Group
    left: float
    before: float
    loss: float
    worst: Place
    beyond: int
    seeds: int
    order: tuple[float, float, float]

    @property
    def forgetting(self) -> str:
        """How much it forgets, in words."""
        if self.left <= FORGOTTEN + SAME:
            return "forgets"
        return "hardly forgets" if self.left > self.before / 2 + SAME else "forgets in part"

    @property
    def keeping(self) -> str:
        """How much it keeps, in words."""
        if self.loss <= KEPT + SAME:
            return "keeps"
        return "pays" if self.loss <= COLLAPSE + SAME else "collapses"

    @property
    def forgets(self) -> bool:
        """Whether it forgets."""
        return self.forgetting == "forgets"

    @property
    def keeps(self) -> bool:
        """Whether it keeps."""
        return self.keeping == "keeps"

    @property
    def hardly(self) -> bool:
        """Whether it hardly forgets."""
        return self.forgetting == "hardly forgets"

    @property
    def words(self) -> str:
        """The verdict on the method."""
        return WORDS[self.forgetting, self.keeping]

    @property
    def rank(self) -> int:
        """The place of its verdict among all verdicts; 0 is the best."""
        return RANKS[self.forgetting, self.keeping]

    @property
    def still(self) -> str:
        """The share that it still recognises, as a person reads it."""
        return percent(self.left)

    @property
    def price(self) -> str:
        """How much it loses, where it loses most."""
        return f"{points(self.loss)} of {self.worst.words} accuracy"

    @property
    def numbers(self) -> str:
        """The two numbers behind the verdict."""
        lost = "nothing lost" if self.loss <= SAME else f"{self.price} lost"
        return f"{self.still} of the forget samples still recognised, {lost}"


def standings(results: Results, methods: Iterable[Group], original: Group) -> list[Standing]:
    """Return the standing of each method, the best first."""
    before = recognised(results, original) or 0.0
    found = [_standing(results, group, original, before) for group in methods]
    return sorted(found, key=lambda one: (one.rank, one.order))


def _standing(results: Results, group: Group, original: Group, before: float) -> Standing:
    by_place, seeds = losses(results, group, original), results.seeds_of(group)
    worst = max(by_place, key=lambda place: by_place[place])
    return Standing(
        group=group,
        left=recognised(results, group) or 0.0,
        before=before,
        loss=max(0.0, by_place[worst]),
        worst=worst,
        beyond=sum(lost_in(results, group, original, seed) > KEPT + SAME for seed in seeds),
        seeds=len(seeds),
        order=order(results, group),
    )


def those(found: Sequence[Standing], wanted: Callable[[Standing], bool]) -> list[Standing]:
    """Return the standings that are wanted, in their order."""
    return [one for one in found if wanted(one)]
