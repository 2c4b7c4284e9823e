"""The methods by name: ours, and those of other packages.

>>> find_method("two-stage").configure({"alpha": 0.25}).alpha
0.25
"""

from __future__ import annotations

from importlib.metadata import entry_points

from unweave.errors import UsageError, unknown
from unweave.methods.delete import DELETE
from unweave.methods.fine_tune import FT
from unweave.methods.gdr import GDR
from unweave.methods.gradient_ascent import GA
from unweave.methods.l1_sparse import L1_SPARSE
from unweave.methods.method import Method
from unweave.methods.munba import MUNBA
from unweave.methods.original import ORIGINAL
from unweave.methods.retrain import RETRAIN
from unweave.methods.salun import SALUN
from unweave.methods.scrub import SCRUB
from unweave.methods.ssd import SSD
from unweave.methods.two_stage import PGD, TWO_STAGE
from unweave.methods.unweave import UNWEAVE

METHODS: dict[str, Method] = {
    "original": ORIGINAL,
    "retrain": RETRAIN,
    "ft": FT,
    "ga": GA,
    "l1-sparse": L1_SPARSE,
    "scrub": SCRUB,
    "ssd": SSD,
    "salun": SALUN,
    "delete": DELETE,
    "gdr": GDR,
    "munba": MUNBA,
    "pgd": PGD,
    "two-stage": TWO_STAGE,
    "unweave": UNWEAVE,
}


def all_methods() -> dict[str, Method]:
    """Return our methods and those that other packages bring through the entry point ``unweave.methods``."""
    found = dict(METHODS)
    for point in entry_points(group="unweave.methods"):
        if point.name not in found:
            method = point.load()
            if not isinstance(method, Method):
                raise UsageError(f"The entry point {point.name!r} gives a {type(method).__name__}, not a Method.")
            found[point.name] = method
    return found


def find_method(method: str | Method) -> Method:
    """Return the method of that name."""
    if isinstance(method, Method):
        return method
    if method in METHODS:  # looking through every installed package takes milliseconds, and this is called often
        return METHODS[method]
    methods = all_methods()
    if method not in methods:
        raise unknown("method", method, methods)
    return methods[method]
