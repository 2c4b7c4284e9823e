"""Doors for command lines: every command and option with values that are odd or lead to odd files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer

from tests.helpers.fuzz_parsers import OLD, seeds
from tests.helpers.fuzz_requests import CORPUS, SOURCES, odd_yaml, pickled, write_checkpoint, write_examined
from tests.helpers.fuzz_values import TEXTS, flipped, json_bytes
from tests.helpers.texts import people
from unweave.cli import commands
from unweave.cli.app import app

WORDS = (
    "digits",
    "two-stage",
    "ga",
    "cifar100-resnet18",
    "erase",
    "retrain",
    "0",
    "1",
    "3",
    "0.5",
    "forget=9",
    "epochs=1",
    "all",
    "cpu",
)
FILES = (
    "record.json",
    "proof.json",
    "forget-proofs.json",
    "exact-scores.json",
    "split.json",
    "key.pub",
    "request.yaml",
    "run",
    "study",
    "new",
    "rows.csv",
    "prompts.jsonl",
    "ckpt",
    "lm",
    "weights.bin",
    "answers.json",
    "nowhere",
)
# A command may write where its user says, so no word leads out of the folder.
HARMLESS = tuple(text for text in TEXTS if not text.startswith(("/", "~", "..")))
REQUESTS = ("unlearn", "inspect", "init")  # commands that open checkpoints
GLOBAL = ("--help", "--version", "--nonsense", "--", "-x")


@cache
def known() -> dict[tuple[str, ...], list[Any]]:
    """Return the parameters of every command, by its words."""
    found: dict[tuple[str, ...], list[Any]] = {}
    group = typer.main.get_command(app)
    for name in commands.COMMANDS:
        command = group.get_command(None, name)  # type: ignore[attr-defined, arg-type]
        inner = getattr(command, "commands", None)
        for words, one in [((name, sub), found_) for sub, found_ in inner.items()] if inner else [((name,), command)]:
            found[words] = one.params
    return found


def prepare(folder: Path, chance: Random, words: Sequence[str]) -> None:
    """Write the files that a command line may read, some of them odd."""
    for name, seed in (
        ("record.json", "record-2"),
        ("proof.json", "proof"),
        ("forget-proofs.json", "proofs"),
        ("exact-scores.json", "exact"),
        ("split.json", "split"),
    ):
        content = json_bytes(seeds(seed), chance) if chance.random() < 0.3 else json.dumps(seeds(seed)).encode()
        (folder / name).write_bytes(content)
    (folder / "key.pub").write_bytes((OLD / "key.pub").read_bytes())
    (folder / "request.yaml").write_bytes((CORPUS / "request.yaml").read_bytes())
    (folder / "rows.csv").write_text("person_id,text,label\n17,a,0\n18,b,1\n")
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in people()))
    (folder / "answers.json").write_bytes((CORPUS / "answers.json").read_bytes())
    (folder / "weights.bin").write_bytes(
        flipped(pickled("plain"), chance) if chance.random() < 0.3 else pickled("plain")
    )
    if words[0] in REQUESTS:
        for name, kind in (("ckpt", "text"), ("lm", "language")):
            write_checkpoint(folder / name, kind, chance, odd=0.2)
        text = (CORPUS / f"request{chance.choice(('', '-language'))}.yaml").read_text()
        text = text.replace("owner/model", chance.choice(("ckpt", "lm")))
        (folder / "request.yaml").write_text(odd_yaml(text, chance) if chance.random() < 0.3 else text)
    write_examined(folder / "run", chance, odd=0.2)
    for name in ("record.json", "forget-proofs.json", "exact-scores.json"):
        (folder / "run" / name).write_bytes((folder / name).read_bytes())
    for name, content in seeds("study").items() if "study" in words[1:] else ():
        file = folder / "study" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(json_bytes(content, chance) if chance.random() < 0.1 else json.dumps(content).encode())


def line(chance: Random) -> list[str]:
    """Return the words of a command line."""
    words, params = chance.choice(list(known().items()))
    found = list(words)
    for param in params:
        if param.param_type_name == "argument":
            if chance.random() < 0.95:
                found += [_value(param, chance) for _ in range(1 if param.nargs == 1 else chance.choice((1, 2)))]
        elif chance.random() < 0.25 and param.name != "watch":  # it waits for as long as a study runs
            found.append(chance.choice(param.opts))
            if not param.is_flag:
                found.append(_value(param, chance))
    if chance.random() < 0.05:
        found.insert(chance.randrange(len(found) + 1), chance.choice(GLOBAL))
    # No process can be given a word with a zero byte or half a character.
    return [word.replace("\0", "").encode("utf-8", "replace").decode() for word in found]


def _value(param: Any, chance: Random) -> str:
    choices: Sequence[str] = SOURCES if "--from" in param.opts else WORDS
    kind = param.type_descriptor.annotation
    if kind is Path or param.name in ("model", "train", "test", "out", "folder", "forget"):
        choices = FILES
    elif kind in (int, float):
        choices = ("0", "1", "2", "-1", "1e9", "99999999999999999999", "nan", "x")
    return str(chance.choice(HARMLESS if chance.random() < 0.2 else choices))
