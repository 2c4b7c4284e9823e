"""Where the settings of a trial are drawn from: two numbers are the ends of a log-uniform range, a list has choices.

They were written before any trial, for small benchmarks such as `digits`: an epoch of RFE has 10 steps there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Space = Mapping[str, Any]

SPACES: dict[tuple[str, str], Space] = {
    ("unweave", "adaptive"): {"margin": (0.3, 30.0)},
    ("unweave", "two-stage"): {
        "stage1_learning_rate": (1e-6, 1e-3),
        "stage2_learning_rate": (1e-6, 1e-3),
        "penalty": (1.0, 100.0),
        "stage2_epochs": [3, 6, 12],
    },
    ("torchunlearn", "RFE"): {
        "learning_rate": (1e-4, 1e-1),
        "phase1_steps": [10, 30, 100],
        "constraint_tol": (0.005, 0.5),
        "w2_lambda": (0.1, 10.0),
        "rho": (0.1, 10.0),
        "epochs": [5, 20],
        "clip_grad_norm": [None, 1.0],
    },
}
