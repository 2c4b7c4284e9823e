"""DATA: which files a request names, opened as one table that is read in batches.

>>> import pyarrow as pa, pyarrow.parquet, tempfile
>>> folder = tempfile.mkdtemp()
>>> pa.parquet.write_table(pa.table({"text": ["a", "b", "c"], "label": [0, 1, 1]}), folder + "/train.parquet")
>>> data = open_data(folder + "/*.parquet")
>>> len(data), data.columns, data.column("label").to_pylist()
(3, ['text', 'label'], [0, 1, 1])
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.packages_needed import need
from unweave.storage import check_json_files, refuse_pickled, require_plain

FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
HUB = re.compile(r"[\w.-]+/[\w.-]+(:\w+)?")
KNOWN = "Parquet, CSV, JSON-lines files, a folder of images by class, a saved data set, or the name of one on the Hub"


def open_data(where: str, *, part: str = "train") -> DataTable:
    """Open data: count its rows without keeping them.

    Args:
        where: A file, several by a pattern such as ``data/*.parquet``, a folder, or a Hub name (``owner/name:split``).
        part: The part to take of a saved data set, or one on the Hub, that has several.

    Returns:
        The rows as a table.

    Raises:
        UsageError: Nothing is there, it cannot be read, or it has no rows.
    """
    need("pyarrow", "Reading data")
    table = _opened(where, part)
    len(table)  # it refuses data without rows, whose columns have no types
    return table


def _opened(where: str, part: str) -> DataTable:
    path = Path(where)
    if glob.has_magic(where) and not path.exists():
        files = sorted(Path(one) for one in glob.glob(where, recursive=True))
        if not files:
            raise UsageError(f"No file matches {where!r}. Check the pattern, and quote it so that the shell keeps it.")
        return _of_files(where, files)
    if path.is_dir():
        return _of_folder(path, part)
    if path.exists():
        return _of_files(where, [path])
    if HUB.fullmatch(where) and path.suffix not in FORMATS:
        return _of_hub(where, part)
    raise UsageError(f"{where} does not exist. Data is {KNOWN}.")


def _of_folder(path: Path, part: str) -> DataTable:
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        return _saved(path, part)
    if files := [file for file in sorted(path.iterdir()) if file.suffix in FORMATS]:
        return _of_files(str(path), files)
    return _of_pictures(path)


def _of_files(where: str, files: list[Path]) -> DataTable:
    """Open files of one format and with the same columns."""
    from pyarrow import dataset

    kinds = {_format(file) for file in files}
    if len(kinds) > 1:
        raise UsageError(f"{where} holds files of several formats ({', '.join(sorted(kinds))}). Give files of one.")
    kind = kinds.pop()
    tsv = dataset.CsvFileFormat(parse_options=_tabs()) if kind == "tsv" else None
    try:
        for file in files:
            require_plain(file)
        found = dataset.dataset([str(file) for file in files], format=tsv or kind)
        names = [(fragment.path, fragment.physical_schema.names) for fragment in found.get_fragments()]
    except UsageError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        raise UsageError(f"{where} cannot be read as {kind}: {_first_line(error)}") from error
    for file, columns in names[1:]:
        if sorted(columns) != sorted(names[0][1]):
            odd = sorted({*columns} ^ {*names[0][1]})
            raise UsageError(
                f"{file} and {names[0][0]} have different columns ({', '.join(odd)} is in one only). Give files with "
                "the same columns."
            )
    return DataTable(where, found, folder=files[0].parent)


def _tabs() -> Any:
    from pyarrow import csv

    return csv.ParseOptions(delimiter="\t")


def _format(file: Path) -> str:
    refuse_pickled(file, "Parquet, CSV or JSON-lines")
    if file.suffix.lower() not in FORMATS:
        raise UsageError(f"{file} has the unknown ending {file.suffix!r}. Known: {', '.join(FORMATS)}.")
    return FORMATS[file.suffix.lower()]


def _of_pictures(path: Path) -> DataTable:
    """Open a folder with a folder of images for each class. The file, relative to the folder, serves as the id."""
    import pyarrow as pa
    from pyarrow import dataset

    files = sorted(file for file in path.glob("*/**/*") if file.suffix.lower() in PICTURES)
    if not files:
        raise UsageError(f"{path} holds no data: no {', '.join(FORMATS)} files, and no images in folders by class.")
    inner = [file.relative_to(path) for file in files]
    columns = {
        "image": [file.as_posix() for file in inner],  # DataTable.folder is where they begin
        "label": [file.parts[0] for file in inner],
        "id": [file.as_posix() for file in inner],
    }
    return DataTable(str(path), dataset.dataset(pa.table(columns)), folder=path, by_folder=True)


def _saved(path: Path, part: str) -> DataTable:
    """Open what ``save_to_disk`` of datasets wrote. Its rows stay on disk."""
    datasets = need("datasets", f"Reading {path}")
    for folder in (path, path / part):
        check_json_files(folder)
    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # of odd files it raises many kinds
        raise UsageError(f"{path} cannot be read as a saved data set: {_first_line(error)}") from error
    return _of_datasets(str(path), found, part)


def _of_hub(where: str, part: str) -> DataTable:
    datasets = need("datasets", f"Reading {where} from the Hub")
    name, _, named = where.partition(":")
    try:
        found = datasets.load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"{where} is not a file here, and cannot be read from the Hub: {_first_line(error)} Data is {KNOWN}."
        ) from error
    return _of_datasets(where, found, named or part)


def _of_datasets(where: str, found: Any, part: str) -> DataTable:
    from pyarrow import dataset

    if isinstance(found, dict):
        if part not in found:
            raise UsageError(f"{where} has no part {part!r}; it has {', '.join(found)}. Name one: {where}:PART.")
        found = found[part]
    table = found.with_format("arrow")
    names = {name: kind.names for name, kind in found.features.items() if hasattr(kind, "names")}
    whole = table[:] if found._indices is not None else found.data.table  # a selection of rows is copied
    return DataTable(where, dataset.dataset(whole), label_names=names)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
