"""Put a study where it is committed: `python tools/publish.py STUDY NAME`, or `make gallery` for the digits.

The report, beside the paper's numbers, goes to docs/gallery/NAME with a photograph of its page (if chromium is there),
the numbers and where they come from to results/NAME/all. `python tools/publish.py STUDY NAME/PART` puts a further study
of the benchmark beside them, to docs/gallery/NAME-PART and results/NAME/PART. The study's own folder stays as it is, so
that it can go on.

`python tools/publish.py --compare STUDIES NAME/PART` puts a folder of studies there, one for each class to forget: the
numbers to results/NAME/PART, what `unweave compare` makes of them to docs/gallery/NAME-PART.

With `--add METHODS`, only the rows of these methods are taken, such as further seeds, beside those that are there
already; a row with the same settings and seed is replaced. The page is then made from the numbers alone, and has no
figures of single samples or steps.

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
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow
from PIL import Image
from pyarrow import compute
from pyarrow import parquet as pq

from unweave.lab.report import read_results

ROOT = Path(__file__).resolve().parents[1]
GALLERY, RESULTS = ROOT / "docs" / "gallery", ROOT / "results"
TUNED = ROOT / "src" / "unweave" / "lab" / "benchmarks" / "tuned"
NUMBERS = ("results.parquet", "provenance.json", "study.json")
RUN = ("method", "profile", "variant", "seed")  # what tells one run's rows from another's
SHOTS = {"desktop": (1100, 1570), "phone": (500, 1570)}
GREY = (231, 234, 237)


def picture(page: Path, target: Path) -> None:
    """Photograph the page at two widths, side by side. Needs chromium."""
    images = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (width, height) in SHOTS.items():
            file = Path(folder) / f"{name}.png"
            words = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=4000"]
            words += [f"--screenshot={file}", f"--window-size={width},{height}", page.resolve().as_uri()]
            subprocess.run(words, check=True, capture_output=True)
            images.append(Image.open(file).convert("RGB"))
    gap = 20
    whole = Image.new("RGB", (sum(image.width for image in images) + 3 * gap, SHOTS["desktop"][1]), GREY)
    left = gap
    for image in images:
        whole.paste(image, (left, 0))
        left += image.width + gap
    small = whole.resize((whole.width * 5 // 8, whole.height * 5 // 8), Image.Resampling.LANCZOS)
    small.quantize(256, method=Image.Quantize.FASTOCTREE).save(target, optimize=True)


def publish(study: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Report, copy, photograph."""
    numbers, page = RESULTS / (name if "/" in name else f"{name}/all"), GALLERY / name.replace("/", "-")
    with tempfile.TemporaryDirectory() as folder:
        if added:
            add_numbers(study, numbers, added)
            study = shutil.copytree(numbers, Path(folder) / "study")
        subprocess.run([sys.executable, "-m", "unweave", "report", str(study), "--against-paper"], check=True)
        shutil.rmtree(page, ignore_errors=True)
        shutil.copytree(study / "report", page, ignore=shutil.ignore_patterns("*.svg"))
        if not added:
            copy_numbers(study, numbers)
    if shutil.which("chromium"):
        picture(page / "index.html", page.with_name(f"{page.name}.png"))


def publish_comparison(studies: Path, name: str, *, added: Sequence[str] = ()) -> None:
    """Copy, unless they are there already, and compare."""
    found = sorted(path.parent for path in studies.glob("*/study.json"))
    if not found:
        raise SystemExit(f"{studies} holds no studies.")
    numbers, gallery = RESULTS / name, GALLERY / name.replace("/", "-")
    if added:
        for study in found:
            add_numbers(study, numbers / study.name, added)
        found = sorted(path.parent for path in numbers.glob("*/study.json"))
    elif studies.resolve() != numbers.resolve():
        shutil.rmtree(numbers, ignore_errors=True)
        for study in found:
            copy_numbers(study, numbers / study.name)
    shutil.rmtree(gallery, ignore_errors=True)
    words = [str(numbers / study.name) for study in found]
    subprocess.run([sys.executable, "-m", "unweave", "compare", *words, "--out", str(gallery)], check=True)
    for file in [*gallery.glob("*.svg"), *gallery.glob("*.tex")]:
        file.unlink()


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
    parser.add_argument("name", help="of the folders in docs/gallery and results")
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
