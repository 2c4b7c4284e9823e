"""Compiled code in one file, which moves with a project to machines of the same kind.

The file is a line of JSON that says what the code is for, and what torch's own `torch.compiler.save_cache_artifacts`
gives. **That is code**: torch unpickles it. So a file is read only if the user names it, by the environment variable
``UNWEAVE_COMPILED``. The checksum in the first line finds damage. It does not tell who wrote the file.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from unweave.engine.compiling.variants import Marks, Variant, hardware
from unweave.errors import RunWarning, UsageError, on_one_line
from unweave.storage import sha256, write_whole

NAMED = "UNWEAVE_COMPILED"  # environment variable: the file to read
FORMAT = {"format": "unweave-compiled", "version": 1}
_READ: set[Path] = set()  # files whose code this process has


def save_code(path: Path, marks: Marks, variants: Iterable[Variant]) -> int:
    """Write the code of these variants, which this process has compiled or read; return the number of bytes."""
    if not hasattr(torch.compiler, "save_cache_artifacts"):
        raise UsageError(f"torch {torch.__version__} cannot write compiled code to a file. Use 2.7 or newer.")
    found = torch.compiler.save_cache_artifacts()
    if found is None:
        raise UsageError("Nothing was compiled, so there is no code to write.")
    code = found[0]
    about = {**FORMAT, **_here(marks), "variants": [list(variant) for variant in variants], "sha256": sha256(code)}
    content = json.dumps(about).encode() + b"\n" + code
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    return len(content)


def load_named_code(marks: Marks) -> None:
    """Read the file that ``UNWEAVE_COMPILED`` names, once in a process; do nothing if it names none."""
    if not (text := os.environ.get(NAMED)) or (path := Path(text).absolute()) in _READ:
        return
    about, variants, code = read_code(path, text)
    _READ.add(path)
    here = _here(marks)
    if made := {key: str(about.get(key)) for key in here if about.get(key) != here[key]}:
        warnings.warn(
            f"The compiled code in {text} is not used: it is for {on_one_line(' and '.join(made.values()))}, and "
            f"this is {' and '.join(here[key] for key in made)}.",
            RunWarning,
            stacklevel=2,
        )
        return
    torch.compiler.load_cache_artifacts(code)
    for variant in variants:
        marks.put(variant)


def read_code(path: Path, text: str) -> tuple[dict[str, Any], list[Variant], bytes]:
    """Return what the first line of a file says, the variants that it lists, and the code, which is not run.

    Raises:
        UsageError: It is no whole file of `save_code`. ``text`` names it in the message.
    """
    if path.exists() and not path.is_file():  # a pipe might never end
        raise UsageError(f"{NAMED} names {text}, which is not a regular file. Name a file of `unweave warm`.")
    try:
        head, _, code = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise UsageError(f"{NAMED} names {text}, which cannot be read: {error}") from error
    try:
        about = json.loads(head)
        variants = [Variant.parse(entry) for entry in about["variants"]]
        if {key: about.get(key) for key in FORMAT} == FORMAT and about.get("sha256") == sha256(code):
            return about, variants, code
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise UsageError(f"{NAMED} names {text}, which is no intact file of `unweave warm`. Write it again.")


def _here(marks: Marks) -> dict[str, str]:
    """Return what code must fit: the version of torch, and the hardware."""
    return {"torch": f"torch {torch.__version__}", "hardware": hardware(marks.device)}
