"""Step times on a GPU through the public API, compared with those of another source tree.

    python -m bench.cuda_steps --against CHECKOUT [--against-commit COMMIT] [--rounds 3] [--size 224] [--out FOLDER]

Times a step of stage 1, of stage 2 and of fine-tuning of a ResNet-18 on random images, as it is written
(``compile="off"``), in both trees by turns; and in this tree with the defaults, too. The ratio is that of the medians
over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from bench import cuda_clocked, measure
from bench.steps import OURS, commit_of, source_of


class Tree:
    """A process of one source tree, which answers with seconds."""

    def __init__(self, source: Path, device: str, size: int) -> None:
        command = [sys.executable, "-P", str(Path(cuda_clocked.__file__).resolve()), device, str(size)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, part: str, compile_: str) -> float:
        """Return the seconds of a step."""
        if self.process.stdin is None or self.process.stdout is None:
            raise SystemExit("The process of a tree has no pipes.")
        self.process.stdin.write(f"{part} {compile_}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of a tree ended with status {self.process.wait()}.")
        return float(json.loads(line))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Step times on a GPU beside those of another tree.")
    parser.add_argument("--against", type=Path, required=True, help="another checkout")
    parser.add_argument("--against-commit", help="its commit, if it has no history")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=224, help="pixels of the images' sides")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    other_source = source_of(words.against)
    ours, other = (Tree(source, words.device, words.size) for source in (OURS, other_source))
    rows = {}
    for part in cuda_clocked.PARTS:
        turns = [
            (ours.ask(part, "off"), other.ask(part, "off"), ours.ask(part, "auto")) for _ in range(words.rounds + 1)
        ][1:]  # the first warms up
        mine, theirs, default = (statistics.median(times) for times in zip(*turns, strict=True))
        ratios = [one / two for one, two, _ in turns]
        rows[part] = {"seconds": mine, "other_seconds": theirs, "ratio": mine / theirs, "ratios": ratios}
        rows[part] |= {"seconds_with_defaults": default}
        print(
            f"{part}: {1e3 * mine:.2f} ms a step, other tree {1e3 * theirs:.2f} ms, ratio {mine / theirs:.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}); with the defaults {1e3 * default:.2f} ms"
        )
    commit = words.against_commit or commit_of(words.against)
    content = {"size": words.size, "rounds": words.rounds, "parts": rows, "other_commit": commit}
    measure.write(words.out, f"cuda-steps-{words.size}px", content, torch.device(words.device))


if __name__ == "__main__":
    main()
