"""Calls that many tests make alike."""

from __future__ import annotations

from unweave import Request, record, unlearn
from unweave.methods import Method, find_method


def unlearn_with(model, split, method="two-stage", *, initial, **more):
    """Unlearn by any method; only retraining is told what the model was before training."""
    name = method.name if isinstance(method, Method) else find_method(method).name
    return unlearn(model, split, method, **({"initial": initial} if name == "retrain" else {}), **more)


def unlearn_on_record(model, split, *arguments, request, **more):
    """Check a request, unlearn, and put the run on record."""
    asked = Request.of(request)
    asked.check(model, split, more.get("test"))
    result = unlearn(model, split, *arguments, **more)
    record.write(result, asked)
    return result
