"""The form of a record. A file of another form raises a `UsageError` before it is used."""

from __future__ import annotations

from typing import Any

from unweave.errors import UsageError
from unweave.storage import COUNT, NUMBER, OBJECT, TEXT, canonical, require_form

FORMAT = {"format": "unweave-record", "version": 2}
VERSIONS = (1, 2)  # that are read; docs/record.md says what the first does not hold

_CHANGE = {"before?": NUMBER, "after?": NUMBER}
# The entries that the code reads. docs/record.md explains each entry.
SECTIONS: dict[str, Any] = {
    "request": {"id": TEXT, "text": TEXT},
    "previous?": {"hash": TEXT, "id": TEXT},
    "times": {"begun": TEXT, "finished": TEXT, "seconds": NUMBER},
    "model": {"before": TEXT, "after": TEXT, "tensors": OBJECT},
    "split": {"hash": TEXT, "samples": COUNT, "forget": COUNT, "adjacent": COUNT, "remote": COUNT, "forgotten": COUNT},
    "forget": {"count": COUNT, "root": TEXT, "content": TEXT},
    "configuration": {"method": TEXT, "profile": TEXT, "settings": OBJECT, "seed": COUNT},
    "software": {"unweave": TEXT},
    "hardware": {"device": TEXT},
    "seeds": {"run": COUNT, "evaluation": COUNT},
    "scores": {
        "metrics": [
            {
                "metric": TEXT,
                "split": TEXT,
                "subset": TEXT,
                "value?": NUMBER,
                "low?": NUMBER,
                "high?": NUMBER,
                "before?": NUMBER,
            }
        ]
    },
    "cost": {"seconds": NUMBER},
    "certificate": {"bound?": NUMBER, "words": TEXT, "conditions": OBJECT},
    "drift": [{"id": TEXT, "train?": {"*": _CHANGE}, "test?": {"*": _CHANGE}}],
    "stated_limits": [TEXT],
}
ROUNDED = {  # what a record holds of its scores since version 2
    "exact": TEXT,
    "rounding": {"fewest_samples": COUNT, "swapped_samples": COUNT},
    "withheld": [TEXT],
    "metrics": [{"metric": TEXT, "split": TEXT, "subset": TEXT, "value": NUMBER, "before?": NUMBER, "step": NUMBER}],
}
SCHEMA = {
    **SECTIONS,
    "sections": OBJECT,
    "hash": TEXT,
    "signature?": {"algorithm": TEXT, "public_key": TEXT, "value": TEXT},
}
NAMES = [name.removesuffix("?") for name in SECTIONS]


def require_record(content: Any, where: str) -> dict[str, Any]:
    """Return the content if it has the form of a record; otherwise raise a `UsageError`."""
    if not isinstance(content, dict) or content.get("format") != FORMAT["format"]:
        raise UsageError(f'{where} is not a record: it lacks the entry "format": "{FORMAT["format"]}".')
    version = content.get("version")
    if isinstance(version, bool) or version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise UsageError(f"{where} has version {version!r}; this unweave reads {known}.")
    require_form(content, SCHEMA, where)
    if version != 1:
        require_form(content["scores"], ROUNDED, f"{where}.scores")
    try:
        canonical(content)
    except ValueError as error:
        raise UsageError(f"{where} cannot be hashed: {error}") from error
    return content
