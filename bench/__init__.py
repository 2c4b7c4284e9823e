"""Benchmarks of speed and memory. Each module is a command, such as `python -m bench.run`.

So are the packages `bench.strangers` (models that nobody tuned for) and `bench.attacks` (attacks with many models).

Against other code: `run` (the released loop), `overhead` (plain torch by hand), `steps` (another source tree). Alone:
`methods`, `scaling` (drawn by `plot`), `sentences`, `quality`, `processes`. The rest is what they share.
"""
