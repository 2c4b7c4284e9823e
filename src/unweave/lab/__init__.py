"""Experiments: benchmarks, studies, tuning, reports, audits, the demo."""

from unweave.lab.demo import MARK, run_demo

__all__ = ["MARK", "run_demo"]
