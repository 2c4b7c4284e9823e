"""The methods that fit any data, and those that fit the tokens of answers."""

from __future__ import annotations

from unweave.methods import METHODS

OTHERS = {"learning_rate": 1e-2, "epochs": 2, "batch_size": 16}
QUICK = {  # settings with which a method takes seconds on some dozen samples
    "retrain": {"epochs": 2, "learning_rate": 1e-2, "batch_size": 16},
    "two-stage": {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_epochs": 2, "steps": "fixed"},
    "pgd": {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_epochs": 2, "steps": "fixed"},
    "ssd": {"selection": 1.0, "batch_size": 4},
    "original": {},
    "adaptive": {"effort": 3.0, "least_steps": 4},
    "unweave": {**OTHERS, "least_steps": 4},
}

ON_ANYTHING = {name: method for name, method in METHODS.items() if not method.needs_tokens}
ON_TOKENS = {name: method for name, method in METHODS.items() if method.needs_tokens}

SCALED = "two-stage without settings"
QUICK[SCALED] = {"stage1_epochs": 1, "stage2_epochs": 3}
FORMS = [*ON_ANYTHING, SCALED]  # as a user may call a method by name


def quick(name):
    """Return the settings of a method for a short run."""
    return QUICK.get(name, OTHERS)


def method_of(form):
    """Return the name of the method that a form is one of."""
    return "two-stage" if form == SCALED else form
