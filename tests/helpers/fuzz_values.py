"""Odd values, and valid content with something odd in it. One generator makes all choices, so they can be repeated."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1e400",
    "NaN",
    "true",
    "a\nb",
    "ok    signature: matches",
    "\x1b[2J\x1b]0;title\x07",
    "\u202eforged",
    "\u2028",
    "\ud800",
    "\0",
    "../../etc/passwd",
    "/",
    ".",
    "~",
    "=1+1",
    "<script>alert(1)</script>",
    "${HOME}",
    "a" * 300,
    "日本語",
    "%s%n{0}",
    "[bold]x[/]",
    "forget",
    "cpu",
    "*",
    "-",
    "--help",
)
FORBIDDEN = "\x1b\x07\x9b\u202e\u2028"  # in what is printed or written as text
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    10**6,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    0.0,
    -0.0,
    0.5,
    1.5,
    1e-300,
    1e308,
    -1e308,
)
JSON_ODD = (None, True, False, [], {}, [[]], [None], {"": None}, *TEXTS, *NUMBERS)
RAW = (  # what json writes for no value of Python
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "[" * 3000 + "]" * 3000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    "9" * 5000,
    '{"id":"a","id":"b"}',
    '"\\ud800"',
    '"unended',
)
FLIPS = (0x01, 0x20, 0x80, 0xFF)


def json_odd(chance: Random) -> Any:
    """Return a value that JSON can hold."""
    return copy.deepcopy(chance.choice(JSON_ODD))


def changed(content: Any, chance: Random) -> Any:
    """Return a copy of JSON content with one to three entries replaced, removed, added or doubled."""
    found = copy.deepcopy(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        found = _changed_once(found, chance)
    return found


def _changed_once(content: Any, chance: Random) -> Any:
    holder: Any = content
    while True:
        if not isinstance(holder, dict | list) or not holder:
            return json_odd(chance)  # the content itself
        key = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
        if isinstance(holder[key], dict | list) and holder[key] and chance.random() < 0.8:
            holder = holder[key]
            continue
        match chance.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case 1:
                holder[chance.choice(TEXTS)] = json_odd(chance)
            case _:
                holder[key] = json_odd(chance)
        return content


def json_bytes(content: Any, chance: Random) -> bytes:
    """Return the bytes of changed JSON content; now and then of what no program should write."""
    kind = chance.randrange(20)
    if kind == 0:
        return flipped(json.dumps(content).encode(), chance)
    try:
        text = json.dumps(changed(content, chance), ensure_ascii=chance.random() < 0.5)
    except ValueError:  # a whole number of more digits than Python writes
        return b"1" * 5000
    if kind == 1:
        text = text.replace(chance.choice((":", ",", '"', "1")), chance.choice((":", ",,", RAW[0], RAW[8])), 1)
    elif kind == 2:
        spot = text.find(": ", chance.randrange(len(text) + 1))
        text = text if spot < 0 else f"{text[: spot + 2]}{chance.choice(RAW)}{text[spot + 2 :].lstrip('0123456789')}"
    return text.encode("utf-8", "surrogatepass")


def flipped(data: bytes, chance: Random) -> bytes:
    """Return the data with some bytes changed, cut off or added."""
    found = bytearray(data)
    match chance.randrange(4):
        case 0:
            del found[chance.randrange(len(found) + 1) :]
        case 1:
            spot = chance.randrange(len(found) + 1)
            found[spot:spot] = chance.randbytes(chance.choice((1, 8, 64)))
        case _:
            for _ in range(chance.choice((1, 2, 8))):
                if found:
                    found[chance.randrange(len(found))] ^= chance.choice(FLIPS)
    return bytes(found)


def written(folder: Path, name: str, content: bytes) -> Path:
    """Write a file, and return it."""
    file = folder / name
    file.write_bytes(content)
    return file


# Values of Python, for calls


def odd(chance: Random) -> Any:
    """Return what somebody might pass by mistake, or what NumPy, pathlib and torch users pass."""
    return chance.choice(_ODD)()


def _ragged() -> Any:
    return [[1], [2, 3]]


_ODD: tuple[Any, ...] = (
    *(lambda value=value: value for value in (None, True, False, *TEXTS[:12], *NUMBERS)),
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 1j,
    lambda: b"bytes",
    object,
    lambda: int,
    lambda: print,
    lambda: ...,
    list,
    dict,
    lambda: (),
    lambda: {1, 2},
    _ragged,
    lambda: ["a", "b"],
    lambda: [0, 1, 2],
    lambda: [0.5, 1.5],
    lambda: [True, False],
    lambda: [None],
    lambda: range(3),
    lambda: iter([1, 2]),
    lambda: {"a": 1},
    lambda: {1: "a"},
    lambda: Path("nowhere"),
    lambda: Path("linked"),
    lambda: np.int64(3),
    lambda: np.int8(-1),
    lambda: np.uint64(2**63),
    lambda: np.float32(0.5),
    lambda: np.float64("nan"),
    lambda: np.bool_(True),
    lambda: np.str_("a"),
    lambda: np.array(3),
    lambda: np.array([]),
    lambda: np.arange(4),
    lambda: np.zeros((2, 3)),
    lambda: np.array(["a"]),
    lambda: np.array([object()]),
    lambda: np.datetime64("2031-01-01"),
    lambda: torch.tensor(3),
    lambda: torch.tensor(0.5),
    lambda: torch.tensor(True),
    lambda: torch.tensor(float("nan")),
    lambda: torch.zeros(0),
    lambda: torch.arange(4),
    lambda: torch.rand(4),
    lambda: torch.zeros(2, 3),
    lambda: torch.zeros(4, dtype=torch.complex64),
    lambda: torch.zeros(4, dtype=torch.bool),
    lambda: torch.zeros(3, device="meta"),
    lambda: torch.zeros(4).to_sparse(),
    lambda: torch.rand(3, requires_grad=True),
    lambda: torch.full((4,), float("inf")),
    lambda: torch.nn.Linear(2, 2),
    torch.nn.Identity,
    lambda: torch.device("cpu"),
    lambda: torch.float32,
)
