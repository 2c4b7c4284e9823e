"""The two halves of the test data, by the parity of a hash of the position (docs/protocol.md)."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def halves_of_test(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the positions of both halves, the even ones first.

    >>> halves_of_test(8)
    (array([...]), array([...]))
    """
    odd = np.asarray([hashlib.sha256(str(place).encode()).digest()[-1] % 2 for place in range(count)], dtype=bool)
    return np.flatnonzero(~odd), np.flatnonzero(odd)
