"""Checks that need nothing but records: their counts agree, their times are in order, their chain is unbroken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from unweave.data import EVERY
from unweave.record.checks import Check
from unweave.record.finished import UNKNOWN
from unweave.record.verify import check_content, check_signature


def check_counts(record: Mapping[str, Any]) -> Check:
    """Check the numbers that a record repeats: samples, seeds and the id of its last drift."""
    split = record["split"]
    if short := [name for name in ("samples", *EVERY) if split[name] < 0]:
        return Check("counts", False, f"the split counts {split[short[0]]} {short[0]} samples")
    if (together := sum(split[subset] for subset in EVERY)) > split["samples"]:
        return Check("counts", False, f"the subsets have {together} samples, but the split has {split['samples']}")
    other = [f"{name} is {found!r}, not {wanted!r}" for name, found, wanted in _repeated(record) if found != wanted]
    if other:
        return Check("counts", False, other[0] + (f" (and {len(other) - 1} more differ)" if other[1:] else ""))
    return Check("counts", True, f"agree: {split['forget']} forget samples of {split['samples']}")


def _repeated(record: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, what the record says there, and what it says elsewhere."""
    split = record["split"]
    yield "the number of samples under the forget root", record["forget"]["count"], split["forget"]
    train = record["scores"].get("train")
    for subset in EVERY:
        scored = train.get(subset) if isinstance(train, Mapping) else None
        if isinstance(scored, Mapping) and "samples" in scored:
            yield f"the number of {subset} samples that were scored", scored["samples"], split[subset]
    if "forget_samples" in (conditions := record["certificate"]["conditions"]):
        yield "the number of samples under the bound", conditions["forget_samples"], split["forget"]
    yield "the seed of the run", record["seeds"]["run"], record["configuration"]["seed"]
    if record["drift"]:
        yield "the id of the last drift", record["drift"][-1]["id"], record["request"]["id"]


def check_times(record: Mapping[str, Any]) -> Check:
    """Check that the run began before it finished. A record that was written later may not know when."""
    times = record["times"]
    if times["seconds"] < 0:
        return Check("times", False, f"the run took {times['seconds']:g} seconds")
    if UNKNOWN in (times["begun"], times["finished"]):
        return Check("times", None, "not checked: the record does not know when the run began and finished")
    begun, finished = _time(times["begun"]), _time(times["finished"])
    if begun is None or finished is None:
        wrong = times["begun" if begun is None else "finished"]
        return Check("times", False, f"{wrong!r} is not a time with its zone")
    if begun > finished:
        return Check("times", False, f"the run began at {times['begun']}, after it finished at {times['finished']}")
    return Check("times", True, "in order")


def _time(text: str) -> datetime | None:
    """Return a time in UTC; None if the text is not a time with its zone."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def check_chain(record: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]], key: bytes | None) -> list[Check]:
    """Check that each record continues the one before it. ``earlier`` holds the newest first.

    If any record of the chain is signed, the earlier ones must be signed too: otherwise anyone could put another record
    in the place of one.
    """
    found, signed = [], any(one.get("signature") for one in (record, *earlier))
    for later, before in zip([record, *earlier], earlier, strict=False):
        name = f"chain to {before['request']['id']}"
        if words := _broken(later, before, key, signed=signed):
            found.append(Check(name, False, words))
        else:
            found.append(Check(name, True, "unbroken"))
            found += _held_forgotten(later, before)
    last = earlier[-1] if earlier else record
    if (missing := last.get("previous")) is not None:
        words = f"{last['request']['id']} continues {missing['id']}, whose record was not given (--previous)"
        found.append(Check("chain", None, f"not checked to its start: {words}"))
    return found


def _broken(later: Mapping[str, Any], before: Mapping[str, Any], key: bytes | None, *, signed: bool) -> str:
    """Return what is wrong with a link of a chain, or an empty text."""
    if (later.get("previous") or {}).get("hash") != before["hash"]:
        return f"{later['request']['id']} continues another record"
    if later["model"]["before"] != before["model"]["after"]:
        return "the next request did not begin with the model that this one produced"
    for check in (check_content(before), check_signature(before, key), check_counts(before), check_times(before)):
        if check.holds is False:
            return f"in that record: {check.name} {check.words}"
    if signed and before.get("signature") is None:
        return "that record is not signed, but others of the chain are"
    began, finished = _time(later["times"]["begun"]), _time(before["times"]["finished"])
    if began and finished and began < finished:
        return f"{later['request']['id']} began at {later['times']['begun']}, before that request finished"
    return ""


def _held_forgotten(later: Mapping[str, Any], before: Mapping[str, Any]) -> list[Check]:
    """Tell whether a record kept fewer samples forgotten than there were. Skip data sets of another size."""
    gone, held = before["forget"]["count"] + before["split"]["forgotten"], later["split"]["forgotten"]
    if held >= gone or later["split"]["samples"] != before["split"]["samples"]:
        return []
    words = (
        f"{later['request']['id']} counts {held} of the {gone} samples that were forgotten before it; the others "
        "were asked for again, or learned again"
    )
    return [Check(f"forgotten by {before['request']['id']}", None, words)]
