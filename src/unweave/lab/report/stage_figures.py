"""Figures of the forget losses between the stages of a method, and of its last stage step by step (paper, figure 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unweave.lab.report.drawing import LINES, cumulative, new_figure, note, panels
from unweave.lab.report.looks import GREY, INK, PALETTE
from unweave.lab.report.results import Group, Results

SEEN = "forget_accuracy"  # logged by runs that are watched
CURVES = (("forget loss", ("watched_forget_loss",)), *((f"{s} accuracy in %", (f"{s}_accuracy",)) for s in LINES))


def losses_by_stage(results: Results) -> Figure | None:
    """Draw the forget losses before, between and after the stages with one seed, one panel per method."""
    groups = [group for group in results.groups if group in results.stages and not results.is_extra(group)]
    if not groups:
        return None
    figure, axes = panels(len(groups), share=True)
    for axis, group in zip(axes, groups, strict=False):
        for words, histogram, style in stage_histograms(results, group, results.seeds_of(group)[0]):
            axis.plot(histogram["edges"], cumulative(histogram["counts"]), label=words, linewidth=1.1, **style)
        axis.set_title(results.label(group))
        axis.legend(fontsize=6, frameon=False)
    axes[0].set_xscale("symlog", linthresh=1)
    axes[0].set_xticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    axes[0].set_xlim(left=0)
    words = "loss of a training forget sample (linear to 1, then logarithmic); one seed"
    figure.supxlabel(note(words, len(groups)), fontsize=9)
    figure.supylabel("% of the forget samples with at most this loss", fontsize=9)
    return figure


def stage_histograms(results: Results, group: Group, seed: int) -> list[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    """Return the forget losses of a run, stage by stage: a name, the histogram, and the line style."""
    found: list[tuple[str, Mapping[str, Any], dict[str, Any]]] = []
    original = results.reference("original")
    before = results.distributions.get(original, {}).get(seed, {}) if original else {}
    after = results.distributions.get(group, {}).get(seed, {})
    if "forget" in before.get("train", {}):
        found.append(("original", before["train"]["forget"], {"color": GREY, "linestyle": ":"}))
    for name, entry in results.stages.get(group, {}).get(seed, {}).items():
        if entry.get("loss_histogram"):
            found.append((f"after {name}", entry["loss_histogram"], {"color": LINES["adjacent"], "linestyle": "--"}))
    if "forget" in after.get("train", {}):
        found.append(("at the end", after["train"]["forget"], {"color": LINES["forget"]}))
    return found


def last_stage(results: Results) -> Figure | None:
    """Draw forget loss and accuracies over the last stage of every watched run: each seed, and the mean."""
    watched = {group: found for group, found in results.histories.items() if _is_watched(found)}
    groups = [group for group in results.groups if group in watched]
    if not groups:
        return None
    figure = new_figure(3.1 * len(CURVES) + 0.6, 2.9)
    colours = dict(zip(groups, cycle(PALETTE), strict=False))
    axes = figure.subplots(1, len(CURVES), squeeze=False)[0]
    for axis, (title, names) in zip(axes, CURVES, strict=True):
        for group in groups:
            _curve(axis, watched[group], names[0], results.label(group), colours[group])
            if title.endswith("%"):
                _curve(axis, watched[group], f"test_{names[0]}", "", colours[group], style="--")
        axis.set_title(title)
        axis.set_xlabel("step of the last stage", fontsize=8)
        axis.set_ylim(bottom=0, top=102 if title.endswith("%") else None)
    axes[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("thick: mean over seeds; thin: each seed; dashed: test data", fontsize=8, color=INK)
    return figure


def _is_watched(found: Mapping[int, Sequence[Mapping[str, Any]]]) -> bool:
    return any(SEEN in row for rows in found.values() for row in rows)


def _curve(
    axis: Axes,
    found: Mapping[int, Sequence[Mapping[str, Any]]],
    name: str,
    label: str,
    colour: str,
    *,
    style: str = "-",
) -> None:
    """Draw one logged value over the last stage."""
    scale = 100 if name.endswith("accuracy") else 1
    by_step: dict[int, list[float]] = {}
    for rows in found.values():
        pairs = [(row["step"], scale * row[name]) for row in rows if row["phase"] == rows[-1]["phase"] and name in row]
        if pairs:
            axis.plot(*zip(*pairs, strict=True), style, color=colour, linewidth=0.5, alpha=0.5)
        for step, value in pairs:
            by_step.setdefault(step, []).append(value)
    if by_step:
        means = [fmean(values) for values in by_step.values()]
        axis.plot(list(by_step), means, style, color=colour, linewidth=1.5, label=label or None)
