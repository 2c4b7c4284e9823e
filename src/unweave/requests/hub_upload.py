"""Upload of the folder model/ to the Hub, and of nothing else."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from unweave.errors import RunError, UsageError
from unweave.requests.packages_needed import need
from unweave.storage import MODEL

NAME = re.compile(r"[\w.-]+/[\w.-]+")


def check_upload(name: str, *, has_folder: bool) -> None:
    """Raise a `UsageError` for a name that cannot be uploaded to, before anything is computed.

    Args:
        name: The name on the Hub: ``owner/name``.
        has_folder: Whether the run will have a folder model/.

    Raises:
        UsageError: The name has another form, the run will have no such folder, or nobody is logged in.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"push-to-hub is {name!r}, but must be a name on the Hub: owner/name.")
    if not has_folder:
        raise UsageError(
            "push-to-hub uploads the folder model/, which only checkpoints in the layout of Hugging Face get. Leave it "
            "out, and upload model.safetensors yourself."
        )
    if need("huggingface_hub", "Uploading a model").get_token() is None:
        raise UsageError("Nobody is logged in to the Hub. Log in with `hf auth login`, or set HF_TOKEN.")


def upload(folder: Path, name: str) -> str:
    """Upload the folder model/ of a run to a private repository, which is made if there is none.

    Args:
        folder: The folder of the run.
        name: The name on the Hub.

    Returns:
        The address of the repository.

    Raises:
        RunError: The upload failed. The run's folder stays as it is.
    """
    hub = need("huggingface_hub", "Uploading a model")
    at: Any = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        made = at.create_repo(name, private=True, exist_ok=True)
        at.upload_folder(repo_id=name, folder_path=folder / MODEL, commit_message="Model after unlearning")
    except Exception as error:  # versions of huggingface_hub raise the errors of different network libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RunError(
            f"The model could not be uploaded to {name}: {reason} The run is whole; upload it later with "
            f"`hf upload {name} {folder / MODEL}`."
        ) from error
    return str(made)
