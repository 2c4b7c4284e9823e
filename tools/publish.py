"""Put a study where its numbers are committed: `python tools/publish.py STUDY NAME`.

The numbers and where they come from go to results/NAME/all, and the study's page is built from them in
docs/gallery/NAME. `python tools/publish.py STUDY NAME/PART` puts a further study of the benchmark beside them, to
results/NAME/PART and docs/gallery/NAME-PART. The study's own folder stays as it is, so that it can be resumed.

`python tools/publish.py --compare STUDIES NAME/PART` puts a folder of studies there, one for each class to forget: the
numbers to results/NAME/PART, what `unweave compare` makes of them to docs/gallery/NAME-PART.

With `--add METHODS`, only the rows of these methods are taken, such as further seeds, beside those that are there
already; a row with the same settings and seed is replaced.

`python tools/publish.py --tuning TUNING NAME` puts what `unweave tune` chose into the package, where it is the profile
`tuned` of the benchmark, and every trial to results/NAME/tuned (or results/NAME/PART).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
from pyarrow import compute
from pyarrow import parquet as pq

import gallery
from places import RESULTS, TUNED
from unweave.lab.report import read_results

NUMBERS = ("results.parquet", "provenance.json", "study.json")
RUN = ("method", "profile", "variant", "seed")  # what tells one run's rows from another's


def publish(study: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Put a study's numbers where they are committed, and build its page."""
    name = name if "/" in name else f"{name}/all"
    if added:
        add_numbers(study, RESULTS / name, added)
    else:
        copy_numbers(study, RESULTS / name)
    print(gallery.build(name, gallery.page_of(name)))


def publish_comparison(studies: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Put the numbers of several studies where they are committed, unless they are there already; compare them."""
    found = sorted(path.parent for path in studies.glob("*/study.json"))
    if not found:
        raise SystemExit(f"{studies} holds no studies.")
    numbers = RESULTS / name
    if added:
        for study in found:
            add_numbers(study, numbers / study.name, added)
    elif studies.resolve() != numbers.resolve():
        shutil.rmtree(numbers, ignore_errors=True)
        for study in found:
            copy_numbers(study, numbers / study.name)
    print(gallery.build(name, gallery.page_of(name)))


def add_numbers(study: Path, target: Path, methods: Sequence[str]) -> None:
    """Put the rows of some methods into a published table, and say where they come from.

    They take the place of rows with the same settings and seed.
    """
    mine, theirs = (json.loads((folder / "study.json").read_text()) for folder in (target, study))
    for key in ("benchmark", "options"):
        if mine[key] != theirs[key]:
            raise SystemExit(f"{study} is of {theirs[key]}, not of {mine[key]}.")
    chosen = pyarrow.array(list(methods))
    old, new = (pq.read_table(folder / "results.parquet") for folder in (target, study))
    if missing := set(methods) - set(new["method"].to_pylist()):
        raise SystemExit(f"{study} has no rows of {', '.join(sorted(missing))}.")
    taken = new.filter(compute.is_in(new["method"], chosen)).cast(old.schema)
    again = set(_runs(taken))
    for note in (target / "failed").glob("*.json"):
        failure = json.loads(note.read_text())
        if tuple(failure[name] for name in RUN) in again:
            note.unlink()
    _copy_failures(study, target, methods)
    kept = old.filter(pyarrow.array([run not in again for run in _runs(old)]))
    rows = pyarrow.concat_tables([kept, taken])
    pq.write_table(rows.sort_by("method"), target / "results.parquet")  # stable: as a study writes them
    before, after = (json.loads(_without_folders(folder / "provenance.json")) for folder in (target, study))
    content = {**before, "runs": [*before["runs"], *after["runs"]]}
    (target / "provenance.json").write_text(json.dumps(content, indent=2) + "\n")


def _runs(table: pyarrow.Table) -> list[tuple[object, ...]]:
    """Return of every row which run it belongs to."""
    return list(zip(*(table[name].to_pylist() for name in RUN), strict=True))


def publish_tuning(tuning: Path, name: str) -> None:
    """Copy the settings that were chosen, and the trials."""
    chosen = tuning / "best.json"
    if not chosen.exists():
        raise SystemExit(f"{tuning} has no best.json: not every method has had as many trials.")
    about = json.loads(chosen.read_text())
    benchmark, _, part = name.partition("/")
    if about["benchmark"] != benchmark:
        raise SystemExit(f"{tuning} is of {about['benchmark']}, not of {benchmark}.")
    goal = "" if about["goal"] == "erase" else f"-{about['goal']}"
    trials = RESULTS / benchmark / (part or "tuned")
    trials.mkdir(parents=True, exist_ok=True)
    shutil.copy(tuning / "trials.csv", trials)
    (TUNED / f"{benchmark}{goal}.json").write_text(_without_folders(chosen))


def _without_folders(file: Path) -> str:
    """Return a file that says where numbers come from without the folders of one machine."""
    named = re.sub(r"--data \S+?(?=[ \"])", "--data DATA", file.read_text())
    return re.sub(r"(--(?:out|originals|tuned) )/(?:[^/ \"]*/)*", r"\1", named)


def copy_numbers(study: Path, target: Path) -> None:
    """Copy a study's table and where it comes from; the trials of a tuning that lie there stay."""
    shutil.rmtree(target / "failed", ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    for file in NUMBERS:
        shutil.copy(study / file, target)
    (target / "provenance.json").write_text(_without_folders(study / "provenance.json"))
    results = read_results(study)  # what data and model they are of, which a study keeps with its cells
    (target / "study.json").write_text(json.dumps({**results.about, "notes": results.notes}, indent=2) + "\n")
    _copy_failures(study, target)


def _copy_failures(study: Path, target: Path, methods: Sequence[str] | None = None) -> None:
    """Copy the notes of cells that failed, of all methods or of some."""
    for note in (study / "failed").glob("*.json"):
        done = (study / "cells" / note.stem / "scores.json").exists()  # run again, it did not fail
        if not done and (methods is None or json.loads(note.read_text())["method"] in methods):
            (target / "failed").mkdir(exist_ok=True)
            shutil.copy(note, target / "failed")


def main() -> None:
    """Publish one study, having run it first if asked to, or several side by side."""
    parser = argparse.ArgumentParser(description="Put a study where it is committed.")
    parser.add_argument("study", type=Path, help="a folder that `unweave study` wrote; see --compare and --tuning")
    parser.add_argument("name", help="of the folder in results, and of the page")
    parser.add_argument("--compare", action="store_true", help="publish a folder of studies, side by side")
    parser.add_argument("--tuning", action="store_true", help="publish a folder that `unweave tune` wrote")
    parser.add_argument(
        "--add", default="", help="take only the rows of these methods (a,b), beside those that are there"
    )
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="run `unweave study` with these words first")
    words = parser.parse_args()
    if words.run:
        subprocess.run([sys.executable, "-m", "unweave", "study", *words.run, "--out", str(words.study)], check=True)
    if words.tuning:
        publish_tuning(words.study, words.name)
    else:
        added = [name for name in words.add.split(",") if name]
        (publish_comparison if words.compare else publish)(words.study, words.name, added=added)


if __name__ == "__main__":
    main()
