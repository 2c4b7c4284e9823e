"""Files that survive crashes: atomic writes, locks, checks of what is read, provenance and fingerprints.

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, Lock(Path(folder, "lock")):
...     write_whole(Path(folder, "about.json"), canonical({"seed": 0}))
...     content = read_json(Path(folder, "about.json"))
>>> require_form(content, {"seed": COUNT, "name?": TEXT}, "about.json")
>>> content
{'seed': 0}
"""

from unweave.storage.csv_cells import csv_text
from unweave.storage.files import (
    append_line,
    inside,
    private_folder,
    refuse_links,
    refuse_pickled,
    require_plain,
    sha256,
    sha256_of_file,
    sync_folder,
    write_whole,
)
from unweave.storage.fingerprints import digest_of, fingerprint, tensor_digests
from unweave.storage.forms import COUNT, LIST, NUMBER, OBJECT, TEXT, require_form
from unweave.storage.json_files import canonical, check_json_files, read_json, read_json_lines, require_plain_values
from unweave.storage.layout import (
    HISTORY,
    MODEL,
    PAGE,
    RUN,
    SCORES,
    VERDICT,
    configuration_file,
    read_configuration,
)
from unweave.storage.lock import Lock
from unweave.storage.pretrained import is_pretrained, quiet_transformers, save_model_folder
from unweave.storage.provenance import provenance
from unweave.storage.saved_weights import WEIGHTS, find_weights, read_weights
from unweave.storage.tensors import read_array, read_tensors, require_shapes, tensor_shapes

__all__ = [
    "COUNT",
    "HISTORY",
    "LIST",
    "MODEL",
    "NUMBER",
    "OBJECT",
    "PAGE",
    "RUN",
    "SCORES",
    "TEXT",
    "VERDICT",
    "WEIGHTS",
    "Lock",
    "append_line",
    "canonical",
    "check_json_files",
    "configuration_file",
    "csv_text",
    "digest_of",
    "find_weights",
    "fingerprint",
    "inside",
    "is_pretrained",
    "private_folder",
    "provenance",
    "quiet_transformers",
    "read_array",
    "read_configuration",
    "read_json",
    "read_json_lines",
    "read_tensors",
    "read_weights",
    "refuse_links",
    "refuse_pickled",
    "require_form",
    "require_plain",
    "require_plain_values",
    "require_shapes",
    "save_model_folder",
    "sha256",
    "sha256_of_file",
    "sync_folder",
    "tensor_digests",
    "tensor_shapes",
    "write_whole",
]
