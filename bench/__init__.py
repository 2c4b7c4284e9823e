"""Measurements of speed and memory: `python -m bench.run`, `python -m bench.scaling`, `python -m bench.plot`."""
