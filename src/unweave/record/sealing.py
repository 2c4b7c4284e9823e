"""What is hashed and signed of a record.

It is the canonical form (sorted keys, no spaces, UTF-8) of everything except ``hash`` and ``signature``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unweave.errors import UsageError, as_path
from unweave.record import signing
from unweave.record.schema import NAMES, require_record
from unweave.storage import canonical, read_json, sha256


def read_record(path: Path) -> dict[str, Any]:
    """Read a record and check its hash. A changed record raises a `UsageError`."""
    record = require_record(read_json(as_path("path", path)), str(path))
    if record["hash"] != content_hash(record):
        raise UsageError(
            f"{path} does not match its own hash: it was changed or damaged. `unweave record verify` names the section."
        )
    return record


def content_hash(record: Mapping[str, Any]) -> str:
    """Return the digest of a record's content."""
    return sha256(signed_bytes(record))


def signed_bytes(record: Mapping[str, Any]) -> bytes:
    """Return what is hashed and signed of a record."""
    return canonical({name: entry for name, entry in record.items() if name not in ("hash", "signature")})


def sealed(content: Mapping[str, Any], key: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return the content with the digest of every section, its hash and, with a key, a signature."""
    whole = {**content, "sections": {name: sha256(canonical(content[name])) for name in NAMES}}
    record = {**whole, "hash": content_hash(whole)}
    if key is not None:
        record["signature"] = signing.sign(signing.load_private(Path(key)), signed_bytes(whole))
    return record


def plain(content: Any) -> Any:
    """Return the content as plain JSON. A number that is not finite becomes None."""
    if isinstance(content, Mapping):
        return {str(name): plain(entry) for name, entry in content.items()}
    if isinstance(content, list | tuple):
        return [plain(entry) for entry in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return json.loads(json.dumps(content))
