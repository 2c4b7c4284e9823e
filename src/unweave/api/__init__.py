"""The front door: `Split`, `unlearn` and what it returns."""

from unweave.api.arguments import check_reference, check_request
from unweave.api.split import Split
from unweave.api.unlearning import Result, load_weights, refuse_existing, remove_folder, unfinished, unlearn

__all__ = [
    "Result",
    "Split",
    "check_reference",
    "check_request",
    "load_weights",
    "refuse_existing",
    "remove_folder",
    "unfinished",
    "unlearn",
]
