"""One file a method: its settings and its phases, readable beside its paper.

>>> find_method("two-stage").configure({"alpha": 0.25}).alpha
0.25
"""

from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.known import METHODS, all_methods, find_method
from unweave.methods.method import Method
from unweave.methods.unseen import Reference, describe_reference, require_reference

__all__ = [
    "METHODS",
    "Descent",
    "DescentSettings",
    "Method",
    "Reference",
    "all_methods",
    "describe_reference",
    "find_method",
    "require_reference",
]
