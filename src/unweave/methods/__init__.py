"""One file a method: its settings and its phases, readable beside its paper.

>>> TwoStage(alpha=0.25) == find_method("two-stage").configure({"alpha": "0.25"})
True
"""

from unweave.methods.adaptive import Adaptive
from unweave.methods.altpo import AltPO
from unweave.methods.ceu import CEU
from unweave.methods.delete import Delete
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.dpo import DPO
from unweave.methods.fine_tune import FineTune
from unweave.methods.gdr import GDR
from unweave.methods.grad_diff import GradDiff
from unweave.methods.gradient_ascent import GradientAscent
from unweave.methods.idk_dpo import IdkDPO
from unweave.methods.known import METHODS, all_methods, find_method, make_method, methods_for
from unweave.methods.l1_sparse import L1Sparse
from unweave.methods.method import Method, Promise
from unweave.methods.munba import MUNBa
from unweave.methods.npo import NPO
from unweave.methods.original import Original
from unweave.methods.pdu import PDU
from unweave.methods.retrain import Retrain, require_initial
from unweave.methods.rmu import RMU
from unweave.methods.salun import SalUn
from unweave.methods.satimp import SatImp
from unweave.methods.scrub import Scrub
from unweave.methods.simnpo import SimNPO
from unweave.methods.ssd import SSD
from unweave.methods.two_stage import PGD, TwoStage
from unweave.methods.undial import UNDIAL
from unweave.methods.unseen import Reference, is_made_on_demand, require_reference
from unweave.methods.unweave import Unweave
from unweave.methods.wga import WGA

__all__ = [
    "CEU",
    "DPO",
    "GDR",
    "METHODS",
    "NPO",
    "PDU",
    "PGD",
    "RMU",
    "SSD",
    "UNDIAL",
    "WGA",
    "Adaptive",
    "AltPO",
    "Delete",
    "Descent",
    "DescentSettings",
    "FineTune",
    "GradDiff",
    "GradientAscent",
    "IdkDPO",
    "L1Sparse",
    "MUNBa",
    "Method",
    "Original",
    "Promise",
    "Reference",
    "Retrain",
    "SalUn",
    "SatImp",
    "Scrub",
    "SimNPO",
    "TwoStage",
    "Unweave",
    "all_methods",
    "find_method",
    "is_made_on_demand",
    "make_method",
    "methods_for",
    "require_initial",
    "require_reference",
]
