"""The verdict on a study in words, computed from its numbers.

A method *forgets* if it still recognises at most five percent of the forget samples. It *keeps* if its adjacent and
remote accuracies are at most two points below the original's. It *collapses* if one of them is more than ten points
below; in between, it pays. Test data count for this or, without any, training data. A method is compared with the
original of the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from unweave.lab.report.results import REFERENCES, Group, Results
from unweave.lab.report.verdict_numbers import (
    COLLAPSE,
    FORGOTTEN,
    KEPT,
    SAME,
    hardly,
    is_paired,
    judged,
    left_by,
    lost,
    order,
    percent,
    price,
    recognised,
)
from unweave.lab.report.verdict_points import cost, failed, keeping, kept, losing, retraining, unpaired


@dataclass
class Headline:
    """A headline, and points with a name each."""

    headline: str
    points: list[tuple[str, str]] = field(default_factory=list)
    winner: Group | None = None  # the method that the points describe
    named: tuple[Group, ...] = ()  # the methods in the headline

    def text(self) -> str:
        """Return everything as plain text."""
        return "\n".join([self.headline, *(f"{name}: {words}" for name, words in self.points)])


def verdict(results: Results) -> Headline:
    """Return the verdict on a study."""
    found = Headline(results.caution) if results.caution else _judge(results)
    found.points += failed(results)
    return found


def _judge(results: Results) -> Headline:
    """Judge the methods against the original, if the study has it."""
    racing = [group for group in results.values if group.method not in REFERENCES and not results.is_extra(group)]
    methods = [group for group in racing if recognised(results, group) is not None]
    original = results.reference("original")
    comparable = [group for group in methods if original and is_paired(results, group, original)]
    if not methods:
        found = Headline("No unlearning method of this study has a result yet.")
    elif original is None or not comparable:
        found = _without_original(results, methods)
    else:
        found = _against_original(results, comparable, original)
        found.points += unpaired(results, [group for group in methods if group not in comparable])
    found.points += retraining(results, methods, found.winner) + cost(results, found.winner)
    return found


def _without_original(results: Results, methods: list[Group]) -> Headline:
    best = min(methods, key=lambda group: order(results, group))
    headline = (
        f"{results.label(best)} recognises the fewest forget samples ({percent(recognised(results, best))}); "
        "its loss on data to keep is unknown, because the original model is not part of this study"
    )
    headline += "." if results.reference("original") is None else " with a seed that the method has."
    return Headline(headline, named=(best,))


def _against_original(results: Results, methods: list[Group], original: Group) -> Headline:
    before = recognised(results, original)
    if before is not None and before <= FORGOTTEN + SAME:  # by the report's own definition, the original forgets
        words = f"The original does not recognise the forget data ({percent(before)}), so there is nothing to forget"
        return Headline(f"{words} here.", losing(results, methods, original))
    found = _race(_Race(results, methods, original))
    others = [group for group in methods if group != found.winner]
    if found.winner is not None:
        found.points += kept(results, found.winner, original)
    found.points += losing(results, others, original, forgetting=True) + keeping(results, others, original)
    return found


@dataclass
class _Race:
    """The methods of a study: what each still recognises, and what it loses on data to keep."""

    results: Results
    methods: list[Group]
    original: Group
    left: dict[Group, float] = field(init=False)
    loss: dict[Group, float] = field(init=False)

    def __post_init__(self) -> None:
        self.left = left_by(self.results, self.methods)
        self.loss = {group: lost(self.results, group, self.original) for group in self.methods}

    @property
    def forgetting(self) -> list[Group]:
        """The methods that forget."""
        return [group for group in self.methods if self.left[group] <= FORGOTTEN + SAME]

    @property
    def keeping(self) -> list[Group]:
        """The methods that keep."""
        return [group for group in self.methods if self.loss[group] <= KEPT + SAME]

    @property
    def alone(self) -> bool:
        """Whether there is only one method."""
        return len(self.methods) == 1

    @property
    def before(self) -> str:
        """What the original recognises, in brackets."""
        return f"(before: {percent(recognised(self.results, self.original))})"

    def most_forgotten(self, groups: Iterable[Group]) -> Group | None:
        """Return the method that forgets most."""
        return min(groups, key=lambda group: order(self.results, group), default=None)

    def cheapest(self, groups: Iterable[Group]) -> Group:
        """Return the method that loses least."""
        return min(groups, key=lambda group: self.loss[group])

    def still(self, group: Group) -> str:
        """Return the share of forget samples that a method still recognises."""
        return percent(self.left[group])


def _race(race: _Race) -> Headline:
    """Name the best method that forgets and keeps; else the cheapest that forgets, and the best that keeps."""
    both = race.most_forgotten(group for group in race.forgetting if group in race.keeping)
    keeper = race.most_forgotten(race.keeping)
    if both:
        found = _forgets_and_keeps(race, both)
    elif race.forgetting:
        found = _forgets_at_a_price(race, race.cheapest(race.forgetting), keeper)
    elif keeper:
        found = _keeps_only(race, keeper)
    else:
        found = _does_neither(race, race.cheapest(race.methods))
    before = recognised(race.results, race.original)
    if found.winner is not None and hardly(race.left[found.winner], before):  # a method that hardly forgot is no winner
        found.winner = None
    return found


def _forgets_and_keeps(race: _Race, best: Group) -> Headline:
    split = judged(race.results, best, race.original)[0].split
    headline = (
        f"{race.results.label(best)} forgets and keeps: {race.still(best)} of the forget samples are still recognised "
        f"{race.before}, and {split} adjacent and remote accuracy lose at most 2 points against the original's on "
        "average."
    )
    return Headline(headline, winner=best, named=(best,))


def _forgets_at_a_price(race: _Race, cheapest: Group, keeper: Group | None) -> Headline:
    headline = (
        f"{'' if race.alone else 'No method forgets and keeps: '}{race.results.label(cheapest)} forgets and loses "
        f"{price(race.results, cheapest, race.original)}, with {race.still(cheapest)} of the forget samples still "
        f"recognised {race.before}"
    )
    headline += f"; {race.results.label(keeper)} keeps and still recognises {race.still(keeper)}." if keeper else "."
    winner = cheapest if race.loss[cheapest] <= COLLAPSE + SAME else keeper
    return Headline(headline, winner=winner, named=(cheapest, keeper) if keeper else (cheapest,))


def _keeps_only(race: _Race, keeper: Group) -> Headline:
    name = race.results.label(keeper)
    who = f"No method forgets: of those that keep, {name} comes nearest and"
    if race.alone:
        who = f"{name} keeps but does not forget: it"
    headline = f"{who} still recognises {race.still(keeper)} of the forget samples {race.before}."
    return Headline(headline, winner=keeper, named=(keeper,))


def _does_neither(race: _Race, gentlest: Group) -> Headline:
    name = race.results.label(gentlest)
    who = f"No method forgets, and none keeps: the gentlest, {name},"
    if race.alone:
        who = f"{name} neither forgets nor keeps: it"
    loses = price(race.results, gentlest, race.original)
    headline = f"{who} loses {loses} and still recognises {race.still(gentlest)} of the forget samples {race.before}."
    return Headline(headline, named=(gentlest,))
