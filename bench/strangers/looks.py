"""The looks at the judgement half: two at most, each with a reason, in a file that is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.strangers.tasks import Stranger
from unweave.errors import UsageError
from unweave.storage import provenance

FILE = Path(__file__).with_name("looks.json")
MOST = 2


def require_look(tasks: Iterable[Stranger], reason: str | None, what: Mapping[str, Any]) -> None:
    """Refuse tasks of the judgement half, unless this is a look with a reason; then record it.

    A command with the reason, the work and the commit of the newest look belongs to that look: it may take several
    commands.
    """
    judged = [task.name for task in tasks if task.half == "judgement"]
    if not judged:
        return
    if not reason:
        raise UsageError(
            f"{judged[0]} is in the judgement half, which may be looked at {MOST} times (docs/protocol.md). Take tasks "
            'of the development half. If the defaults are frozen: --look "why".'
        )
    looks = json.loads(FILE.read_text(encoding="utf-8"))["looks"] if FILE.exists() else []
    about = provenance(torch.device("cpu"))
    this = {"reason": reason, "commit": about["commit"], **what}
    mine = {**this, "commit": str(about["commit"]).removesuffix("+")}  # since then this file has changed
    if looks and mine == {name: value for name, value in looks[-1].items() if name != "date"}:
        return
    if len(looks) >= MOST:
        raise UsageError(
            f"The judgement half was looked at {len(looks)} times: {'; '.join(look['reason'] for look in looks)}. "
            "There is no further look. Take tasks of the development half."
        )
    if about["commit"] is None or about["commit"].endswith("+"):
        raise UsageError("The tree has changes that are not committed. Commit them first: a look judges a commit.")
    looks.append({**this, "date": about["date"]})
    FILE.write_text(json.dumps({"looks": looks}, indent=2) + "\n", encoding="utf-8")
