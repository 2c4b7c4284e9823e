"""Doors for what requests read: their files, data, checkpoints, pickled weights; and for answers of language models."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import safetensors.torch
import torch

from tests.helpers.fuzz_values import TEXTS, flipped, json_bytes, json_odd, written
from tests.helpers.own_files import bert, sentences, write_table
from tests.helpers.own_files import tokenizer as tokenizer_of_sentences
from tests.helpers.places import ROOT
from tests.helpers.texts import TEMPLATE, llama, people, tokenizer, write_language_checkpoint
from unweave import Request, load_answers, read_logs, score_answers
from unweave.lab.audit import load_subject
from unweave.lab.benchmarks import find_benchmark
from unweave.requests.conditions import rows_where
from unweave.requests.data_table import DataTable
from unweave.requests.questions import Questions, require_answers
from unweave.requests.reading import open_data
from unweave.requests.resolving import open_checkpoint, roles_of
from unweave.requests.roles import NamedColumns, Roles
from unweave.requests.row_files import rows_of_file
from unweave.requests.unpickling import REFUSED, read_and_write

CORPUS = ROOT / "tests" / "helpers" / "corpus"
Door = Callable[[Random, Path], None]
SOURCES = (  # for --from: what is no function that returns a model and splits
    *TEXTS,
    ":",
    "json:",
    ":dumps",
    "json:dumps",
    "json:nothing",
    "nowhere:task",
    "..:task",
    "tests.helpers.fuzz_requests:CORPUS",
    "tests.helpers.texts:rows",
    "tests.helpers.texts:llama",
)
ODD_YAML = (
    "&a [*a]",
    "&a x",
    "*a",
    "<<: {model: other, seed: 1}",
    "{<<: {epochs: 3}, epochs: 2}",
    "{epochs: 1, epochs: 2}",
    "{1: a, 0x1: b}",
    "!!python/object:os.system x",
    "!!timestamp x",
    "!!bool x",
    "!!int ''",
    "!!binary x",
    "!!set {a, b}",
    "2031-13-45",
    "1:59:59:59:59:59:59:59:59:59:59:59:59:59:59:59:59:59",
    ".nan",
    ".inf",
    "? {}",
    "? [a]",
    "--- ",
    "%YAML 9.9",
    "'",
    '"\\ud800"',
    "[" * 200 + "]" * 200,
    "9" * 5000,
    "0x" + "f" * 40,
    "|",
    "\t",
)
CONDITIONS = (
    *(
        "",
        "person_id = 17",
        "1",
        "NULL",
        "label",
        "1 = 1; DROP TABLE data",
        "(SELECT 1)",
        "EXISTS (SELECT 1)",
        "?",
        "$1",
    ),
    *("person_id IN (17, 18)", "nobody = 1", "text LIKE '%", "read_text('/etc/passwd') = ''", "getenv('HOME') = ''"),
    *(
        "person_id = 'x'",
        "1 / 0 = 1",
        "person_id = 1) OR (1 = 1",
        "/* ",
        "-- ",
        "TRUE\n)\nUNION SELECT 1 --",
        "(" * 400,
    ),
    *("(" * 900 + "1" + ")" * 900, "NOT " * 3000 + "TRUE", "current_setting('memory_limit') = ''", "count(*) > 1"),
    *(
        "row_number() OVER () = 1",
        "unweave_row = 1",
        '"per""son" = 1',
        "text = text COLLATE nobody",
        "list_sort([1]) = 1",
    ),
)


# Request files


def request_door(name: str) -> Door:
    """Return a door for a request file of the corpus in which one line is odd."""

    def door(chance: Random, folder: Path) -> None:
        text = odd_yaml((CORPUS / name).read_text(), chance)
        request = Request.load(written(folder, "request.yaml", text.encode("utf-8", "surrogatepass")))
        request.chosen()

    return door


def odd_yaml(text: str, chance: Random) -> str:
    """Return a request file with one odd line."""
    lines = text.splitlines()
    spot = chance.randrange(len(lines))
    odd = chance.choice((json.dumps(json_odd(chance), default=str), chance.choice(TEXTS), *ODD_YAML))
    key = lines[spot].partition(":")[0]
    lines[spot] = chance.choice(
        (f"{key}: {odd}", odd, f"{lines[spot]}\n{lines[spot]}", f"  {lines[spot]}", f"{odd}: 1")
    )
    return "\n".join(lines) + "\n"


def earlier_door(chance: Random, folder: Path) -> None:
    """A request that continues a run in whose folder one file is odd."""
    run = folder / "earlier"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    text, split = (CORPUS / "request-language.yaml").read_text(), json.loads((CORPUS / "split.json").read_text())
    is_text = chance.random() < 0.5
    text = odd_yaml(text, chance) if is_text else text
    written(run, "request.yaml", text.encode("utf-8", "surrogatepass"))
    written(run, "split.json", json.dumps(split).encode() if is_text else json_bytes(split, chance))
    Request(after=str(run), forget="id = 1").completed()
    rows_of_file(run / "split.json", numbers(60), None, subset=chance.choice(("forget", "forgotten")))


# Data


@cache
def numbers(count: int) -> DataTable:
    """Return a table of people."""
    import pyarrow as pa
    from pyarrow import dataset

    columns = {"id": [f"r{row}" for row in range(count)], "person_id": [row % 20 for row in range(count)]}
    texts = {"text": ["a b"] * count, "label": [row % 3 for row in range(count)]}
    return DataTable("people", dataset.dataset(pa.table({**columns, **texts})))


def ids_door(chance: Random, folder: Path) -> None:
    """A file of ids or row numbers."""
    if chance.random() < 0.5:
        content = [f"r{row}" for row in range(3)] if chance.random() < 0.5 else [3, 4, 5]
        file = written(folder, "ids.json", json_bytes(content, chance))
    else:
        lines = ["r1", "r2", chance.choice((*TEXTS, "r1", "3", "60", "-0", "\ufeffr4", "١"))]
        file = written(folder, "ids.txt", "\n".join(lines).encode("utf-8", "surrogatepass"))
    column = chance.choice(("id", None, "person_id"))
    rows_of_file(file, numbers(60), column, subset="forget", numbers=chance.random() < 0.2)


def condition_door(chance: Random, folder: Path) -> None:
    """A condition in SQL, which can only read its rows."""
    text = chance.choice(CONDITIONS)
    if chance.random() < 0.3:
        text = flipped(text.encode(), chance).decode(errors=chance.choice(("replace", "surrogateescape")))
    rows_where(text, numbers(60))


@cache
def table_bytes(kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_table(Path(folder) / f"table.{kind}", sentences(12)).read_bytes()


def table_door(chance: Random, folder: Path) -> None:
    """A table in which some bytes are odd, read to its end."""
    kind = chance.choice(("csv", "jsonl", "parquet"))
    data = table_bytes(kind)
    if kind == "jsonl" and chance.random() < 0.7:
        lines = data.splitlines()
        spot = chance.randrange(len(lines))
        lines[spot] = json_bytes(json.loads(lines[spot]), chance)
        data = b"\n".join(lines)
    else:
        data = flipped(data, chance)
    table = open_data(str(written(folder, f"table.{kind}", data)))
    for _ in table.batches(table.columns):
        pass
    table.take([0])


@cache
def saved_files() -> dict[str, bytes]:
    """Return the files of a data set that ``save_to_disk`` of datasets wrote."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as place:
        datasets.Dataset.from_list(sentences(6)).save_to_disk(place)
        return {file.name: file.read_bytes() for file in Path(place).iterdir()}


