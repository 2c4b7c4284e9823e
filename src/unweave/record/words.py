"""A record for a person to read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from unweave.data import EVERY, RETAINED
from unweave.errors import on_one_line, printable
from unweave.record import signing
from unweave.record.verify import check_content

WIDTH = 88


def describe(record: Mapping[str, Any]) -> str:
    """Return a record as text for a person."""
    config, times, split = record["configuration"], record["times"], record["split"]
    sizes = ", ".join(f"{split[subset]} {subset}" for subset in EVERY)
    lines = [
        *_wrap(f"Deletion record {on_one_line(record['request']['id'])}", indent=" " * 14),
        "",
        *_entry("request", record["request"]["text"] or "–"),
        *_entry("method", f"{config['method']}, profile {config['profile']}, seed {config['seed']}"),
        *_entry("time", f"{times['begun']} to {times['finished']}, {times['seconds']:.1f} s of unlearning"),
        *_entry("model before", record["model"]["before"]),
        *_entry("model after", record["model"]["after"]),
        *_entry("data", f"{split['samples']} samples: {sizes}"),
        *_entry("forget root", record["forget"]["root"]),
        *_entry("software", f"unweave {record['software']['unweave']} on {record['hardware']['device']}"),
        *_entry("previous", _previous(record)),
        "",
        *_accuracies(record),
        "",
        *_entry("certificate", record["certificate"]["words"]),
        *_entry("collapse", str(record["scores"].get("collapse") or "none")),
        "",
        "What this record does not say:",
        *(line for limit in record["stated_limits"] for line in _wrap(f"- {limit}", indent="  ")),
        "",
        *_entry("hash", f"{record['hash']} ({check_content(record).words.partition(' ')[0]})"),
        *_entry("signature", _signature(record)),
    ]
    return printable("\n".join(lines))


def _entry(name: str, text: str) -> list[str]:
    return _wrap(f"{name:<14}{text}", indent=" " * 14)


def _wrap(text: str, *, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _previous(record: Mapping[str, Any]) -> str:
    before = record.get("previous")
    return "none: the first of its chain" if before is None else f"{before['id']} ({before['hash'][:16]}…)"


def _signature(record: Mapping[str, Any]) -> str:
    signature = record.get("signature")
    if signature is None:
        return "none"
    try:
        signer = signing.name_of(signature["public_key"])
    except ValueError:
        return "unreadable"
    return f"{signature['algorithm']} by the key {signer} (`unweave record verify` checks it)"


def _accuracies(record: Mapping[str, Any]) -> list[str]:
    lines = [f"{'accuracy':<22}{'before':>9}{'after':>9}   {'in steps of' if is_rounded(record) else '95% interval'}"]
    for metric in record["scores"]["metrics"]:
        if metric["metric"] != "accuracy" or not metric["subset"]:
            continue
        place = on_one_line(f"{metric['split']} {metric['subset']}")
        numbers = f"{_percent(metric.get('before')):>9}{_percent(metric.get('value')):>9}"
        lines.append(f"{place:<22}{numbers}   {spread(metric)}".rstrip())
    if hidden := record["scores"].get("withheld"):
        lines.append(f"{len(hidden)} more numbers are withheld, because they could tell which samples were forgotten.")
    return lines


def is_rounded(record: Mapping[str, Any]) -> bool:
    """Tell whether the record holds rounded scores, as records since version 2 do."""
    return "rounding" in record["scores"]


def spread(metric: Mapping[str, Any]) -> str:
    """Return the interval of a number, or the step that it is rounded to; empty if the record has neither."""
    if metric.get("low") is not None and metric.get("high") is not None:
        return f"{metric['low']:.1%} to {metric['high']:.1%}"
    return "" if metric.get("step") is None else f"{100 * metric['step']:g}%"


def describe_drift(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of how accuracy on kept data changed over the requests of a chain, by request and in total.

    Every request has its own adjacent and remote samples, so changes are added up, not accuracies.

    >>> change = {"adjacent": {"before": 1.0, "after": 0.98}, "remote": {"before": 1.0, "after": 0.99}}
    >>> print(describe_drift([{"id": "first", "train": change}, {"id": "second", "train": change}]))
    Drift in points of accuracy (change by each request, and so far)
                                train adjacent        train remote
    first                         -2.0    -2.0        -1.0    -1.0
    second                        -2.0    -4.0        -1.0    -2.0
    """
    places, found = changes(rows)
    lines = ["Drift in points of accuracy (change by each request, and so far)"]
    lines.append((" " * 22 + "".join(f"{' '.join(place):>20}" for place in places)).rstrip())
    for name, pairs in found:
        cells = (f"{'–' if now is None else f'{100 * now:+.1f}':>12}{100 * so_far:>+8.1f}" for now, so_far in pairs)
        lines.append(f"{on_one_line(name)[:20]:<22}{''.join(cells)}")
    return printable("\n".join(lines))


def changes(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[str, str]], list[tuple[str, list[tuple[float | None, float]]]]]:
    """Return the (split, subset) pairs that changed and, for every request, each change and the sum so far."""
    places = [(part, subset) for part in ("train", "test") for subset in (*RETAINED, "forgotten")]
    places = [place for place in places if any(_drop(row, place) is not None for row in rows)]
    so_far, found = dict.fromkeys(places, 0.0), []
    for row in rows:
        pairs = []
        for place in places:
            change = _drop(row, place)
            so_far[place] += change or 0.0
            pairs.append((change, so_far[place]))
        found.append((row["id"], pairs))
    return places, found


def _drop(row: Mapping[str, Any], place: tuple[str, str]) -> float | None:
    found = (row.get(place[0]) or {}).get(place[1]) or {}
    before, after = found.get("before"), found.get("after")
    return None if before is None or after is None else float(after - before)


def _percent(number: float | None) -> str:
    return "–" if number is None else f"{number:.1%}"
