"""The benchmarks by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from unweave.errors import UsageError, unknown
from unweave.lab.benchmarks.benchmark import Benchmark, Definition
from unweave.lab.benchmarks.celeba import CELEBA_VIT
from unweave.lab.benchmarks.cifar100 import CIFAR100_CNN, CIFAR100_RESNET18, CIFAR100_VIT
from unweave.lab.benchmarks.clinc150 import CLINC150
from unweave.lab.benchmarks.digits import DIGITS
from unweave.lab.benchmarks.fashion_mnist import FASHION_MNIST
from unweave.lab.benchmarks.own_task import is_own, own_task
from unweave.lab.benchmarks.rwku import RWKU
from unweave.lab.benchmarks.tinyimagenet import TINYIMAGENET_VIT
from unweave.lab.benchmarks.tofu import TOFU
from unweave.lab.benchmarks.tofu_authors import TOFU_AUTHORS
from unweave.lab.benchmarks.toxigen import TOXIGEN_ROBERTA
from unweave.lab.benchmarks.tuned_profiles import with_tuned

DEFINITIONS = (
    DIGITS,
    FASHION_MNIST,
    CIFAR100_RESNET18,
    CIFAR100_VIT,
    CIFAR100_CNN,
    TINYIMAGENET_VIT,
    CELEBA_VIT,
    TOXIGEN_ROBERTA,
    CLINC150,
    TOFU,
    TOFU_AUTHORS,
    RWKU,
)
BENCHMARKS: dict[str, Definition] = {definition.name: definition for definition in DEFINITIONS}


def find_benchmark(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    tuned: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Return the benchmark of that name, with its options chosen.

    ``data`` is the folder of the data sets, or ``hub``; the default is the variable ``UNWEAVE_DATA``. ``tuned`` is a
    folder of `unweave tune`; its settings become the benchmark's profile ``tuned``.

    A task of the user's own is named by a request file, the folder of a run, or MODULE:FUNCTION. It has no options.

    >>> find_benchmark("digits").title
    'digits'
    """
    if name not in BENCHMARKS and is_own(name):
        if chosen_options := {key for key in options or {} if key != "of"}:
            raise UsageError(f"{name} is a task of your own and has no options ({', '.join(sorted(chosen_options))}).")
        return with_tuned(own_task(name), tuned)
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    where = os.environ.get("UNWEAVE_DATA") if data is None else os.fspath(data)
    chosen = BENCHMARKS[name].choose(options or {}, data=where or None)
    return with_tuned(chosen, tuned)
