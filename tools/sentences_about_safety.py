"""The sentences of `docs/safety.md` and `docs/record.md`: kills, odd inputs, the guard, what a record tells."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator

from places import RESULTS
from sentence_values import rows, values
from sentences import Sentence

SAFETY, RECORD = "docs/safety.md", "docs/record.md"
COUNTS = ("parsers", "calls", "lines", "processes")


def safety() -> Iterator[Sentence]:
    """Yield the sentences."""
    for part in (_kills, _inputs, _guard, _record):
        yield from part()


def _kills() -> Iterator[Sentence]:
    told = json.loads((RESULTS / "torture" / "provenance.json").read_text("utf-8"))
    phrase = "holds {:,.0f} killed runs of them on made-up data, with {:,.0f} kills and {:.0f} differing bits"
    yield Sentence(SAFETY, phrase, (told["killed_runs"], told["kills"], told["differing_bits"]))


def _inputs() -> Iterator[Sentence]:
    found = json.loads((RESULTS / "fuzz" / "fuzz.json").read_text("utf-8"))
    tried = tuple(found["inputs"][kind] for kind in COUNTS)
    yield Sentence(SAFETY, "a run of {:,.0f} files, {:,.0f} calls, {:,.0f} command lines and {:,.0f} processes", tried)
    yield Sentence(
        SAFETY, "with {:.0f} tracebacks and {:.0f} writes outside", (found["tracebacks"], found["writes_outside"])
    )


def _guard() -> Iterator[Sentence]:
    study, worst = "digits/all", []
    methods = [who for who in rows(study) if "=" not in who]  # without those with other settings
    for subset in ("adjacent", "remote"):
        places = [f"{split} {subset}" for split in ("train", "test")]
        worst.append(max(_drop(study, who, place) for who in methods for place in places))
    yield Sentence(SAFETY, "are {:.0f} points on adjacent data and {:.0f} on remote data", tuple(worst))


def _drop(study: str, who: str, place: str) -> float:
    """Return the most points of accuracy that a method lost with one of the seeds."""
    lost = values(study, "original", place) - values(study, who, place)
    return 100 * float(lost.dropna().max())


def _record() -> Iterator[Sentence]:
    with (RESULTS / "record-leak" / "leak.csv").open() as file:
        found = list(csv.DictReader(file))
    bits = [math.log2(int(row["left_counts"]) / int(row["left_record"])) for row in found]
    runs = len({row["seed"] for row in found})
    yield Sentence(RECORD, "means over {:.0f} runs", (runs,))
    yield Sentence(RECORD, "took away nothing in these runs ({:.1f} bits)", (max(bits),))
