"""The tasks by name, family and request, and which half each is in. `docs/protocol.md` says how the halves are used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

Half = Literal["development", "judgement"]
HALVES: tuple[Half, Half] = ("development", "judgement")
SALTS = 1_000

# A name is data, family, and what is forgotten; the value is the kind of request.
REQUESTS: Mapping[str, str] = {
    "blobs-mlp-cluster": "class",
    "fashion-cnn-shirt": "class",
    "cifar-cnnbn-tractor": "class",
    "cifar-resnet-leopard": "class",
    "cifar-vit-orange": "class",
    "clinc-bag-transfer": "class",
    "clinc-gru-recipe": "class",
    "clinc-encoder-timezone": "class",
    "digits-mlp-three": "label",
    "cifar-cnn-couch": "label",
    "fashion-cnnbn-trouser": "label",
    "fashion-vit-bag": "label",
    "clinc-gru-weather": "label",
    "clinc-lora-insurance": "label",
    "regions-mlp-third": "group",
    "fashion-resnet-camera": "group",
    "cifar-vit-dark": "group",
    "toxigen-bag-women": "group",
    "toxigen-encoder-mexican": "group",
    "toxigen-lora-disabled": "group",
    "cancer-mlp-20": "random 20",
    "fashion-mlp-1percent": "random 1%",
    "digits-cnn-20": "random 20",
    "cifar-resnet-200": "random 200",
    "clinc-encoder-200": "random 200",
    "clinc-lora-1percent": "random 1%",
    "cifar-cnn-wrong": "mislabelled",
    "fashion-cnnbn-wrong": "mislabelled",
    "clinc-bag-wrong": "mislabelled",
    "toxigen-gru-wrong": "mislabelled",
}


def family_of(name: str) -> str:
    """Return the network family of a task, the second word of its name.

    >>> family_of("clinc-gru-recipe")
    'gru'
    """
    return name.split("-")[1]


def halves(requests: Mapping[str, str] = REQUESTS) -> dict[str, Half]:
    """Divide the tasks into halves by a hash of their names, so that both have every request and every family.

    For salt = 0, 1, 2, …: within each kind of request, tasks sorted by the SHA-256 of "salt name" go to development and
    judgement in turns. The first salt with which every family is in both halves decides.

    >>> halves({"a-mlp-x": "class", "b-mlp-y": "class"})
    {'a-mlp-x': 'development', 'b-mlp-y': 'judgement'}
    """
    families = {family_of(name) for name in requests}
    for salt in range(SALTS):
        found: dict[str, Half] = {}
        for kind in sorted(set(requests.values())):
            names = (name for name, of in requests.items() if of == kind)
            for place, name in enumerate(sorted(names, key=lambda name: _hash(salt, name))):
                found[name] = HALVES[place % 2]
        if all({family_of(name) for name in found if found[name] == half} == families for half in HALVES):
            return found
    raise ValueError(f"No salt below {SALTS} gives both halves every family: each needs two tasks of it.")


def _hash(salt: int, name: str) -> str:
    return hashlib.sha256(f"{salt} {name}".encode()).hexdigest()
