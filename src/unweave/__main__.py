"""``python -m unweave`` is the same program as ``unweave``."""

from unweave.cli import main

main()
