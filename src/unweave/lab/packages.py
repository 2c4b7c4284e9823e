"""The packages that only experiments need. The extra ``lab`` installs them: ``pip install 'unweave[lab]'``."""

from __future__ import annotations

import importlib
from typing import Any

from unweave.errors import UsageError

DISTRIBUTIONS = {"PIL": "pillow", "lm_eval": "lm-eval"}  # where the package has another name than its module


def require_package(module: str, purpose: str, *, extra: str = "lab") -> Any:
    """Import a package of an extra, or raise an error that says how to install it.

    >>> require_package("matplotlib", "A report").__name__
    'matplotlib'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = DISTRIBUTIONS.get(module, module)
        raise UsageError(f"{purpose} needs the package {package}: pip install 'unweave[{extra}]' ({error}).") from error
