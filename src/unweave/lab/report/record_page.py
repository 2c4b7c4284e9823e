"""Deletion records as one HTML page to give to a person: no script, no network, every text from data escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.report.record_verdict import bound_of, verdict_of
from unweave.lab.report.templates import render, resource
from unweave.record import changes, check_content, is_rounded, signing, spread
from unweave.runs import plain_page
from unweave.storage import write_whole


def write_record_page(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a page with these records, oldest first, and with the drift of accuracy over all their requests."""
    shown: dict[str, Any] = {
        "title": f"Deletion record {records[-1]['request']['id']}",
        "drift": _drift(records),
        "records": [_record(record) for record in records],
    }
    page = render("record.html", style=plain_page.style() + resource("page/record.css"), **shown)
    write_whole(path, page.encode())


def drift_rows(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the drift over a chain: the rows of the first record, then the last row of each later one."""
    for before, later in pairwise(records):
        if (later.get("previous") or {}).get("hash") != before["hash"]:
            raise UsageError(
                f"The record {later['request']['id']} does not continue {before['request']['id']}. Give the records of "
                "one chain, oldest first, or one record at a time."
            )
    return [*records[0]["drift"], *(record["drift"][-1] for record in records[1:] if record["drift"])]


def _drift(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    rows = drift_rows(records)
    if len(rows) < 2:
        return None
    places, lines = changes(rows)
    shown = [[name, *(f"{_points(now)} / {_points(so_far)}" for now, so_far in found)] for name, found in lines]
    return {"head": ["request", *(" ".join(place) for place in places)], "rows": shown}


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    whole = check_content(record)
    return {
        "id": record["request"]["id"],
        "verdict": verdict_of(record),
        "bound": bound_of(record),
        "alert": "" if whole.holds else f"This record {whole.words}.",
        "facts": _facts(record),
        "spread": "in steps of" if is_rounded(record) else "95% interval",
        "accuracies": [
            [f"{row['split']} {row['subset']}", _percent(row.get("before")), _percent(row.get("value")), spread(row)]
            for row in record["scores"]["metrics"]
            if row["metric"] == "accuracy" and row["subset"]
        ],
        "limits": list(record["stated_limits"]),
    }


def _facts(record: Mapping[str, Any]) -> dict[str, str]:
    config, times, split, model = (record[name] for name in ("configuration", "times", "split", "model"))
    previous, signature = record.get("previous"), record.get("signature")
    return {
        "request": record["request"]["text"] or "–",
        "method": f"{config['method']}, profile {config['profile']}, seed {config['seed']}",
        "time": f"{times['begun']} to {times['finished']}",
        "data": ", ".join(f"{split[name]} {name}" for name in ("forget", "adjacent", "remote", "forgotten")),
        "model before": model["before"],
        "model after": model["after"],
        "forget root": record["forget"]["root"],
        "certificate": record["certificate"]["words"],
        "software": f"unweave {record['software']['unweave']} on {record['hardware']['device']}",
        "previous": "none" if previous is None else f"{previous['id']} ({previous['hash']})",
        "hash": record["hash"],
        "signature": "none" if signature is None else f"by {_signer(signature)}, not checked on this page",
    }


def _signer(signature: Mapping[str, Any]) -> str:
    """Return the name of the key, as `unweave record` prints it."""
    try:
        return f"the key {signing.name_of(signature['public_key'])}"
    except ValueError:
        return "an unreadable key"


def _percent(number: float | None) -> str:
    return "–" if number is None else f"{number:.1%}"


def _points(number: float | None) -> str:
    return "–" if number is None else f"{100 * number:+.1f}"
