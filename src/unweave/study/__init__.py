"""Many runs in one folder: benchmark × methods × seeds, survived by interruption, ending in one table."""

from unweave.study.cells import Cell, plan
from unweave.study.store import Store
from unweave.study.study import run_study

__all__ = ["Cell", "Store", "plan", "run_study"]
