"""The private names of torch that compiling needs. No other file imports from `torch._dynamo` or `torch._inductor`.

Each name is imported when it is used. If a version of torch lacks one, the import raises, and `Forwards` runs the model
uncompiled.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule


def import_compiler() -> None:
    """Import torch's compiler, which takes seconds. What goes wrong is raised again where code is compiled."""
    with suppress(Exception):
        import_module("torch._dynamo")
        import_module("torch._inductor.compile_fx")


def compare_briefly() -> None:
    """Let torch time each candidate of a kernel ten times and not a hundred: other work on the device makes that slow.

    It takes the shortest time of each, so a tenth of them tells as much.
    """
    with suppress(ImportError, AttributeError):
        from torch._inductor.runtime.benchmarking import InductorBenchmarker

        brief = {"memory_warmup_iters": 10, "benchmark_iters": 10}
        timed: Any = InductorBenchmarker.benchmark_gpu
        if not brief.keys() <= inspect.signature(timed).parameters.keys():
            return
        patched: Any = InductorBenchmarker
        patched.benchmark_gpu = lambda self, *given, **named: timed(self, *given, **{**brief, **named})


def compile_graph(graph: GraphModule, examples: list[Tensor], *, known: Sequence[Callable[..., Any]] = ()) -> Any:
    """Compile a traced graph with torch's own compiler.

    The functions in ``known`` compute the same from the same, so a graph that calls them may be cached on disk.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    name = "unsafe_marked_cacheable_functions"
    if not hasattr(config, name):  # torch up to 2.5 caches less
        return compile_fx(graph, examples)
    code = hashlib.blake2b(digest_size=16)  # torch's keys name the functions, but do not see what they do
    for file in sorted({inspect.getfile(function) for function in known}):
        code.update(Path(file).read_bytes())
    marks = {f"{function.__module__}.{function.__name__}": code.hexdigest() for function in known}
    with config.patch({name: {**getattr(config, name), **marks}}):
        return compile_fx(graph, examples)


def allow_variants(count: int) -> AbstractContextManager[Any]:
    """Let torch compile up to ``count`` variants of one model inside this context; its default is eight."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # as torch up to 2.5 says
    limit: AbstractContextManager[Any] = config.patch({name: count})
    return limit


def end_failed_recording(pool: Any, device: torch.device) -> None:
    """Let torch's allocator know that recording into this pool has ended.

    If recording fails, torch up to 2.11 believes that it goes on: it then gives no unused memory back, not even where a
    pass needs it, and keeps what was recorded until the process ends. Newer versions have ended it, and then say so.
    """
    with suppress(AttributeError, RuntimeError):
        index = torch.cuda.current_device() if device.index is None else device.index
        torch._C._cuda_endAllocateToPool(index, pool)
        torch._C._cuda_releasePool(index, pool)


def cache_folder() -> Path | None:
    """Return the folder where torch keeps compiled code, or None if this torch does not tell."""
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        return Path(cache_dir())
    except (ImportError, AttributeError, TypeError):
        return None
