"""The verdict on a study in words, computed from its numbers: a headline, what to do, and points.

`standings` judges every method once. Everything said here follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from unweave.lab.report.measures import SECONDS
from unweave.lab.report.results import REFERENCES, Group, Results
from unweave.lab.report.standings import Standing, standings, those
from unweave.lab.report.verdict_numbers import (
    FORGOTTEN,
    SAME,
    is_paired,
    order,
    percent,
    recognised,
)
from unweave.lab.report.verdict_points import Points, cost, failed, grouped, kept, retraining, unpaired

TUNE = "retrain, or choose its settings on your data (`unweave tune`)"


@dataclass
class Headline:
    """The verdict on a study.

    Attributes:
        title: The verdict in a few words.
        rest: The numbers behind it.
        advice: What to do.
        points: Further points, with a name each.
        winner: The method that the points describe.
        named: The methods in the title and the rest.
        standings: The verdict on each method, the best first.
    """

    title: str
    rest: str = ""
    advice: str = ""
    points: Points = field(default_factory=list)
    winner: Group | None = None
    named: tuple[Group, ...] = ()
    standings: Sequence[Standing] = ()

    @property
    def headline(self) -> str:
        """Title and rest in one sentence."""
        return f"{self.title}: {self.rest}" if self.rest else self.title

    def text(self) -> str:
        """Return everything as plain text."""
        advice = [f"What to do: {self.advice}"] if self.advice else []
        return "\n".join([self.headline, *advice, *(f"{name}: {words}" for name, words in self.points)])


def verdict(results: Results) -> Headline:
    """Return the verdict on a study."""
    if results.caution:
        title, _, rest = results.caution.partition(": ")
        found = Headline(title, rest, "Run the study without --small.")
    else:
        found = _judge(results)
    found.points += failed(results)
    return found


def _judge(results: Results) -> Headline:
    """Judge the methods against the original, if the study has it."""
    racing = [group for group in results.values if group.method not in REFERENCES and not results.is_extra(group)]
    methods = [group for group in racing if recognised(results, group) is not None]
    original = results.reference("original")
    comparable = [group for group in methods if original and is_paired(results, group, original)]
    if not methods:
        advice = "Run the command of the study again. It resumes."
        found = Headline("No unlearning method of this study has a result yet.", advice=advice)
    elif original is None or not comparable:
        found = _without_original(results, methods)
    else:
        found = _against_original(results, comparable, original)
        found.points += unpaired(results, [group for group in methods if group not in comparable])
    found.points += retraining(results, methods, found.winner) + cost(results, found.winner)
    return found


def _without_original(results: Results, methods: list[Group]) -> Headline:
    best = min(methods, key=lambda group: order(results, group))
    rest = (
        f"{results.label(best)} recognises the fewest forget samples ({percent(recognised(results, best))}), but its "
        "loss on data to keep is unknown, because the original model is not part of this study"
    )
    rest += "." if results.reference("original") is None else " with a seed that the method has."
    return Headline("No verdict", rest, "Add the method `original` to the study, with the same seeds.", named=(best,))


def _against_original(results: Results, methods: list[Group], original: Group) -> Headline:
    found, before = standings(results, methods, original), recognised(results, original)
    if before is not None and before <= FORGOTTEN + SAME:  # by the report's own definition, the original forgets
        rest = f"the original does not recognise the forget data ({percent(before)})."
        advice = "Check which samples are to be forgotten, and whether the original was trained long enough."
        ruined = those(found, lambda one: not one.keeps)
        return Headline("There is nothing to forget here", rest, advice, grouped(results, ruined))
    said = _race(_Race(results, found, original))
    said.standings = found
    if said.winner is not None:
        said.points += kept(results, said.winner, original)
    said.points += grouped(results, those(found, lambda one: one.group != said.winner))
    return said


@dataclass
class _Race:
    """The standings of a study, and what the headline says with them."""

    results: Results
    standings: Sequence[Standing]
    original: Group

    @property
    def alone(self) -> bool:
        """Whether there is only one method."""
        return len(self.standings) == 1

    @property
    def before(self) -> str:
        """What the original recognises, in brackets."""
        return f"(before: {percent(self.standings[0].before)})"

    def name(self, one: Standing) -> str:
        """Return the name of a method in this study."""
        return self.results.label(one.group)


def _race(race: _Race) -> Headline:
    """Name the best method that forgets and keeps; else the cheapest that forgets, and the best that keeps."""
    forgetting, keeping = those(race.standings, lambda s: s.forgets), those(race.standings, lambda s: s.keeps)
    keeper = _most_forgotten(keeping)
    both = _most_forgotten(one for one in forgetting if one.keeps)
    if both:
        found = _forgets_and_keeps(race, both)
    elif forgetting:
        found = _forgets_at_a_price(race, _cheapest(forgetting), keeper)
    elif keeper:
        found = _keeps_only(race, keeper)
    else:
        found = _does_neither(race, _cheapest(race.standings))
    if any(one.group == found.winner and one.hardly for one in race.standings):  # who hardly forgot is no winner
        found.winner = None
    return found


def _most_forgotten(found: Iterable[Standing]) -> Standing | None:
    return min(found, key=lambda one: one.order, default=None)


def _cheapest(found: Iterable[Standing]) -> Standing:
    return min(found, key=lambda one: one.loss)


def _forgets_and_keeps(race: _Race, best: Standing) -> Headline:
    name = race.name(best)
    rest = (
        f"{best.still} of the forget samples are still recognised {race.before}, and {best.worst.split} adjacent and "
        "remote accuracy lose at most 2 points against the original's on average."
    )
    advice = f"Use {name}."
    if best.beyond:
        rest += f" In {best.beyond} of {best.seeds} seeds one of them loses more."
        advice = f"Use {name}, and measure the model that you get: seeds differ."
    mine, theirs = race.results.mean(best.group, SECONDS), race.results.mean(race.results.reference("retrain"), SECONDS)
    if mine and theirs and theirs < mine:
        advice += " Or retrain: here that takes less time, and no trace of the forget data can remain."
    return Headline(f"{name} forgets and keeps", rest, advice, winner=best.group, named=(best.group,))


def _forgets_at_a_price(race: _Race, cheapest: Standing, keeper: Standing | None) -> Headline:
    name, ruins = race.name(cheapest), cheapest.keeping == "collapses"
    still = f"with {cheapest.still} of the forget samples still recognised {race.before}"
    title = f"{name} {cheapest.words}" if race.alone else "No method forgets and keeps"
    rest = f"{'it' if race.alone else f'{name} forgets and'} loses {cheapest.price}, {still}"
    rest += f"; {race.name(keeper)} keeps and still recognises {keeper.still}." if keeper else "."
    advice = (
        f"Use none of these as they are: {TUNE}." if ruins else f"Use {name} if you can bear this loss. If not, {TUNE}."
    )
    best = keeper if ruins else cheapest
    named = (cheapest.group, keeper.group) if keeper else (cheapest.group,)
    return Headline(title, rest, advice, winner=best.group if best else None, named=named)


def _keeps_only(race: _Race, keeper: Standing) -> Headline:
    name = race.name(keeper)
    title, who = "No method forgets", f"of those that keep, {name} comes nearest and"
    if race.alone:
        title, who = f"{name} keeps but does not forget", "it"
    rest = f"{who} still recognises {keeper.still} of the forget samples {race.before}."
    advice = f"Too much is still recognised: {TUNE}."
    return Headline(title, rest, advice, winner=keeper.group, named=(keeper.group,))


def _does_neither(race: _Race, gentlest: Standing) -> Headline:
    name = race.name(gentlest)
    title, who = "No method forgets, and none keeps", f"the gentlest, {name},"
    if race.alone:
        title, who = f"{name} neither forgets nor keeps", "it"
    rest = f"{who} loses {gentlest.price} and still recognises {gentlest.still} of the forget samples {race.before}."
    return Headline(title, rest, f"Use none of these: {TUNE}.", named=(gentlest.group,))
