"""Compiled code in one file, which moves with a project to machines of the same kind.

The file is a line of JSON that says what the code is for, and what torch's own `torch.compiler.save_cache_artifacts`
gives. **That is code**: torch unpickles it. So a file is read only if the user names it, by the environment variable
``UNWEAVE_COMPILED``.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch

from unweave.engine.compiling.variants import Marks, Variant, hardware
from unweave.errors import RunWarning, UsageError
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
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        about = json.loads(head)
    except OSError as error:
        raise UsageError(f"{NAMED} names {text}, which cannot be read: {error}") from error
    except ValueError:
        about = None
    if (
        not isinstance(about, dict)
        or {key: about.get(key) for key in FORMAT} != FORMAT
        or about.get("sha256") != sha256(code)
    ):
        raise UsageError(f"{NAMED} names {text}, which is no intact file of `unweave warm`. Write it again.")
    _READ.add(path)
    here = _here(marks)
    if made := {key: about.get(key) for key in here if about.get(key) != here[key]}:
        warnings.warn(
            f"The compiled code in {text} is not used: it is for {' and '.join(map(str, made.values()))}, and this is "
            f"{' and '.join(here[key] for key in made)}.",
            RunWarning,
            stacklevel=2,
        )
        return
    torch.compiler.load_cache_artifacts(code)
    for entry in about["variants"]:
        marks.put(Variant.parse(entry))


def _here(marks: Marks) -> dict[str, str]:
    """Return what code must fit: the version of torch, and the hardware."""
    return {"torch": f"torch {torch.__version__}", "hardware": hardware(marks.device)}
