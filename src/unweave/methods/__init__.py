"""One file a method: its settings and its phases, readable beside its paper.

>>> TwoStage(alpha=0.25) == find_method("two-stage").configure({"alpha": "0.25"})
True
"""

from unweave.methods.delete import Delete
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.fine_tune import FineTune
from unweave.methods.gdr import GDR
from unweave.methods.gradient_ascent import GradientAscent
from unweave.methods.known import METHODS, all_methods, find_method, make_method
from unweave.methods.l1_sparse import L1Sparse
from unweave.methods.method import Method, Promise
from unweave.methods.munba import MUNBa
from unweave.methods.original import Original
from unweave.methods.retrain import Retrain, require_initial
from unweave.methods.salun import SalUn
from unweave.methods.scrub import Scrub
from unweave.methods.ssd import SSD
from unweave.methods.two_stage import PGD, TwoStage
from unweave.methods.unseen import Reference, is_made_on_demand, require_reference
from unweave.methods.unweave import Unweave

__all__ = [
    "GDR",
    "METHODS",
    "PGD",
    "SSD",
    "Delete",
    "Descent",
    "DescentSettings",
    "FineTune",
    "GradientAscent",
    "L1Sparse",
    "MUNBa",
    "Method",
    "Original",
    "Promise",
    "Reference",
    "Retrain",
    "SalUn",
    "Scrub",
    "TwoStage",
    "Unweave",
    "all_methods",
    "find_method",
    "is_made_on_demand",
    "make_method",
    "require_initial",
    "require_reference",
]
