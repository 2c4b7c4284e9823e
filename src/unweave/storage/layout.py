"""What lies where in the folder of one run, also in folders that older versions wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.storage.json_files import read_json

RUN = "run.json"  # configuration, times, versions, hardware, cost
SCORES, HISTORY, VERDICT, PAGE = "scores.json", "history.jsonl", "verdict.md", "report.html"
MODEL = "model"  # the folder that from_pretrained opens
CONFIGURATION = "configuration"  # its entry in run.json
OLD_CONFIGURATION = "config.json"  # where older versions kept it


def configuration_file(folder: Path) -> Path:
    """Return the file that holds the configuration of a run: run.json, or config.json in a folder of older versions."""
    old = folder / OLD_CONFIGURATION
    if not old.exists():
        return folder / RUN
    content = read_json(folder / RUN) if (folder / RUN).exists() else None
    return folder / RUN if isinstance(content, dict) and CONFIGURATION in content else old


def read_configuration(folder: Path) -> Any:
    """Return the configuration of a run's folder, unchecked.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "run.json").write_text(json.dumps({"configuration": {"method": "ga"}})) > 0
    True
    >>> read_configuration(folder)
    {'method': 'ga'}
    """
    file = configuration_file(folder)
    if not file.exists():
        raise UsageError(f"{folder} has no {RUN}, so it is not the folder of a run.")
    content = read_json(file)
    if file.name == RUN and isinstance(content, dict):
        return content.get(CONFIGURATION, {})
    return content
