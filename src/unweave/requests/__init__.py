r"""Requests: a checkpoint, a table and a list of ids become a run, without any Python.

>>> import tempfile
>>> from pathlib import Path
>>> file = Path(tempfile.mkdtemp(), "request.yaml")
>>> file.write_text("model: owner/model\ntrain: train.parquet\nforget: person_id = 17\n") > 0
True
>>> Request.load(file).forget
'person_id = 17'
"""

from typing import TYPE_CHECKING

from unweave.first_use import on_first_use

if TYPE_CHECKING:  # for editors and type checkers, the names of `__getattr__`
    from unweave.requests.drafting import SCHEMA
    from unweave.requests.own_models import function_named, has_name_of_function
    from unweave.requests.recipes import recipe_of
    from unweave.requests.request import Request
    from unweave.requests.request_fields import keys_of, schema_of
    from unweave.requests.request_inspection import RequestInspection
    from unweave.requests.request_run import is_finished, record_later
    from unweave.requests.resolving import Prepared
    from unweave.requests.run_files import RESOLVED
    from unweave.requests.unpickling import convert_weights

__all__ = [
    "RESOLVED",
    "SCHEMA",
    "Prepared",
    "Request",
    "RequestInspection",
    "convert_weights",
    "function_named",
    "has_name_of_function",
    "is_finished",
    "keys_of",
    "recipe_of",
    "record_later",
    "schema_of",
]

if not TYPE_CHECKING:
    __getattr__ = on_first_use(
        __name__,
        {
            ".drafting": ("SCHEMA",),
            ".own_models": ("function_named", "has_name_of_function"),
            ".recipes": ("recipe_of",),
            ".request": ("Request",),
            ".request_fields": ("keys_of", "schema_of"),
            ".request_inspection": ("RequestInspection",),
            ".request_run": ("is_finished", "record_later"),
            ".resolving": ("Prepared",),
            ".run_files": ("RESOLVED",),
            ".unpickling": ("convert_weights",),
        },
    )
