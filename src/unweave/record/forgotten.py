"""What earlier requests made a model forget, read from the folder of the last one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unweave.data import RETAINED, Partition
from unweave.errors import UsageError
from unweave.record.proofs import PROOFS_FILE, read_proofs
from unweave.storage import read_json

SPLIT, TEST_SPLIT = "split.json", "test-split.json"


def forgotten_by(folder: Path, split: Partition) -> Partition:
    """Return what the run in a folder and the runs before it made a model forget, as a split of the data."""
    file = folder / PROOFS_FILE
    if not file.exists():
        raise UsageError(
            f"{folder} has no {PROOFS_FILE}, which says what the run forgot. Run it again with a request id."
        )
    private = read_proofs(file)
    rows = [sample["row"] for sample in private["samples"]]
    return Partition(split.samples, rows, [], [], forgotten=private["forgotten"], allow_empty=True)


def refuse_forgotten(folder: Path, before: Mapping[str, Any], split: Partition, test: Partition | None) -> None:
    """Raise if a split keeps samples that earlier requests made the model forget.

    The folder of the last request holds their positions. They mean nothing if the data set has another size, because
    samples may have been deleted since.
    """
    who = f"request {before['request']['id']!r} or an earlier one"
    if (folder / PROOFS_FILE).exists() and before["split"]["samples"] == len(split.samples):
        again = _kept_of(forgotten_by(folder, split), split)
        if len(again):
            raise UsageError(
                f"The split keeps {len(again)} samples that {who} made the model forget (first: sample {again[0]}). "
                "They would be learned again. Pass split.after(splits of those requests)."
            )
    earlier = forgotten_tests(folder, test) if test is not None else None
    if test is not None and earlier is not None and len(again := _kept_of(earlier, test)):
        raise UsageError(
            f"The test split keeps {len(again)} samples of what {who} made the model forget (first: sample "
            f"{again[0]}). Take them out: test=test.after(test split of that request)."
        )


def _kept_of(earlier: Partition, split: Partition) -> np.ndarray[Any, Any]:
    return np.intersect1d(earlier.rows(*earlier.to_forget), split.rows(*RETAINED))


def forgotten_tests(folder: Path, test: Partition) -> Partition | None:
    """Return the test split of the run in a folder; None if it has none, or one of other test data."""
    file = folder / TEST_SPLIT
    content = read_json(file) if file.exists() else {}
    if isinstance(content, dict) and content.get("samples") != len(test.samples):
        return None
    return Partition.load(file, test.samples)