def saved_door(chance: Random, folder: Path) -> None:
    """A saved data set in which one file is odd."""
    place, files = folder / "saved", saved_files()
    place.mkdir(exist_ok=True)
    changed = chance.choice(sorted(files))
    for name, content in files.items():
        written(place, name, odd_content(name, content, chance) if name == changed else content)
    table = open_data(str(place))
    for _ in table.batches(table.columns):
        pass


def prompts_door(chance: Random, folder: Path) -> None:
    """Prompts with answers, one of which is odd, as tokens."""
    rows = [dict(row) for row in people()[:6]]
    rows[chance.randrange(6)][chance.choice(("question", "answer", "id"))] = json_odd(chance)
    lines = [json.dumps(row, default=str) if chance.random() < 0.95 else "{}" for row in rows]
    table = open_data(str(written(folder, "prompts.jsonl", "\n".join(lines).encode("utf-8", "surrogatepass"))))
    template = TEMPLATE if chance.random() < 0.7 else f"{{prompt}}{chance.choice(TEXTS)}{{answer}}"
    roles = Roles(("question",), "answer", "id", template)
    table.require("question"), table.require("answer")
    require_answers(table, roles)
    found = Questions(table, roles, tokenizer(), 64)
    found.labels(), found.batch(torch.arange(len(found)))


# Checkpoints and pickled weights


@cache
def checkpoint_files(kind: str) -> dict[str, bytes]:
    """Return the files of a tiny checkpoint by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if kind == "language":
            write_language_checkpoint(folder, model=llama(), steps=0)
        else:
            bert().save_pretrained(folder)
            tokenizer_of_sentences().save_pretrained(folder)
        return {file.name: file.read_bytes() for file in folder.iterdir()}


def write_checkpoint(folder: Path, kind: str, chance: Random, *, odd: float) -> Path:
    """Write a checkpoint; with the chance ``odd``, one of its files has something odd in it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = checkpoint_files(kind)
    changed = chance.choice(sorted(files)) if chance.random() < odd else ""
    for name, content in files.items():
        written(folder, name, odd_content(name, content, chance) if name == changed else content)
    return folder


def odd_content(name: str, content: bytes, chance: Random) -> bytes:
    return json_bytes(json.loads(content), chance) if name.endswith(".json") else flipped(content, chance)


