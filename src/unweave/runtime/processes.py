"""The processes of one run: their number and rank, their parts of a batch, and decisions that they share.

``accelerate launch`` or ``torchrun`` starts them, and every process runs the same program. Batches are the same as in
a single process, and each process runs its part of a batch. `unweave.runtime.exchange` then gathers the losses of all
parts in the order of the batch. So a method sees the losses of the whole batch and computes from them what it needs:
means, clips, constraints, ranks. In the backward pass each process differentiates its own part, and gradients are
averaged before they are used. So no method has to know that there are several processes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from unweave.errors import RunError, UsageError

T = TypeVar("T")

TIMEOUT = "UNWEAVE_TIMEOUT"  # environment variable: seconds to wait for a process that does not answer
TIMEOUT_SECONDS = 600.0
LAST_WORDS, LISTEN_SECONDS = "last words", 2.0


# Number and rank


def launched() -> int:
    """Return how many processes the launcher started, including this one, even if they have not joined yet."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def join(device: str | torch.device | None = None) -> None:
    """Join the other processes of the run, if a launcher started several. A second call does nothing."""
    if _joined() or launched() == 1:
        return
    from accelerate import PartialState

    on_cpu = device is not None and torch.device(device).type == "cpu"
    try:
        PartialState(cpu=on_cpu, timeout=timedelta(seconds=timeout()))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise UsageError(
            f"The {launched()} processes of this run cannot communicate: {_sentence(error)} Use a backend that "
            "this torch supports (--device cpu uses gloo, CUDA uses nccl), or start one process."
        ) from error


def leave() -> None:
    """Leave the other processes in good order, at the end of a program."""
    _messengers.cache_clear()
    if _joined():
        # Without the pause, processes once aborted at exit. We suspect a gloo thread that still held a tensor.
        time.sleep(0.1)
        dist.destroy_process_group()


def count() -> int:
    """Return the number of processes in the run."""
    return dist.get_world_size() if _joined() else 1


def rank() -> int:
    """Return the number of this process. The first process has 0."""
    if _joined():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0")) if launched() > 1 else 0


def is_first() -> bool:
    """Tell whether this is the first process, which writes files and messages."""
    return rank() == 0


def local_rank() -> int:
    """Return the number of this process among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if count() > 1 else 0


def timeout() -> float:
    """Return how many seconds to wait for a process that does not answer."""
    text = os.environ.get(TIMEOUT, str(TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"{TIMEOUT} is {text!r}, but must be a number of seconds above 0.")
    return seconds


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


# Parts of a batch


@dataclass(frozen=True)
class Part:
    """The rows of a batch that one process runs.

    Every process runs the same number of rows, so that all do the same work in the same order. If there are too few
    rows, the last row is repeated, and the results of the repeats are dropped.

    >>> [Part(total=5, number=number, of=3).rows(torch.arange(5)).tolist() for number in range(3)]
    [[0, 1], [2, 3], [4, 4]]
    """

    total: int
    number: int
    of: int

    @property
    def size(self) -> int:
        """How many rows each process runs."""
        return -(-self.total // self.of)

    @property
    def real(self) -> int:
        """How many of the rows are not repeats."""
        return min(max(self.total - self.number * self.size, 0), self.size)

    def rows(self, whole: Tensor) -> Tensor:
        """Return this process's rows of the whole batch."""
        first = self.number * self.size
        places = torch.arange(first, first + self.size, device=whole.device).clamp(max=self.total - 1)
        return whole[places]


def part_of(total: int) -> Part | None:
    """Return this process's part of so many rows, or None if there is only one process."""
    if total == 0 or count() == 1:
        return None
    return Part(total, rank(), count())


# Shared decisions


def agreed(*mine: bool) -> tuple[bool, ...]:
    """Return the answers of the first process to questions on which processes may differ, such as the time."""
    if count() == 1:
        return mine
    answers = torch.tensor(mine, dtype=torch.uint8)
    with heard():
        dist.broadcast(answers, src=0, group=_messengers())
    return tuple(bool(answer) for answer in answers)


def everyone(mine: bool) -> bool:
    """Tell whether the answer is yes in every process."""
    if count() == 1:
        return mine
    answer = torch.tensor(int(mine))
    with heard():
        dist.all_reduce(answer, op=dist.ReduceOp.MIN, group=_messengers())
    return bool(answer)


def first(action: Callable[[], T]) -> T:
    """Run an action in the first process only. Every process returns its result, or raises its error."""
    if count() == 1:
        return action()
    told: list[Any] = [None, None]
    if is_first():
        try:
            told[0] = action()
        except (UsageError, RunError) as error:
            told[1] = error
        except Exception as error:
            told[1] = RunError(f"{type(error).__name__}: {error}")
            told[1].__cause__ = error
    raised = told[1]
    with heard():
        dist.broadcast_object_list(told, src=0, group=_messengers())
    if raised is not None:
        raise raised
    if told[1] is not None:
        raise told[1]
    found: T = told[0]
    return found


def group_of(tensor: Tensor) -> Any:
    """Return the process group that sends a tensor: over the host, or from GPU to GPU."""
    return _messengers() if tensor.device.type == "cpu" else None


@lru_cache(maxsize=1)
def _messengers() -> Any:
    """Return the process group for messages between hosts, which never wait for a GPU."""
    if dist.get_backend() == "gloo":
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout()))


# Processes that ended


@contextmanager
def heard() -> Iterator[None]:
    """Raise the error of `silence` if another process does not answer inside."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if not _is_silence(error):
            raise
        raise silence() from error


def silence() -> RunError:
    """Return the error for a process that ended or does not answer."""
    return RunError(
        f"Another of the {launched()} processes of this run ended, or did not answer for {timeout():g} seconds. Fix "
        "the error that it printed, if any. Then start the same command again with --resume (resume=True)."
    )


def last_words(text: str, say: Callable[[str], None]) -> None:
    """Print why this process ends, unless the first process prints the same text within two seconds."""
    if is_first():
        say(text)
        _first_said(text)
    elif _first_said() != text:
        say(text)


def _first_said(text: str | None = None) -> str | None:
    """Store the last words of the first process, or wait two seconds for them and return them."""
    if not _joined():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
        if text is not None:
            store.set(LAST_WORDS, text)
            return text
        store.wait([LAST_WORDS], timedelta(seconds=LISTEN_SECONDS))
        return str(store.get(LAST_WORDS).decode())
    except RuntimeError:  # the process that keeps the store has ended
        return None


def _is_silence(error: RuntimeError) -> bool:
    if isinstance(error, RunError):
        return False
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "NCCL", "Connection", "TCPStore"))


def _sentence(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if text.endswith(".") else text + "."
