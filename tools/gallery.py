"""Build the gallery from the numbers in results/: `make gallery`, or `python tools/gallery.py [NAME ...]`.

NAME is a study, such as digits or cifar100-resnet18/tuned, or a folder of studies, such as digits/each. Without a name,
everything is built. A study gets a report beside the paper's numbers, a folder of studies the files of `unweave
compare`. The pages go to docs/gallery/NAME, which git ignores.

``--pictures`` also renews the committed pictures that the docs show. It needs chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from places import GALLERY, IMAGES, RESULTS, ROOT
from unweave.lab.report import compare, read_results, write_comparison, write_report

SHOTS = {"desktop": (1100, 1570), "phone": (500, 1570)}
GREY = (231, 234, 237)
PHOTOGRAPHED = "digits"  # the page that the docs show
COMPARED = ("digits-each", "cifar100-resnet18-each", "cifar100-resnet18-each-retrain")  # the docs show their plots


def studies() -> list[str]:
    """Return the name of every published study, as its folder in results is called."""
    found = [path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.glob("*/*/study.json")]
    return sorted(found)


def comparisons() -> list[str]:
    """Return the name of every folder of studies that were published to be compared."""
    return sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.glob("*/each*"))


def page_of(name: str) -> Path:
    """Return the folder of the gallery that a study or a folder of studies has."""
    return GALLERY / name.removesuffix("/all").replace("/", "-")


def build(name: str, target: Path) -> str:
    """Build the page of a study, or the tables of a folder of studies; return what it says in a line."""
    numbers = RESULTS / name
    found = sorted(path.parent for path in [*numbers.glob("study.json"), *numbers.glob("*/study.json")])
    if not found:
        raise SystemExit(f"{numbers} holds no study. There are: {', '.join([*studies(), *comparisons()])}.")
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    return _build_study(numbers, target) if found[0] == numbers else _build_comparison(found, target)


def _build_study(numbers: Path, target: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        study = shutil.copytree(numbers, Path(folder) / "study")  # a report is written into its study's folder
        report = write_report(study, against_paper=True)
        shutil.move(report.folder, target)
    return report.verdict.splitlines()[0]


def _build_comparison(folders: Sequence[Path], target: Path) -> str:
    found = [read_results(folder) for folder in folders]
    write_comparison(compare(found), found, target)
    return f"{len(found)} studies compared"


def pictures() -> None:
    """Renew the committed pictures from the built pages."""
    photograph(page_of(PHOTOGRAPHED) / "index.html", GALLERY / f"{PHOTOGRAPHED}.png")
    for name in COMPARED:
        save(Image.open(GALLERY / name / "compare-planes.png").convert("RGB"), IMAGES / f"{name}.png")


def photograph(page: Path, target: Path) -> None:
    """Photograph a page at two widths, side by side."""
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
    save(whole.resize((whole.width * 5 // 8, whole.height * 5 // 8), Image.Resampling.LANCZOS), target)


def save(image: Image.Image, target: Path) -> None:
    """Write a picture as a small file."""
    image.quantize(256, method=Image.Quantize.FASTOCTREE).save(target, optimize=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the pages that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Build the gallery from the numbers in results/.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a study or a folder of studies; default: all")
    parser.add_argument("--pictures", action="store_true", help="also renew the committed pictures")
    words = parser.parse_args(arguments)
    named = [name if "/" in name else f"{name}/all" for name in words.names]
    for name in named or [*studies(), *comparisons()]:
        print(f"{page_of(name).relative_to(ROOT)}: {build(name, page_of(name))}", flush=True)
    if words.pictures:
        pictures()


if __name__ == "__main__":
    main()
