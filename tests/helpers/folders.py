"""The configuration in the folder of a run."""

from __future__ import annotations

import json

from unweave.storage import read_configuration


def configuration(folder):
    return read_configuration(folder)


def write_configuration(folder, config):
    """Put another configuration into a run's folder; make the folder's file where there is none."""
    file = folder / "run.json"
    about = json.loads(file.read_text()) if file.exists() else {"format": "unweave-run", "version": 2}
    file.write_text(json.dumps({**about, "configuration": config}))
