"""Speed and memory, measured: `python -m bench.run`, `python -m bench.scaling`, `python -m bench.plot`."""
