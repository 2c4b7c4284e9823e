"""The origin of a study's numbers: command, commit, hardware, versions and date."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unweave._version import __version__

PACKAGES = ("torch", "numpy", "scikit-learn", "scipy", "accelerate", "transformers", "safetensors", "optuna")


def provenance(device: torch.device) -> dict[str, Any]:
    """Return what a reader needs to repeat the run."""
    return {
        "command": " ".join(["unweave", *sys.argv[1:]]),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": _hardware(device),
        "versions": {"unweave": __version__, "python": platform.python_version(), **_versions()},
    }


def _commit() -> str | None:
    """Return the commit of the source tree that this package runs from, with "+" if the tree has changes.

    For a copy of the tree without its history, set the environment variable ``UNWEAVE_COMMIT``.
    """
    if said := os.environ.get("UNWEAVE_COMMIT"):
        return said
    git, folder = shutil.which("git"), Path(__file__).parents[2]
    if git is None:
        return None
    try:
        found = subprocess.run([git, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [git, "status", "--porcelain", "--", "."], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _hardware(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "kind": device.type, "cpu_cores": os.cpu_count(), "system": platform.system()}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
