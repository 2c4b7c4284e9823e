"""What the study says, in words, computed from its numbers.

A method *forgets* if it still recognises at most five percent of the forget samples. It *keeps* if adjacent and remote
accuracy lose at most two points against the original's, and *collapses* if one of them loses more than ten; in between
it pays. That is judged on test data, for which a model is kept, and on training data where there is no other. A method
is held against the original of the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from unweave.data import RETAINED
from unweave.lab.report.measures import SECONDS, SPLITS, SUBSETS, Place
from unweave.lab.report.results import REFERENCES, Group, Results

KEPT = 0.02
COLLAPSE = 0.10  # as in the evaluation's goals
FORGOTTEN = 0.05  # of the forget samples still recognised, up to which one may speak of forgetting
SAME = 1e-9  # differences of fractions carry rounding errors: 0.98 − 0.96 is a little more than 0.02
ACCURACIES = tuple(Place(split, subset, "accuracy") for split in SPLITS for subset in SUBSETS)
KEPT_PLACES = tuple(place for place in ACCURACIES if place.subset in RETAINED)


@dataclass
class Verdict:
    """A headline, and points that each have a name."""

    headline: str
    points: list[tuple[str, str]] = field(default_factory=list)
    winner: Group | None = None  # of whom the points tell most
    named: tuple[Group, ...] = ()  # in the headline

    def text(self) -> str:
        """Return everything as plain text."""
        return "\n".join([self.headline, *(f"{name}: {words}" for name, words in self.points)])


def verdict(results: Results) -> Verdict:
    """Return the verdict on a study."""
    racing = [group for group in results.values if group.method not in REFERENCES and not results.is_extra(group)]
    methods = [group for group in racing if _forget(results, group) is not None]
    original = results.reference("original")
    if results.caution:
        found = Verdict(results.caution)
    else:
        if not methods:
            found = Verdict("No unlearning method of this study has a result yet.")
        else:
            paired = [group for group in methods if original and _is_paired(results, group, original)]
            if original is None or not paired:
                found = _without_original(results, methods)
            else:
                found = _against_original(results, paired, original)
                found.points += _unpaired(results, [group for group in methods if group not in paired])
        found.points += _retraining(results, methods, found.winner) + _cost(results, found.winner)
    if results.failures:
        names = {f"{results.label(cell.group)} seed {cell.seed}" for cell in results.failures}
        found.points.append(("Failed", f"{_count(len(names), 'cell')} failed, missing above: {_list(names)}."))
    return found


def _against_original(results: Results, methods: list[Group], original: Group) -> Verdict:
    before = _forget(results, original)
    if before is not None and before <= FORGOTTEN + SAME:  # the original forgets, as this report uses the word
        words = f"The original does not recognise the forget data ({_percent(before)}), so there is nothing to forget"
        return Verdict(f"{words} here.", _losing(results, methods, original))
    found = _race(results, methods, original)
    others = [group for group in methods if group != found.winner]
    if found.winner is not None:
        found.points.append(_kept(results, found.winner, original))
    found.points += _losing(results, others, original, forgetting=True) + _keeping(results, others, original)
    return found


def _race(results: Results, methods: list[Group], original: Group) -> Verdict:
    """Say who forgets and keeps; else who forgets for the least, and who keeps and forgets most."""
    known = _forget(results, original)
    left = {group: _forget(results, group) or 0.0 for group in methods}
    loss = {group: lost(results, group, original) for group in methods}
    forgetting = [group for group in methods if left[group] <= FORGOTTEN + SAME]
    keeping = [group for group in methods if loss[group] <= KEPT + SAME]
    both = [group for group in forgetting if group in keeping]
    nearest = min(both or keeping, key=lambda group: _order(results, group), default=None)
    cheapest = min(forgetting or methods, key=lambda group: loss[group])
    winner, named = nearest, [nearest or cheapest]
    name, still = results.label(named[0]), _percent(left[named[0]])
    before, alone = f"(before: {_percent(known)})", len(methods) == 1
    if both:
        headline = f"{name} forgets and keeps: {still} of the forget samples are still recognised {before}, and "
        split = _judged(results, named[0], original)[0].split
        headline += f"{split} adjacent and remote accuracy lose at most 2 points against the original's on average."
    elif forgetting:
        other, price = results.label(cheapest), _price(results, cheapest, original)
        headline = f"{'' if alone else 'No method forgets and keeps: '}{other} forgets and loses {price}, with "
        headline += f"{_percent(left[cheapest])} of the forget samples still recognised {before}"
        headline += f"; {name} keeps and still recognises {still}." if nearest else "."
        named = [cheapest, nearest] if nearest else [cheapest]
        winner = cheapest if loss[cheapest] <= COLLAPSE + SAME else nearest
    elif nearest:
        who = f"{name} keeps but does not forget: it"
        if not alone:
            who = f"No method forgets: of those that keep, {name} comes nearest and"
        headline = f"{who} still recognises {still} of the forget samples {before}."
    else:
        who = f"{name} neither forgets nor keeps: it"
        if not alone:
            who = f"No method forgets, and none keeps: the gentlest, {name},"
        price = _price(results, cheapest, original)
        headline = f"{who} loses {price} and still recognises {still} of the forget samples {before}."
    if winner is not None and _hardly(left[winner], known):  # who hardly forgot has won nothing
        winner = None
    return Verdict(headline, winner=winner, named=tuple(named))


def _without_original(results: Results, methods: list[Group]) -> Verdict:
    best = min(methods, key=lambda group: _order(results, group))
    headline = (
        f"{results.label(best)} recognises the fewest forget samples ({_percent(_forget(results, best))}); "
        "what it cost the neighbours cannot be said, because the original model is not part of this study"
    )
    headline += "." if results.reference("original") is None else " with a seed that the method has."
    return Verdict(headline, named=(best,))


def _unpaired(results: Results, methods: list[Group]) -> list[tuple[str, str]]:
    """Name the methods that have no seed in common with the original."""
    if not methods:
        return []
    return [
        ("At what cost?", f"{_names(results, methods)}: no seed in common with the original, so it cannot be said.")
    ]


def _is_paired(results: Results, group: Group, original: Group) -> bool:
    return any(_paired(results, group, original, place)[0] for place in KEPT_PLACES)


def _kept(results: Results, winner: Group, original: Group) -> tuple[str, str]:
    pairs = {place: _paired(results, winner, original, place) for place in KEPT_PLACES}
    parts = [
        f"{place.words} {_percent(fmean(now))} (original {_percent(fmean(before))})"
        for place, (now, before) in pairs.items()
        if now
    ]
    words = f"{results.label(winner)} has {', '.join(parts)}."
    beyond = [seed for seed in results.seeds_of(winner) if _lost_in(results, winner, original, seed) > KEPT + SAME]
    if beyond:
        words += f" Beyond 2 points of its own original in {len(beyond)} of {len(results.seeds_of(winner))} seeds."
    return ("Kept", words)


def _lost_in(results: Results, group: Group, original: Group, seed: int) -> float:
    """Return the largest loss of accuracy on data to keep of one seed, against the original of the same seed."""
    losses = [0.0]
    for place in _judged(results, group, original):
        now, before = (results.value(one, place, seed) for one in (group, original))
        if now is not None and before is not None:
            losses.append(before - now)
    return max(losses)


def _losing(
    results: Results, methods: list[Group], original: Group, *, forgetting: bool = False
) -> list[tuple[str, str]]:
    """Name the methods that collapse, and those that pay; those that forget for it apart, if asked to."""
    loss = {group: lost(results, group, original) for group in methods}
    collapsed = [group for group in methods if loss[group] > COLLAPSE + SAME]
    paying = [group for group in methods if KEPT + SAME < loss[group] <= COLLAPSE + SAME]
    worth = [group for group in paying if forgetting and (_forget(results, group) or 0.0) <= FORGOTTEN + SAME]
    points = []
    if collapsed:
        worst = max(collapsed, key=lambda group: loss[group])
        words = f"{_names(results, collapsed)} {'loses' if len(collapsed) == 1 else 'lose'} more than 10 points of "
        words += f"accuracy on data to keep; {results.label(worst)} loses {_points(loss[worst])}."
        points.append(("Collapsed", words))
    if worth:
        words = _list(f"{results.label(group)} loses {_price(results, group, original)}" for group in worth)
        points.append(("Forgot at a price", f"{words}."))
    if rest := [group for group in paying if group not in worth]:
        words = f"{_names(results, rest)}: 2 to 10 points of adjacent or remote accuracy lost."
        points.append(("Paid with kept data", words))
    return points


def _keeping(results: Results, methods: list[Group], original: Group) -> list[tuple[str, str]]:
    """Name the methods that keep, by how much they forget."""
    before = _forget(results, original)
    left = {group: _forget(results, group) or 0.0 for group in methods}
    kept = [group for group in methods if lost(results, group, original) <= KEPT + SAME]
    idle = [group for group in kept if _hardly(left[group], before)]
    too = [group for group in kept if left[group] <= FORGOTTEN + SAME]
    partly = [group for group in kept if group not in (*idle, *too)]

    def still(groups: list[Group]) -> str:
        return _list(f"{results.label(group)} ({_percent(left[group])})" for group in groups)

    points = []
    if too:
        points.append(("Forgot and kept too", f"{still(too)}."))
    if partly:
        verb = "keeps" if len(partly) == 1 else "keep"
        points.append(("Forgot in part", f"{still(partly)} {verb}, with more still recognised."))
    if idle:
        words = f"{_names(results, idle)}: more than half of what was recognised before still is."
        points.append(("Hardly forgot", words))
    return points


def _hardly(left: float, before: float | None) -> bool:
    """Tell whether more than half of what was recognised before still is, where that is more than what is forgotten."""
    return left > max(FORGOTTEN, (before or 0.0) / 2) + SAME


def _retraining(results: Results, methods: list[Group], winner: Group | None) -> list[tuple[str, str]]:
    retrain = results.reference("retrain")
    if not methods:
        return []
    if retrain is None:
        otherwise = any(group.method == "retrain" for group in results.values)
        why = "retrains with other settings than its own only" if otherwise else "holds no retrained model"
        return [("Against retraining", f"not measured: this study {why}.")]
    nearest = min(methods, key=lambda group: distance(results, group, retrain))
    there = _percent(_forget(results, retrain))
    words = (
        f"a model that never saw the forget samples recognises {there} of them. Nearest to it over all accuracies is "
        f"{results.label(nearest)}, {_points(distance(results, nearest, retrain))} away on average"
    )
    if winner is not None and winner != nearest:
        words += f"; {results.label(winner)} is {_points(distance(results, winner, retrain))} away"
    return [("Against retraining", f"{words}.")]


def _cost(results: Results, winner: Group | None) -> list[tuple[str, str]]:
    mine, theirs = results.mean(winner, SECONDS), results.mean(results.reference("retrain"), SECONDS)
    if winner is None or mine is None:
        return []
    words = f"{results.label(winner)} takes {mine:.3g} s"
    if theirs and mine:
        ratio = theirs / mine
        if 0.95 <= ratio <= 1.05:
            words += ", about as long as retraining"
        elif ratio > 1:
            words += f", {ratio:.1f} times as fast as retraining"
        else:
            words += f", {1 / ratio:.1f} times as long as retraining"
        words += f" ({theirs:.3g} s)"
    return [("Cost", f"{words}. {results.sharing}".rstrip())]


def lost(results: Results, group: Group, original: Group) -> float:
    """Return the larger loss of accuracy on data to keep against the original, adjacent or remote."""
    return max(0.0, *_losses(results, group, original).values())


def _price(results: Results, group: Group, original: Group) -> str:
    """Say how much is lost where most is."""
    losses = _losses(results, group, original)
    worst = max(losses, key=lambda place: losses[place])
    return f"{_points(losses[worst])} of {worst.words} accuracy"


def _losses(results: Results, group: Group, original: Group) -> dict[Place, float]:
    pairs = {place: _paired(results, group, original, place) for place in _judged(results, group, original)}
    return {place: fmean(before) - fmean(now) if now else 0.0 for place, (now, before) in pairs.items()}


def _judged(results: Results, group: Group, original: Group) -> list[Place]:
    """Return where it is judged what a method keeps: on test data or, where there is none, on training data."""
    unseen = [place for place in KEPT_PLACES if place.split == "test"]
    seen = [place for place in KEPT_PLACES if place.split == "train"]
    return unseen if any(_paired(results, group, original, place)[0] for place in unseen) else seen


def _paired(results: Results, group: Group, original: Group, place: Place) -> tuple[list[float], list[float]]:
    """Return the values of both in the seeds that both have; an easy seed that one lacks would be taken for a loss."""
    ours, theirs = (results.values[one].get(place, {}) for one in (group, original))
    seeds = [seed for seed in ours if seed in theirs]
    return [ours[seed].value for seed in seeds], [theirs[seed].value for seed in seeds]


def distance(results: Results, group: Group, retrain: Group) -> float:
    """Return the mean absolute difference to the retrained model over the six accuracies."""
    pairs = [(results.mean(group, place), results.mean(retrain, place)) for place in ACCURACIES]
    gaps = [abs(mine - theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return sum(gaps) / len(gaps) if gaps else float("inf")


def _forget(results: Results, group: Group) -> float | None:
    train = results.mean(group, Place("train", "forget", "accuracy"))
    return results.mean(group, Place("test", "forget", "accuracy")) if train is None else train


def _order(results: Results, group: Group) -> tuple[float, float, float]:
    """Order by what is still recognised in training, then in test data, then by what is kept."""
    test = results.mean(group, Place("test", "forget", "accuracy"))
    adjacent = results.mean(group, Place("test", "adjacent", "accuracy"))
    return (_forget(results, group) or 0.0, test or 0.0, -(adjacent or 0.0))


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f}%"


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _names(results: Results, groups: Iterable[Group]) -> str:
    return _list(results.label(group) for group in groups)


def _list(names: Iterable[str]) -> str:
    """Join names as in a sentence.

    >>> _list(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
