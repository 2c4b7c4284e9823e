"""`warm`: compile ahead what runs of a method use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api.arguments import copied, require_arguments, require_task
from unweave.api.split import Split
from unweave.engine import Compute, Workbench, write_code
from unweave.errors import UsageError
from unweave.methods import Method, make_method
from unweave.tasks import Task


def warm(
    model: nn.Module,
    split: Split,
    method: str | Method | type[Method] = "adaptive",
    *,
    out: str | os.PathLike[str],
    task: Task | str | None = None,
    compute: Compute | None = None,
    profile: str | None = None,
    **settings: Any,
) -> Path:
    """Compile what a run of a method would compile, and write it to a file for machines with the same GPU and torch.

    Some steps are taken on a copy of the model. A run uses the file if the environment variable ``UNWEAVE_COMPILED``
    names it. **The file is code**: name only files that you or somebody you trust wrote.

    Args:
        model: The model. Its weights do not matter, only its form.
        split: The data, whose batches give the shapes.
        method: A method with its settings, or the name of one.
        out: The file to write. A file that is there is replaced.
        task: What a sample is to the model, as for `unlearn`.
        compute: The device, which must be a CUDA device, and the precision.
        profile: A named set of values of a method given by name.
        settings: Settings of a method given by name.

    Returns:
        The path of the file.

    Raises:
        UsageError: An argument cannot be used, or the device is not one for which code is compiled by itself.

    >>> import torch
    >>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> split = Split(data, forget=[0, 1], adjacent=[2, 3])
    >>> warm(nn.Linear(4, 2), split, "ga", out="code", compute=Compute("cpu"))
    Traceback (most recent call last):
    ...
    unweave.errors.UsageError: Code is compiled by itself on CUDA only, and this device is cpu. ...
    """
    chosen = make_method(method, settings, profile=profile)
    require_arguments(model, split, None, None, compute, resume=False, out=out)
    chosen.check(split)
    require_task(chosen, task)
    compute = compute or Compute()
    device = compute.check()
    path = Path(out)
    if path.is_dir():
        raise UsageError(f"{path} is a folder, but out= must be a file. Give a name in it, such as {path / 'code'}.")
    how: dict[str, Any] = {"precision": compute.precision, "keep_data": compute.keep_data}
    bench = Workbench(copied(model).to(device), split, device=device, task=task, compile="off", **how)
    if not bench.forward.compiling.may_choose:
        raise UsageError(f"Code is compiled by itself on CUDA only, and this device is {device}. Choose a CUDA device.")
    write_code(bench, list(chosen.phases()), path)
    return path
