"""The figures of a study, as PNG and SVG: trade-off, membership, losses, learning dynamics, cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unweave.lab.report.drawing import LINES, cumulative, new_figure, note, panels, picture, style
from unweave.lab.report.dynamics_figure import dynamics
from unweave.lab.report.grids import attack_places
from unweave.lab.report.looks import GREY, INK, Appearance, looks
from unweave.lab.report.measures import ARROWS, COSTS, SPLITS, Place, Spread, title, unit
from unweave.lab.report.results import Group, Results
from unweave.lab.report.stage_figures import last_stage, losses_by_stage

SCALES = {"%": 100.0, "MiB": 1 / 2**20}


def draw_figures(results: Results, folder: Path) -> list[Path]:
    """Draw every figure that the study has data for, each as PNG and SVG. Return the files."""
    plans: dict[str, Callable[[Results], Figure | None]] = {
        "trade-off": trade_off,
        "membership": membership,
        "loss-distributions": losses,
        "forget-losses-by-stage": losses_by_stage,
        "learning-dynamics": dynamics,
        "last-stage": last_stage,
        "cost": cost,
    }
    files = []
    with mpl.rc_context(style()):  # type: ignore[arg-type]  # its keys are a literal of every setting
        for name, draw in plans.items():
            figure = draw(results)
            if figure is None:
                continue
            for suffix in (".png", ".svg"):
                files.append(folder / f"{name}{suffix}")
                files[-1].write_bytes(picture(figure, suffix))
    return files


def trade_off(results: Results) -> Figure | None:
    """Draw forget accuracy against adjacent accuracy: mean, spread and seeds of every method."""
    splits = [split for split in SPLITS if Place(split, "forget", "accuracy") in results.places()]
    groups = [group for group in results.groups if group in results.values and not results.is_extra(group)]
    if not splits:
        return None
    figure = new_figure(4.4 * len(splits) + 1.6, 4.4)
    axes = figure.subplots(1, len(splits), sharex=True, sharey=True, squeeze=False)[0]
    shown = looks(groups)
    for axis, split in zip(axes, splits, strict=True):
        for group in groups:
            _point(axis, results, group, split, shown[group])
        axis.set_title(f"{split} data")
        axis.set_xlabel("forget accuracy in %  (← better)")
        axis.text(0.02, 0.02, "↖ better: up and left", transform=axis.transAxes, color=GREY)
    axes[0].set_ylabel("adjacent accuracy in %  (better →)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    return figure


def _point(axis: Axes, results: Results, group: Group, split: str, look: Appearance) -> None:
    horizontal, vertical = Place(split, "forget", "accuracy"), Place(split, "adjacent", "accuracy")
    across, up = results.spread(group, horizontal), results.spread(group, vertical)
    if across is None or up is None:
        return
    seeds = results.values[group][horizontal].keys() & results.values[group][vertical].keys()
    dots = [
        (results.values[group][horizontal][seed].value, results.values[group][vertical][seed].value) for seed in seeds
    ]
    axis.plot([100 * x for x, _ in dots], [100 * y for _, y in dots], ".", color=look.colour, markersize=4, alpha=0.5)
    axis.errorbar(
        100 * across.mean,
        100 * up.mean,
        xerr=_within(across),
        yerr=_within(up),
        fmt=look.marker,
        color=look.colour,
        markerfacecolor="white" if look.hollow else look.colour,
        markersize=8,
        elinewidth=0.8,
        label=results.label(group),
    )


def _within(spread: Spread) -> list[list[float]] | None:
    """Return the lengths of an error bar in points, cut at accuracies of 0 and 100%."""
    if spread.deviation is None:
        return None
    return [[100 * min(spread.deviation, spread.mean)], [100 * min(spread.deviation, 1 - spread.mean)]]


def membership(results: Results) -> Figure | None:
    """Draw the results of membership attacks on the forget data, with those of a retrained model."""
    places = [place for place in attack_places(results) if place.subset == "forget"][:4]
    return _bars(results, places) if places else None


def cost(results: Results) -> Figure | None:
    """Draw time, memory and work of every method."""
    places = [Place("", "", name) for name in COSTS if Place("", "", name) in results.places()]
    return _bars(results, places[:3]) if places else None


def _bars(results: Results, places: Sequence[Place]) -> Figure:
    """Draw one panel per place and one bar per group, with its spread. A dashed line marks retraining."""
    groups = [group for group in reversed(results.groups) if group in results.values and not results.is_extra(group)]
    figure = new_figure(1.4 + 2.7 * len(places), 0.9 + 0.27 * len(groups))
    axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axis, place in zip(axes, places, strict=True):
        _bar_panel(axis, results, groups, place)
    axes[0].set_yticks(range(len(groups)), [results.label(group) for group in groups])
    return figure


def _bar_panel(axis: Axes, results: Results, groups: Sequence[Group], place: Place) -> None:
    kind = unit(place.metric)
    scale = SCALES.get(kind, 1.0)
    spreads = [results.spread(group, place) or Spread(0, None, 0) for group in groups]
    axis.barh(
        range(len(groups)),
        [scale * spread.mean for spread in spreads],
        xerr=[scale * (spread.deviation or 0) for spread in spreads],
        color=["#9aa3ab" if group.is_reference else "#0072b2" for group in groups],
        error_kw={"elinewidth": 0.8, "ecolor": INK},
        height=0.68,
    )
    retrained = results.mean(results.reference("retrain"), place)
    if retrained is not None:
        axis.axvline(scale * retrained, color=INK, linestyle="--", linewidth=0.8)
    arrow = ARROWS[results.direction(place)]
    goal = "→ dashed line: retraining" if arrow == "→" else f"{arrow} better; dashed: retraining"
    axis.set_title(title(place.metric), fontsize=9)
    axis.set_xlabel(f"{kind if kind not in ('', 'count') else 'value'}  ({goal})", fontsize=8)
    axis.grid(visible=False, axis="y")


def losses(results: Results) -> Figure | None:
    """Draw the distribution of the forget losses after each method, one line per seed.

    The shares are cumulative, because the histograms of two runs have different bins.
    """
    groups = [group for group in results.groups if _forget_losses(results, group) and not results.is_extra(group)]
    if not groups:
        return None
    figure, axes = panels(len(groups), share=True)
    retrain = results.reference("retrain")
    for axis, group in zip(axes, groups, strict=False):
        for shown, colour in ((retrain, "#b5b5b5"), (group, LINES["forget"])):
            for histogram in _forget_losses(results, shown) if shown else []:
                axis.plot(histogram["edges"], cumulative(histogram["counts"]), color=colour, linewidth=1.1)
        axis.set_title(results.label(group))
    axes[0].set_xscale("symlog", linthresh=1)  # some methods raise losses to hundreds
    axes[0].set_xticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    axes[0].set_xlim(left=0)
    words = "loss of a training forget sample (linear to 1, then logarithmic); grey: retraining"
    figure.supxlabel(note(words, len(groups)), fontsize=9)
    figure.supylabel("% of the forget samples with at most this loss", fontsize=9)
    return figure


def _forget_losses(results: Results, group: Group) -> list[dict[str, list[float]]]:
    found = results.distributions.get(group, {}).values()
    return [entry["train"]["forget"] for entry in found if "forget" in entry.get("train", {})]
