"""Run every named study on `digits`, and put its report and its numbers where they are committed (`make gallery`).

Run it on a clean commit: the study's provenance names that commit. The study's own folder stays in `study/`; the
command goes on with it where it was stopped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
STUDY, GALLERY, RESULTS = Path("study"), ROOT / "docs" / "gallery", ROOT / "results" / "digits" / "all"
SHOTS = {"desktop": (1100, 1570), "phone": (500, 1570)}
GREY = (231, 234, 237)


def picture(page: Path, target: Path) -> None:
    """Photograph the page at two widths, side by side. Needs chromium."""
    images = []
    for name, (width, height) in SHOTS.items():
        file = STUDY / f"{name}.png"
        words = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=4000"]
        words += [f"--screenshot={file.resolve()}", f"--window-size={width},{height}", page.resolve().as_uri()]
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


def main() -> None:
    """Run, report, copy, photograph."""
    command = [sys.executable, "-m", "unweave"]
    subprocess.run([*command, "study", "digits", "all", "--seeds", "3", "--out", str(STUDY)], check=True)
    subprocess.run([*command, "report", str(STUDY), "--against-paper"], check=True)
    shutil.rmtree(GALLERY / "digits", ignore_errors=True)
    shutil.copytree(STUDY / "report", GALLERY / "digits", ignore=shutil.ignore_patterns("*.svg"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in ("results.parquet", "provenance.json", "study.json"):
        shutil.copy(STUDY / name, RESULTS)
    if shutil.which("chromium"):
        picture(GALLERY / "digits" / "index.html", GALLERY / "digits.png")


if __name__ == "__main__":
    main()
