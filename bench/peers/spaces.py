"""Where the settings of a trial are drawn from: two numbers are the ends of a log-uniform range, a list has choices.

They are for small benchmarks such as `digits`, where an epoch of RFE has 10 steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Space = Mapping[str, Any]

SPACES: dict[tuple[str, str], Space] = {
    ("unweave", "adaptive"): {"margin": (0.3, 30.0)},
    ("unweave", "two-stage"): {
        "stage1_learning_rate": (1e-3, 1e-1),  # the default profile's steps are relative to the weights
        "stage2_learning_rate": (6e-3, 6e-1),
        "penalty": (1.0, 100.0),
        "stage2_epochs": [6, 12, 24],
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
