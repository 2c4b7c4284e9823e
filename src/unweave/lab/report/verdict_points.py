"""The points of a verdict: what was kept and lost, what was forgotten in part, the distance to retraining, the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from unweave.lab.report.measures import SECONDS
from unweave.lab.report.results import Group, Results
from unweave.lab.report.verdict_numbers import (
    COLLAPSE,
    FORGOTTEN,
    KEPT,
    KEPT_PLACES,
    SAME,
    distance,
    hardly,
    left_by,
    listed,
    lost,
    lost_in,
    names_of,
    paired,
    percent,
    points,
    price,
    recognised,
)

Points = list[tuple[str, str]]  # a name, and a sentence


def kept(results: Results, winner: Group, original: Group) -> Points:
    """Say which accuracies the winner keeps, and in how many seeds it loses more than the limit."""
    pairs = {place: paired(results, winner, original, place) for place in KEPT_PLACES}
    parts = [
        f"{place.words} {percent(fmean(now))} (original {percent(fmean(before))})"
        for place, (now, before) in pairs.items()
        if now
    ]
    words = f"{results.label(winner)} has {', '.join(parts)}."
    beyond = [seed for seed in results.seeds_of(winner) if lost_in(results, winner, original, seed) > KEPT + SAME]
    if beyond:
        words += f" In {len(beyond)} of {len(results.seeds_of(winner))} seeds it loses more than 2 points "
        words += "against the original of that seed."
    return [("Kept", words)]


def losing(results: Results, methods: Sequence[Group], original: Group, *, forgetting: bool = False) -> Points:
    """Name the methods that collapse and those that pay; with ``forgetting``, list the payers that forget apart."""
    loss = {group: lost(results, group, original) for group in methods}
    paying = [group for group in methods if KEPT + SAME < loss[group] <= COLLAPSE + SAME]
    worth = [group for group in paying if forgetting and (recognised(results, group) or 0.0) <= FORGOTTEN + SAME]
    rest = [group for group in paying if group not in worth]
    found = _collapsed(results, loss)
    if worth:
        words = listed(f"{results.label(group)} loses {price(results, group, original)}" for group in worth)
        found.append(("Forgot at a price", f"{words}."))
    if rest:
        words = f"{names_of(results, rest)}: 2 to 10 points of adjacent or remote accuracy lost."
        found.append(("Paid with kept data", words))
    return found


def _collapsed(results: Results, loss: Mapping[Group, float]) -> Points:
    groups = [group for group, value in loss.items() if value > COLLAPSE + SAME]
    if not groups:
        return []
    worst, verb = max(groups, key=lambda group: loss[group]), "loses" if len(groups) == 1 else "lose"
    words = f"{names_of(results, groups)} {verb} more than 10 points of accuracy on data to keep; "
    return [("Collapsed", f"{words}{results.label(worst)} loses {points(loss[worst])}.")]


def keeping(results: Results, methods: Sequence[Group], original: Group) -> Points:
    """Name the methods that keep, sorted by how much they forget."""
    before, left = recognised(results, original), left_by(results, methods)
    kept = [group for group in methods if lost(results, group, original) <= KEPT + SAME]
    idle = [group for group in kept if hardly(left[group], before)]
    too = [group for group in kept if left[group] <= FORGOTTEN + SAME]
    partly = [group for group in kept if group not in (*idle, *too)]

    def still(groups: Sequence[Group]) -> str:
        return listed(f"{results.label(group)} ({percent(left[group])})" for group in groups)

    found: Points = []
    if too:
        found.append(("Forgot and kept too", f"{still(too)}."))
    if partly:
        verb = "keeps" if len(partly) == 1 else "keep"
        found.append(("Forgot in part", f"{still(partly)} {verb}, with more than 5% still recognised."))
    if idle:
        words = f"{names_of(results, idle)}: more than half of the forget samples recognised before still are."
        found.append(("Hardly forgot", words))
    return found


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
