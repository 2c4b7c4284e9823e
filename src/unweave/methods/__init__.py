"""One file a method: its settings and its phases, readable beside its paper.

>>> find_method("two-stage").configure({"alpha": 0.25}).alpha
0.25
"""

from unweave.methods.known import METHODS, all_methods, find_method
from unweave.methods.method import Method

__all__ = ["METHODS", "Method", "all_methods", "find_method"]
