"""The methods by name: ours and those of other packages.

>>> find_method("two-stage").configure({"alpha": 0.25}).alpha
0.25
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from unweave.errors import UsageError, short, unknown
from unweave.methods.adaptive import Adaptive
from unweave.methods.altpo import AltPO
from unweave.methods.ceu import CEU
from unweave.methods.delete import Delete
from unweave.methods.dpo import DPO
from unweave.methods.fine_tune import FineTune
from unweave.methods.gdr import GDR
from unweave.methods.grad_diff import GradDiff
from unweave.methods.gradient_ascent import GradientAscent
from unweave.methods.idk_dpo import IdkDPO
from unweave.methods.l1_sparse import L1Sparse
from unweave.methods.method import Method
from unweave.methods.munba import MUNBa
from unweave.methods.npo import NPO
from unweave.methods.original import Original
from unweave.methods.pdu import PDU
from unweave.methods.retrain import Retrain
from unweave.methods.rmu import RMU
from unweave.methods.salun import SalUn
from unweave.methods.satimp import SatImp
from unweave.methods.scrub import Scrub
from unweave.methods.simnpo import SimNPO
from unweave.methods.ssd import SSD
from unweave.methods.two_stage import PGD, TwoStage
from unweave.methods.undial import UNDIAL
from unweave.methods.unweave import Unweave
from unweave.methods.wga import WGA

METHODS: dict[str, type[Method]] = {
    "original": Original,
    "retrain": Retrain,
    "ft": FineTune,
    "ga": GradientAscent,
    "l1-sparse": L1Sparse,
    "scrub": Scrub,
    "ssd": SSD,
    "salun": SalUn,
    "delete": Delete,
    "gdr": GDR,
    "munba": MUNBa,
    "pgd": PGD,
    "two-stage": TwoStage,
    "unweave": Unweave,
    "adaptive": Adaptive,
    "grad-diff": GradDiff,
    "npo": NPO,
    "simnpo": SimNPO,
    "dpo": DPO,
    "idk-dpo": IdkDPO,
    "altpo": AltPO,
    "rmu": RMU,
    "undial": UNDIAL,
    "ce-u": CEU,
    "wga": WGA,
    "satimp": SatImp,
    "pdu": PDU,
}


def all_methods() -> dict[str, type[Method]]:
    """Return our methods, and those that other packages add through the entry point ``unweave.methods``."""
    found = dict(METHODS)
    for point in entry_points(group="unweave.methods"):
        if point.name not in found:
            method = point.load()
            if not (isinstance(method, type) and issubclass(method, Method)):
                raise UsageError(f"The entry point {point.name!r} gives {method!r}, not a subclass of Method.")
            found[point.name] = method
    return found


def methods_for(*, tokens: bool) -> dict[str, type[Method]]:
    """Return the methods that fit data whose labels are classes or, with ``tokens``, the tokens of answers.

    >>> "npo" in methods_for(tokens=True), "npo" in methods_for(tokens=False), "delete" in methods_for(tokens=True)
    (True, False, False)
    """
    return {
        name: method
        for name, method in all_methods().items()
        if (not method.needs_classes if tokens else not method.needs_tokens)
    }


def find_method(method: str | Method | type[Method]) -> type[Method]:
    """Return the class of a method, given its name, its class or an object."""
    if isinstance(method, Method):
        return type(method)
    if isinstance(method, type) and issubclass(method, Method):
        return method
    if not isinstance(method, str):
        raise UsageError(f"method is {short(method)}, but must be a name, a subclass of Method or an object of one.")
    if method in METHODS:  # searching all installed packages takes milliseconds, and this is called often
        return METHODS[method]
    methods = all_methods()
    if method not in methods:
        raise unknown("method", method, methods)
    return methods[method]


def make_method(
    method: str | Method | type[Method], settings: Mapping[str, Any], *, profile: str | None = None
) -> Method:
    """Return a method with its settings. An object has its settings already, so none may be given beside it.

    >>> make_method("ga", {"epochs": 3}).epochs
    3
    >>> make_method(GradientAscent(epochs=3), {"epochs": 4})
    Traceback (most recent call last):
    unweave.errors.UsageError: GradientAscent(...) has its settings already, but epochs was given beside it. Set it on \
the object, or pass the method by name: 'ga'.
    """
    if not isinstance(method, Method):
        return find_method(method).configure(settings, profile=profile)
    beside = [*settings, *(["profile"] if profile is not None else [])]
    if beside:
        raise UsageError(
            f"{type(method).__name__}(...) has its settings already, but {', '.join(beside)} was given beside it. "
            f"Set it on the object, or pass the method by name: {method.name!r}."
        )
    return method
