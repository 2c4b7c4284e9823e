"""NVIDIA's MPS, with which processes use a GPU at the same time instead of taking turns."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unweave.engine import Compute
from unweave.runtime import pick_device

log = logging.getLogger(__name__)


@contextmanager
def shared_gpu(computing: Compute) -> Iterator[None]:
    """Let the processes that start in this block use the GPU at the same time, with NVIDIA's MPS where it can be had.

    Without it they take turns on the GPU.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or pick_device(computing.device).type != "cuda" or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="unweave-mps-") as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **own}
        if not _asked([control, "-d"], environment):
            yield
            return
        log.info("The workers share the GPU through MPS.")
        os.environ.update(own)
        try:
            yield
        finally:
            for name in own:
                os.environ.pop(name, None)
            _asked([control], environment, words="quit\n")


def _asked(command: Sequence[str], environment: dict[str, str], words: str = "") -> bool:
    """Run a command of MPS; return whether it worked."""
    try:
        done = subprocess.run(
            command, env=environment, input=words, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.info("MPS is not used: %s", error)
        return False
    return done.returncode == 0