def checkpoint_door(chance: Random, folder: Path) -> None:
    """What `unweave init`, `inspect` and `unlearn` read of a checkpoint: its configuration, tokenizer and weights."""
    kind = chance.choice(("text", "language"))
    name = write_checkpoint(folder / "ckpt", kind, chance, odd=1.0)
    checkpoint = open_checkpoint(str(name))
    rows = people() if kind == "language" else sentences(12)
    table = open_data(str(write_table(folder / "rows.jsonl", rows)))
    roles_of(checkpoint, table, NamedColumns(template=TEMPLATE if kind == "language" else None))
    _ = checkpoint.reader, checkpoint.names, checkpoint.classes
    if chance.random() < 0.5:
        template = {"template": TEMPLATE} if kind == "language" else {}
        Request(
            model=str(name), train=str(folder / "rows.jsonl"), forget=["q1" if template else "r1"], **template
        ).prepare()


@cache
def pickled(kind: str) -> bytes:
    buffer = io.BytesIO()
    state = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    content = {"plain": state, "nested": {"epoch": 3, "state_dict": state}, "code": Path, "numbers": [1, 2]}[kind]
    torch.save(content, buffer, _use_new_zipfile_serialization=kind != "nested")
    return buffer.getvalue()


def pickled_door(chance: Random, folder: Path) -> None:
    """Pickled weights, as the process of their own reads them."""
    data = flipped(pickled(chance.choice(("plain", "plain", "nested", "code", "numbers"))), chance)
    file = written(folder, "weights.bin", data)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = read_and_write(str(file), str(folder / "weights.safetensors"))
    assert code in (0, 1, REFUSED), code
    assert code == 0 or len(said.getvalue().strip().splitlines()) == 1, said.getvalue()


# Runs that are examined


@cache
def weights_of_digits() -> bytes:
    return safetensors.torch.save(find_benchmark("digits").initial(0).state_dict())


def examined_door(chance: Random, folder: Path) -> None:
    """What `unweave evaluate` and `audit` open: the folder of a run in which one file is odd, or `--from`."""
    run = folder / "examined"
    shutil.rmtree(run, ignore_errors=True)
    write_examined(run, chance, odd=1.0)
    source = chance.choice(SOURCES) if chance.random() < 0.3 else None
    benchmark = chance.choice((None, None, str(run / "request.yaml"), chance.choice(TEXTS)))
    load_subject(chance.choice((run, run, None)), source=source, benchmark=benchmark)


def write_examined(run: Path, chance: Random, *, odd: float) -> None:
    """Write the folder of a run; with the chance ``odd``, one of its files has something odd in it.

    Its data is that of a request beside it, or the digits.
    """
    run.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.json": json.loads((CORPUS / f"{name}.json").read_text()) for name in ("run", "scores", "split")}
    is_request = chance.random() < 0.5
    about = files["run.json"]["configuration"]
    if chance.random() < 0.9:
        del about["split"], files["split.json"]
    if not is_request:
        about |= {"benchmark": "digits", "options": {"forget": "9"}}
    changed = chance.choice((*files, "request.yaml", "model.safetensors")) if chance.random() < odd else ""
    for name, content in files.items():
        written(run, name, json_bytes(content, chance) if name == changed else json.dumps(content).encode())
    if is_request:
        text = (CORPUS / "request.yaml").read_text().replace("owner/model", "ckpt")
        text = text.replace("rows.csv", "rows.jsonl").replace("17", "7")
        text = odd_yaml(text, chance) if changed == "request.yaml" else text
        written(run, "request.yaml", text.encode("utf-8", "surrogatepass"))
        write_checkpoint(run / "ckpt", "text", chance, odd=odd / 4)
        write_table(run / "rows.jsonl", sentences(24))
    data = checkpoint_files("text")["model.safetensors"] if is_request else weights_of_digits()
    written(run, "model.safetensors", flipped(data, chance) if changed == "model.safetensors" else data)


# Answers


def answers_door(chance: Random, folder: Path) -> None:
    content = json.loads((CORPUS / "answers.json").read_text())
    sheets = load_answers(written(folder, "answers.json", json_bytes(content, chance)))
    str(score_answers(sheets, resamples=0))


def logs_door(chance: Random, folder: Path) -> None:
    content = json.loads((CORPUS / "logs.json").read_text())
    logs = read_logs(written(folder, "TOFU_EVAL.json", json_bytes(content, chance)))
    sheets = load_answers(CORPUS / "answers.json")
    logs.quality_of(sheets["forget"]), logs.min_k_auc


REQUEST_PARSERS: dict[str, tuple[int, Door]] = {  # with a weight: how often the door is tried
    "request file": (6, request_door("request.yaml")),
    "language request file": (6, request_door("request-language.yaml")),
    "request of the run before": (6, earlier_door),
    "ids": (12, ids_door),
    "condition": (1, condition_door),
    "table": (9, table_door),
    "saved data set": (3, saved_door),
    "prompts": (6, prompts_door),
    "files of a checkpoint": (1, checkpoint_door),
    "pickled weights": (12, pickled_door),
    "run that is examined": (1, examined_door),
    "answers": (18, answers_door),
    "logs of open-unlearning": (18, logs_door),
}
