"""The points of a verdict: what was kept and lost, what was forgotten in part, the distance to retraining, the cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from unweave.lab.report.measures import SECONDS
from unweave.lab.report.results import Group, Results
from unweave.lab.report.standings import Standing, those
from unweave.lab.report.verdict_numbers import (
    KEPT_PLACES,
    distance,
    listed,
    names_of,
    paired,
    percent,
    points,
    recognised,
)

Points = list[tuple[str, str]]  # a name, and a sentence


def kept(results: Results, winner: Group, original: Group) -> Points:
    """Say which accuracies the winner has on data to keep, beside the original's."""
    pairs = {place: paired(results, winner, original, place) for place in KEPT_PLACES}
    parts = [
        f"{place.words} {percent(fmean(now))} (original {percent(fmean(before))})"
        for place, (now, before) in pairs.items()
        if now
    ]
    return [("Accuracy on kept data", f"{results.label(winner)} has {', '.join(parts)}.")]


def grouped(results: Results, found: Sequence[Standing]) -> Points:
    """Name every method in exactly one point, by what it did."""
    groups = {
        "Collapsed": _collapsed(results, those(found, lambda one: one.keeping == "collapses")),
        "Forgot at a price": _paid(results, those(found, lambda one: one.keeping == "pays" and one.forgets)),
        "Paid with kept data": _paid_for_little(
            results, those(found, lambda one: one.keeping == "pays" and not one.forgets)
        ),
        "Forgot and kept too": _both(results, those(found, lambda one: one.keeps and one.forgets)),
        "Forgot in part": _in_part(results, those(found, lambda one: one.keeps and not one.forgets and not one.hardly)),
        "Hardly forgot": _hardly(results, those(found, lambda one: one.keeps and one.hardly)),
    }
    return [(name, words) for name, words in groups.items() if words]


def _still(results: Results, found: Sequence[Standing]) -> str:
    return listed(f"{results.label(one.group)} ({one.still})" for one in found)


def _names(results: Results, found: Sequence[Standing]) -> str:
    return listed(results.label(one.group) for one in found)


def _collapsed(results: Results, found: Sequence[Standing]) -> str:
    if not found:
        return ""
    worst, verb = max(found, key=lambda one: one.loss), "loses" if len(found) == 1 else "lose"
    words = f"{_names(results, found)} {verb} more than 10 points of accuracy on data to keep; "
    return f"{words}{results.label(worst.group)} loses {points(worst.loss)}."


def _paid(results: Results, found: Sequence[Standing]) -> str:
    words = (f"{results.label(one.group)} loses {one.price}" for one in found)
    return f"{listed(words)}." if found else ""


def _paid_for_little(results: Results, found: Sequence[Standing]) -> str:
    lost = "2 to 10 points of adjacent or remote accuracy lost, with more than 5% still recognised"
    return f"{_names(results, found)}: {lost}." if found else ""


def _both(results: Results, found: Sequence[Standing]) -> str:
    return f"{_still(results, found)}." if found else ""


def _in_part(results: Results, found: Sequence[Standing]) -> str:
    verb = "keeps" if len(found) == 1 else "keep"
    return f"{_still(results, found)} {verb}, with more than 5% still recognised." if found else ""


def _hardly(results: Results, found: Sequence[Standing]) -> str:
    words = "more than half of the forget samples recognised before still are"
    return f"{_names(results, found)}: {words}." if found else ""


def unpaired(results: Results, methods: Sequence[Group]) -> Points:
    """Name the methods that have no seed in common with the original."""
    if not methods:
        return []
    words = f"{names_of(results, methods)}: no seed in common with the original, so the loss is unknown."
    return [("At what cost?", words)]


def retraining(results: Results, methods: Sequence[Group], winner: Group | None) -> Points:
    """Name the method that is nearest to retraining, and give the winner's distance."""
    retrain = results.reference("retrain")
    if not methods:
        return []
    if retrain is None:
        otherwise = any(group.method == "retrain" for group in results.values)
        why = "retrains with other settings only" if otherwise else "holds no retrained model"
        return [("Against retraining", f"not measured: this study {why}.")]
    nearest = min(methods, key=lambda group: distance(results, group, retrain))
    there = percent(recognised(results, retrain))
    words = (
        f"a model that never saw the forget samples recognises {there} of them. Nearest to it over all accuracies is "
        f"{results.label(nearest)}, {points(distance(results, nearest, retrain))} away on average"
    )
    if winner is not None and winner != nearest:
        words += f"; {results.label(winner)} is {points(distance(results, winner, retrain))} away"
    return [("Against retraining", f"{words}.")]


def cost(results: Results, winner: Group | None) -> Points:
    """Compare the winner's time with that of retraining."""
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


def failed(results: Results) -> Points:
    """Name the cells that failed."""
    if not results.failures:
        return []
    cells = {f"{results.label(cell.group)} seed {cell.seed}" for cell in results.failures}
    count = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
    return [("Failed", f"{count} failed and {'is' if len(cells) == 1 else 'are'} missing above: {listed(cells)}.")]
