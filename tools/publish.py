"""Publish the numbers of a study, that is, copy them to results/: `python tools/publish.py STUDY NAME`.

The numbers and their provenance go to results/NAME/all, and the page of the study is built from them in
docs/gallery/NAME. `python tools/publish.py STUDY NAME/PART` publishes a further study of the benchmark in
results/NAME/PART and docs/gallery/NAME-PART. The folder of the study does not change, so it can be resumed.

`python tools/publish.py --compare STUDIES NAME/PART` publishes a folder of studies, one for each class to forget: the
numbers in results/NAME/PART, and the files of `unweave compare` in docs/gallery/NAME-PART.

`--add METHODS` adds only the rows of these methods to a published study, such as further seeds. A row with the same
settings and seed is replaced.

`python tools/publish.py --tuning TUNING NAME` copies the settings that `unweave tune` chose into the package, where
they are the profile `tuned` of the benchmark, and all trials to results/NAME/tuned (or results/NAME/PART).
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
RUN = ("method", "profile", "variant", "seed")  # these columns identify a run


def publish(study: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Publish the numbers of a study, and build its page."""
    name = name if "/" in name else f"{name}/all"
    if added:
        add_numbers(study, RESULTS / name, added)
    else:
        copy_numbers(study, RESULTS / name)
    print(gallery.build(name, gallery.page_of(name)))


def publish_comparison(studies: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Publish the numbers of several studies, unless they are published already, and compare the studies."""
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
    """Add the rows of some methods, and their provenance, to a published study.

    They replace rows with the same settings and seed.
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
    """Return the run that each row belongs to."""
    return list(zip(*(table[name].to_pylist() for name in RUN), strict=True))


def publish_tuning(tuning: Path, name: str) -> None:
    """Publish the settings that were chosen, and the trials."""
    chosen = tuning / "best.json"
    if not chosen.exists():
        raise SystemExit(
            f"{tuning} has no best.json: not every method has had the same number of trials. Run `unweave tune` again."
        )
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
    """Return the text of a provenance file without the folders of one machine."""
    named = re.sub(r"--data \S+?(?=[ \"])", "--data DATA", file.read_text())
    return re.sub(r"(--(?:out|originals|tuned) )/(?:[^/ \"]*/)*", r"\1", named)


def copy_numbers(study: Path, target: Path) -> None:
    """Copy the table of a study and its provenance. The trials of a tuning in the target stay."""
    shutil.rmtree(target / "failed", ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    for file in NUMBERS:
        shutil.copy(study / file, target)
    (target / "provenance.json").write_text(_without_folders(study / "provenance.json"))
    results = read_results(study)  # a study stores with its cells which data and model it used
    (target / "study.json").write_text(json.dumps({**results.about, "notes": results.notes}, indent=2) + "\n")
    _copy_failures(study, target)


def _copy_failures(study: Path, target: Path, methods: Sequence[str] | None = None) -> None:
    """Copy the notes of failed cells, of these methods or of all."""
    for note in (study / "failed").glob("*.json"):
        done = (study / "cells" / note.stem / "scores.json").exists()  # it was run again and succeeded
        if not done and (methods is None or json.loads(note.read_text())["method"] in methods):
            (target / "failed").mkdir(exist_ok=True)
            shutil.copy(note, target / "failed")


def main() -> None:
    """Publish a study, which ``--run`` runs first, or several studies, or a tuning."""
    parser = argparse.ArgumentParser(description="Copy the numbers of a study to results/.")
    parser.add_argument(
        "study",
        type=Path,
        help="a folder of `unweave study`; --compare takes a folder of such folders, --tuning one of `unweave tune`",
    )
    parser.add_argument("name", help="name of the folder in results, and of the page")
    parser.add_argument("--compare", action="store_true", help="publish a folder of studies, and compare them")
    parser.add_argument("--tuning", action="store_true", help="publish a folder that `unweave tune` wrote")
    parser.add_argument("--add", default="", help="add only the rows of these methods (a,b) to the published ones")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="first run `unweave study` with these arguments")
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
