"""What the study says, in words, computed from its numbers.

A method *collapses* if any accuracy on data to keep falls by more than ten points. It *keeps* the neighbours if it does
not, and its adjacent accuracy is within two points of the original's, on training and on test data. Everything else
lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from unweave.report.measures import SECONDS, SPLITS, SUBSETS, Place
from unweave.report.results import Group, Results
from unweave.split import RETAINED

KEPT = 0.02
COLLAPSE = 0.10  # as in the evaluation's goals
FORGOTTEN = 0.05  # of the forget samples still recognised, up to which one may speak of forgetting
SAME = 1e-9  # differences of fractions carry rounding errors: 0.98 − 0.96 is a little more than 0.02
ACCURACIES = tuple(Place(split, subset, "accuracy") for split in SPLITS for subset in SUBSETS)


@dataclass
class Verdict:
    """A headline, and points that each have a name."""

    headline: str
    points: list[tuple[str, str]] = field(default_factory=list)
    winner: Group | None = None

    def text(self) -> str:
        """Return everything as plain text."""
        return "\n".join([self.headline, *(f"{name}: {words}" for name, words in self.points)])


def verdict(results: Results) -> Verdict:
    """Return the verdict on a study."""
    racing = [group for group in results.values if not group.is_reference and not results.is_extra(group)]
    methods = [group for group in racing if _forget(results, group) is not None]
    original = results.reference("original")
    if not methods:
        found = Verdict("No unlearning method of this study has a result yet.")
    elif original is None:
        found = _without_original(results, methods)
    else:
        found = _against_original(results, methods, original)
    found.points += _retraining(results, methods, found.winner) + _cost(results, found.winner)
    if results.failures:
        names = {f"{results.label(cell.group)} seed {cell.seed}" for cell in results.failures}
        found.points.append(("Failed", f"{_count(len(names), 'cell')} failed, missing above: {_list(names)}."))
    return found


def _against_original(results: Results, methods: list[Group], original: Group) -> Verdict:
    def drop(group: Group, *subsets: str) -> float:
        return lost(results, group, original, subsets)

    keeping = [g for g in methods if drop(g, "adjacent") <= KEPT + SAME and drop(g, *RETAINED) <= COLLAPSE + SAME]

    def gentlest(among: list[Group]) -> tuple[Group, str, str]:
        """Return who loses least, of which subset it loses most, and how much that is."""
        found = min(among, key=lambda group: drop(group, *RETAINED))
        worst = max(RETAINED, key=lambda subset: drop(found, subset))
        return found, worst, f"{_points(drop(found, worst))} of {worst} accuracy"

    before = _percent(_forget(results, original))
    if not keeping:
        least, worst, loss = gentlest(methods)
        name, what = results.label(least), "the neighbours" if worst == "adjacent" else "the rest"
        who = f"{name} does not keep {what}: it"
        if len(methods) > 1:
            who = f"No method keeps {what}: the gentlest, {name},"
        still = _percent(_forget(results, least))
        headline = f"{who} loses {loss} and still recognises {still} of the forget samples."
        return Verdict(headline, _groups_of_loss(results, methods, original))
    winner = min(keeping, key=lambda group: _order(results, group))
    left = _forget(results, winner) or 0.0
    name, still = results.label(winner), _percent(left)
    forgetting = [group for group in methods if (_forget(results, group) or 0.0) <= FORGOTTEN]
    if left <= FORGOTTEN:
        headline = f"{name} forgets and keeps: {still} of the forget samples are still recognised (before: {before}), "
        headline += "and their neighbours stay within 2 points of the original on average."
    elif forgetting:
        other, _, loss = gentlest(forgetting)
        headline = f"No method forgets and keeps: {results.label(other)} forgets and loses {loss}, with "
        headline += f"{_percent(_forget(results, other))} of the forget samples recognised (before: {before}); "
        headline += f"{name} keeps the neighbours and still recognises {still}."
    else:
        headline = f"No method that keeps the neighbours forgets fully: {name} comes nearest and still recognises "
        headline += f"{still} of the forget samples (before: {before})."
    if left > max(FORGOTTEN, (_forget(results, original) or 0.0) / 2):  # who hardly forgot has won nothing
        return Verdict(headline, _groups_of_loss(results, methods, original))
    others = [group for group in methods if group != winner]
    return Verdict(headline, [_kept(results, winner, original), *_groups_of_loss(results, others, original)], winner)


def _without_original(results: Results, methods: list[Group]) -> Verdict:
    best = min(methods, key=lambda group: _order(results, group))
    headline = (
        f"{results.label(best)} recognises the fewest forget samples ({_percent(_forget(results, best))}); "
        "what it cost the neighbours cannot be said, because the original model is not part of this study."
    )
    return Verdict(headline)


def _kept(results: Results, winner: Group, original: Group) -> tuple[str, str]:
    parts = []
    for place in ACCURACIES:
        now, before = results.mean(winner, place), results.mean(original, place)
        if place.subset != "forget" and now is not None and before is not None:
            parts.append(f"{place.words} {_percent(now)} (original {_percent(before)})")
    words = f"{results.label(winner)} has {', '.join(parts)}."
    beyond = [seed for seed in results.seeds_of(winner) if _lost_in(results, winner, original, seed) > KEPT + SAME]
    if beyond:
        words += f" Beyond 2 points of its own original in {len(beyond)} of {len(results.seeds_of(winner))} seeds."
    return ("Kept", words)


def _lost_in(results: Results, group: Group, original: Group, seed: int) -> float:
    """Return the largest loss of adjacent accuracy of one seed, against the original of the same seed."""
    losses = [0.0]
    for split in SPLITS:
        place = Place(split, "adjacent", "accuracy")
        now, before = (results.values[one].get(place, {}).get(seed) for one in (group, original))
        if now is not None and before is not None:
            losses.append(before.value - now.value)
    return max(losses)


def _groups_of_loss(results: Results, methods: list[Group], original: Group) -> list[tuple[str, str]]:
    """Sort the methods into those that collapse, those that pay with neighbours, and those that hardly forget."""

    def names(test: Callable[[Group], bool]) -> list[str]:
        return [results.label(group) for group in methods if test(group)]

    def everything(group: Group) -> float:
        return lost(results, group, original, RETAINED)

    def neighbours(group: Group) -> float:
        return lost(results, group, original, ("adjacent",))

    before = _forget(results, original) or 0.0
    collapsed = names(lambda group: everything(group) > COLLAPSE + SAME)
    paying = names(lambda group: neighbours(group) > KEPT + SAME and everything(group) <= COLLAPSE + SAME)
    idle = names(lambda group: neighbours(group) <= KEPT + SAME and (_forget(results, group) or 0.0) > before / 2)
    kept = [
        group
        for group in methods
        if neighbours(group) <= KEPT + SAME and results.label(group) not in (*idle, *collapsed)
    ]

    def still(groups: Iterable[Group]) -> list[str]:
        return [f"{results.label(group)} ({_percent(_forget(results, group))})" for group in groups]

    too = still(group for group in kept if (_forget(results, group) or 0.0) <= FORGOTTEN)
    partly = still(group for group in kept if (_forget(results, group) or 0.0) > FORGOTTEN)
    points = []
    if collapsed:
        worst = max(methods, key=everything)
        words = (
            f"{_list(collapsed)} lose more than 10 points of accuracy on data to keep"
            if len(collapsed) > 1
            else (f"{collapsed[0]} loses more than 10 points of accuracy on data to keep")
        )
        points.append(("Collapsed", f"{words}; {results.label(worst)} loses {_points(everything(worst))}."))
    if paying:
        points.append(("Paid with neighbours", f"{_list(paying)}: 2 to 10 points of adjacent accuracy lost."))
    if too:
        points.append(("Forgot and kept too", f"{_list(too)}."))
    if partly:
        points.append(("Forgot in part", f"{_list(partly)} keep the neighbours too, with more still recognised."))
    if idle:
        points.append(("Hardly forgot", f"{_list(idle)}: more than half of what was recognised before still is."))
    return points


def _retraining(results: Results, methods: list[Group], winner: Group | None) -> list[tuple[str, str]]:
    retrain = results.reference("retrain")
    if retrain is None or not methods:
        return [("Against retraining", "not measured: this study holds no retrained model.")] if methods else []
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


def lost(results: Results, group: Group, original: Group, subsets: Iterable[str]) -> float:
    """Return the largest loss of mean accuracy against the original, over training and test data."""
    losses = [0.0]
    for subset in subsets:
        for split in SPLITS:
            place = Place(split, subset, "accuracy")
            now, before = results.mean(group, place), results.mean(original, place)
            if now is not None and before is not None:
                losses.append(before - now)
    return max(losses)


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


def _list(names: Iterable[str]) -> str:
    """Join names as in a sentence.

    >>> _list(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
