"""The packages that a request may need, which the core does not install."""

from __future__ import annotations

import importlib
from typing import Any

from unweave.errors import UsageError

EXTRAS = {"duckdb": "sql", "datasets": "datasets", "peft": "lora"}  # the extra that installs a package
ALONE = ("timm",)  # packages that no extra installs
DISTRIBUTIONS = {"PIL": "pillow"}  # where the package has another name than its module


def need(module: str, purpose: str) -> Any:
    """Import a package, or raise an error that says how to install it.

    >>> need("pyarrow", "Reading a table").__name__
    'pyarrow'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        package, extra = DISTRIBUTIONS.get(name, name), EXTRAS.get(name, "files")
        how = f"pip install {package}" if name in ALONE else f"pip install 'unweave[{extra}]'"
        raise UsageError(f"{purpose} needs the package {package}: {how} ({error}).") from error
