"""The processes of one run: who they are, what each of them takes of a batch, and what they agree on.

``accelerate launch`` or ``torchrun`` starts them; every one runs the same program. A batch is the same as in one
process; each process runs its part of it. The losses of all parts are then gathered in the order of the batch
(`unweave.runtime.exchange`), so that a method sees the losses of the whole batch and computes whatever it likes from
them: means, clips, constraints, ranks. On the way back each process differentiates its own part, and gradients are
averaged before anyone looks at them. So no method knows that there are several processes.
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

TIMEOUT = "UNWEAVE_TIMEOUT"  # environment variable: seconds after which a process that does not answer is given up
TIMEOUT_SECONDS = 600.0
LAST_WORDS, LISTEN_SECONDS = "last words", 2.0


# Who


def launched() -> int:
    """Return how many processes a launcher started together with this one, whether they have joined yet or not."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def join(device: str | torch.device | None = None) -> None:
    """Join the other processes of the run, where a launcher started several. Called again, it does nothing."""
    if _joined() or launched() == 1:
        return
    from accelerate import PartialState

    on_cpu = device is not None and torch.device(device).type == "cpu"
    try:
        PartialState(cpu=on_cpu, timeout=timedelta(seconds=timeout()))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise UsageError(
            f"The {launched()} processes of this run cannot talk to each other: {_sentence(error)} Take "
            "a backend that this torch has (--device cpu takes gloo, CUDA takes nccl), or start one process."
        ) from error


def leave() -> None:
    """Part from the other processes in good order, at the end of a program."""
    _messengers.cache_clear()
    if _joined():
        # Once, processes aborted while Python ended; a thread of gloo's that still held a tensor is our guess.
        time.sleep(0.1)
        dist.destroy_process_group()


def count() -> int:
    """Return how many processes work on the run."""
    return dist.get_world_size() if _joined() else 1


def rank() -> int:
    """Return the number of this process; the first has 0."""
    if _joined():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0")) if launched() > 1 else 0


def is_first() -> bool:
    """Tell whether this is the process that writes and speaks."""
    return rank() == 0


def local_rank() -> int:
    """Return the number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if count() > 1 else 0


def timeout() -> float:
    """Return after how many seconds a process that does not answer is given up."""
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


# What each takes


@dataclass(frozen=True)
class Part:
    """What one process takes of the rows of a batch.

    All take equally many, so that they do the same work in the same order; where rows run out, the last is taken
    again, and what comes out of it is dropped.

    >>> [Part(total=5, number=number, of=3).rows(torch.arange(5)).tolist() for number in range(3)]
    [[0, 1], [2, 3], [4, 4]]
    """

    total: int
    number: int
    of: int

    @property
    def size(self) -> int:
        """How many rows each process takes."""
        return -(-self.total // self.of)

    @property
    def real(self) -> int:
        """How many of them are not repeated ones."""
        return min(max(self.total - self.number * self.size, 0), self.size)

    def rows(self, whole: Tensor) -> Tensor:
        """Return this process's rows of the whole batch."""
        first = self.number * self.size
        places = torch.arange(first, first + self.size, device=whole.device).clamp(max=self.total - 1)
        return whole[places]


def part_of(total: int) -> Part | None:
    """Return what this process takes of so many rows; None in one process, which takes all."""
    if total == 0 or count() == 1:
        return None
    return Part(total, rank(), count())


# What the first decides


def agreed(*mine: bool) -> tuple[bool, ...]:
    """Return what the first process answers to questions that each may answer otherwise, such as whether it is time."""
    if count() == 1:
        return mine
    answers = torch.tensor(mine, dtype=torch.uint8)
    with heard():
        dist.broadcast(answers, src=0, group=_messengers())
    return tuple(bool(answer) for answer in answers)


def everyone(mine: bool) -> bool:
    """Tell whether all processes answer yes."""
    if count() == 1:
        return mine
    answer = torch.tensor(int(mine))
    with heard():
        dist.all_reduce(answer, op=dist.ReduceOp.MIN, group=_messengers())
    return bool(answer)


def first(action: Callable[[], T]) -> T:
    """Let the first process do something, and return to all what it gave; raise in all what it raised."""
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
    """Return the group that a tensor travels in: by the host, or from GPU to GPU."""
    return _messengers() if tensor.device.type == "cpu" else None


@lru_cache(maxsize=1)
def _messengers() -> Any:
    """Return the group for what is said on the host, so that nobody waits for a GPU."""
    if dist.get_backend() == "gloo":
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout()))


# When one is gone


@contextmanager
def heard() -> Iterator[None]:
    """Say in one sentence that another process is gone, where one does not answer inside."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if not _is_silence(error):
            raise
        raise silence() from error


def silence() -> RunError:
    """Return the error for a process that is gone."""
    return RunError(
        f"Another of the {launched()} processes of this run ended, or did not answer for {timeout():g} seconds. If it "
        "said why, mend that; then start the same command again with --resume (resume=True)."
    )


def last_words(text: str, say: Callable[[str], None]) -> None:
    """Say why this process ends, unless the first says the same, or will in a moment."""
    if is_first():
        say(text)
        _first_said(text)
    elif _first_said() != text:
        say(text)


def _first_said(text: str | None = None) -> str | None:
    """Put down what the first process says at its end, or wait a moment for it."""
    if not _joined():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
        if text is not None:
            store.set(LAST_WORDS, text)
            return text
        store.wait([LAST_WORDS], timedelta(seconds=LISTEN_SECONDS))
        return str(store.get(LAST_WORDS).decode())
    except RuntimeError:  # nobody answers any more
        return None


def _is_silence(error: RuntimeError) -> bool:
    if isinstance(error, RunError):
        return False
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "NCCL", "Connection", "TCPStore"))


def _sentence(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if text.endswith(".") else text + "."
