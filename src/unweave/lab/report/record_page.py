"""Deletion records as one HTML page to hand to a person: no script, no network, everything from data escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.report.page import policy
from unweave.record import changes, check_content, printable, signing
from unweave.storage import write_whole

STYLE = """
:root { color-scheme: light dark; }
body {
  max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; font: 16px/1.6 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 3rem; } h3 { font-size: 1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: .3rem 1rem; } dt { opacity: .7; } dd { margin: 0; }
dd p { margin: 0; white-space: pre-wrap; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; overflow-wrap: normal; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 1px solid; font-weight: 600; }
code { font-size: .85em; } .alert { font-weight: 600; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .6rem; } }
"""


def write_record_page(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a page with records, oldest first, and what their requests did to kept data in sum."""
    title = f"Deletion record {records[-1]['request']['id']}"
    body = [f"<h1>{_text(title)}</h1>", _drift(records), *map(_record, records)]
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(STYLE))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{_text(title)}</title>\n<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n{''.join(body)}\n</body>\n</html>\n"
    )
    write_whole(path, page.encode())


def drift_rows(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the balance of a chain: that of the first record given, then the last line of each later one."""
    for before, later in pairwise(records):
        if (later.get("previous") or {}).get("hash") != before["hash"]:
            raise UsageError(
                f"The record {later['request']['id']} does not continue {before['request']['id']}. Give the records of "
                "one chain, oldest first, or one record at a time."
            )
    return [*records[0]["drift"], *(record["drift"][-1] for record in records[1:] if record["drift"])]


def _drift(records: Sequence[Mapping[str, Any]]) -> str:
    rows = drift_rows(records)
    if len(rows) < 2:
        return ""
    places, lines = changes(rows)
    head = [" ".join(place) + words for place in places for words in ("", ", so far")]
    body = [[name, *(_points(number) for pair in found for number in pair)] for name, found in lines]
    note = (
        "Change of accuracy in points, by each request and in sum. Every request has its own adjacent and remote data."
    )
    return f"<h2>Drift over {len(rows)} requests</h2><p>{note}</p>{_table(['request', *head], body)}"


def _record(record: Mapping[str, Any]) -> str:
    config, times, split, model = (record[name] for name in ("configuration", "times", "split", "model"))
    whole = check_content(record)
    previous, signature = record.get("previous"), record.get("signature")
    facts = {
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
    rows = [
        [f"{row['split']} {row['subset']}", _percent(row.get("before")), _percent(row.get("value")), _interval(row)]
        for row in record["scores"]["metrics"]
        if row["metric"] == "accuracy" and row["subset"]
    ]
    limits = "".join(f"<li>{_text(words)}</li>" for words in record["stated_limits"])
    alert = "" if whole.holds else f'<p class="alert">This record {_text(whole.words)}.</p>'
    return (
        f"<h2>Request {_text(record['request']['id'])}</h2>{alert}"
        f"<dl>{''.join(f'<dt>{name}</dt><dd><p>{_text(words)}</p></dd>' for name, words in facts.items())}</dl>"
        f"<h3>Accuracy</h3>{_table(['', 'before', 'after', '95% interval'], rows)}"
        f"<h3>What this record does not say</h3><ul>{limits}</ul>"
    )


def _signer(signature: Mapping[str, Any]) -> str:
    """Return the key's name, the same that `unweave record` says."""
    try:
        return f"the key {signing.name_of(signature['public_key'])}"
    except ValueError:
        return "an unreadable key"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(printable(text))


def _percent(number: float | None) -> str:
    return "–" if number is None else f"{number:.1%}"


def _points(number: float | None) -> str:
    return "–" if number is None else f"{100 * number:+.1f}"


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row.get("low"), row.get("high")
    return "" if low is None or high is None else f"{low:.1%} to {high:.1%}"
