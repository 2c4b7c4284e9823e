"""The data of the tasks: plain tensors, a few thousand samples, read from the folder of data sets or from scikit-learn.

Text is a tensor of word numbers: a hash of each word, 0 for padding. So no vocabulary has to be made or kept.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UsageError
from unweave.lab.benchmarks import cifar100, clinc150, fashion_mnist, toxigen
from unweave.lab.benchmarks.hierarchy import Hierarchy
from unweave.lab.benchmarks.pixels import decode_images
from unweave.lab.benchmarks.sources import few_of_each
from unweave.lab.benchmarks.text import held_out

WORDS = 4_000
LONGEST = 16
# The superclasses of CIFAR-100 that hold no reporting class (docs/protocol.md).
CIFAR = (
    *("fruit_and_vegetables", "household_electrical_devices", "household_furniture", "large_carnivores"),
    *("large_man-made_outdoor_things", "large_natural_outdoor_scenes", "large_omnivores_and_herbivores"),
    *("medium_mammals", "non-insect_invertebrates", "vehicles_2"),
)


@dataclass(frozen=True, eq=False)
class Part:
    """Training or test data. ``fine`` names the class or group of each sample; ``marked`` is to be forgotten."""

    inputs: Tensor
    labels: Tensor
    fine: np.ndarray[Any, Any]
    marked: np.ndarray[Any, Any]

    @classmethod
    def of(cls, inputs: Any, labels: Any, fine: Any) -> Part:
        """Return a part in which nothing is marked."""
        labels = torch.as_tensor(np.asarray(labels), dtype=torch.long)
        return cls(torch.as_tensor(inputs), labels, np.asarray(fine), np.zeros(len(labels), dtype=bool))

    def only(self, kept: np.ndarray[Any, Any]) -> Part:
        """Return some of the samples."""
        rows = torch.from_numpy(np.flatnonzero(kept))
        return Part(self.inputs[rows], self.labels[rows], self.fine[kept], self.marked[kept])

    def labelled(self, names: Sequence[str]) -> Part:
        """Return the samples with their fine classes as labels, numbered by their place in ``names``."""
        labels = torch.tensor([names.index(name) for name in self.fine])
        return Part(self.inputs, labels, self.fine, self.marked)


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test data, drawn alike."""

    train: Part
    test: Part

    @property
    def classes(self) -> int:
        """The number of labels."""
        return int(self.train.labels.max()) + 1

    @property
    def hash(self) -> str:
        """A fingerprint of everything."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            for values in (part.inputs.numpy(), part.labels.numpy(), part.marked):
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


@lru_cache(maxsize=4)
def fashion(folder: str | None, labels: str = "superclass", *, train: int = 300, test: int = 300) -> Data:
    """Return some garments of each of the ten classes."""
    hierarchy = Hierarchy.load("fashion_mnist")
    parts = []
    for name, few in (("train", train), ("test", test)):
        images, fine = fashion_mnist.read(folder, name, complete=False)
        rows = first_of_each(fine, few, of=len(hierarchy.classes), what=f"fashion-mnist ({name})")
        pixels = (torch.from_numpy(np.array(images[rows])).float() / 255 - 0.286) / 0.353
        label = hierarchy.labels(fine[rows]) if labels == "superclass" else fine[rows]
        parts.append(Part.of(pixels, label, np.asarray(hierarchy.classes)[fine[rows]]))
    return Data(*parts)


@lru_cache(maxsize=4)
def cifar(folder: str | None, labels: str = "superclass", *, train: int = 80, test: int = 60) -> Data:
    """Return some images, at 32 px, of each class of ten superclasses."""
    hierarchy = Hierarchy.load("cifar100")
    chosen = [hierarchy.number(name) for superclass in CIFAR for name in hierarchy.members(superclass)]
    kinds = np.unique(hierarchy.labels(np.asarray(chosen))) if labels == "superclass" else np.unique(chosen)
    parts = []
    for name, few in (("train", train), ("test", test)):
        found = cifar100.SOURCE.read(folder, name, complete=False)
        fine = found.column("fine_label")
        inside = np.flatnonzero(np.isin(fine, chosen))
        rows = inside[first_of_each(fine[inside], few, of=len(chosen), what=f"cifar100 ({name})")]
        pixels = torch.from_numpy(np.array(decode_images(found, "img", size=32)[rows])).float() / 255
        label = np.searchsorted(kinds, hierarchy.labels(fine[rows]) if labels == "superclass" else fine[rows])
        parts.append(Part.of((pixels - 0.48) / 0.27, label, np.asarray(hierarchy.classes)[fine[rows]]))
    return Data(*parts)


def digits(labels: str = "superclass") -> Data:
    """Return scikit-learn's digits, half of each for testing."""
    from sklearn.datasets import load_digits

    from unweave.lab.benchmarks.digits import SUPERCLASSES

    found = load_digits()
    of = {digit: label for label, group in enumerate(SUPERCLASSES.values()) for digit in group}
    label = [of[digit] for digit in found.target] if labels == "superclass" else found.target
    inputs = torch.tensor(found.images / 16, dtype=torch.float32).unsqueeze(1)
    return _halved(inputs, label, found.target.astype(str))


def blobs() -> Data:
    """Return twenty overlapping clusters with four labels."""
    from sklearn.datasets import make_blobs

    points, cluster = make_blobs(8_000, n_features=12, centers=20, cluster_std=3.4, random_state=0)
    return _halved(_scaled(points), cluster % 4, cluster.astype(str))


def regions() -> Data:
    """Return a table of customers of eight regions, each with a shift of its own; labels do not depend on it."""
    from sklearn.datasets import make_classification

    points, label = make_classification(
        8_000, n_features=24, n_informative=12, n_classes=4, n_clusters_per_class=3, random_state=0
    )
    draw = np.random.default_rng(0)
    region = draw.integers(0, 8, len(points))
    return _halved(_scaled(points + draw.normal(size=(8, 24))[region]), label, region.astype(str))


def cancer() -> Data:
    """Return scikit-learn's table of tumours, half of it for testing."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return _halved(_scaled(found.data), found.target, found.target.astype(str))


@lru_cache(maxsize=4)
def clinc(folder: str | None, labels: str = "domain", domains: tuple[str, ...] = (), *, train: int = 50) -> Data:
    """Return questions to an assistant, labelled by domain or intent; of all domains if none is named."""
    hierarchy = Hierarchy.load("clinc150")
    chosen = [
        hierarchy.number(name) for domain in domains or hierarchy.superclasses for name in hierarchy.members(domain)
    ]
    by_domain = hierarchy.labels(np.arange(len(hierarchy.classes)))
    kinds = np.unique(by_domain[chosen]) if labels == "domain" else np.unique(chosen)
    parts = []
    for name, few in (("train", train), ("test", 30)):
        texts, fine = clinc150.read(folder, name, hierarchy, complete=True)
        inside = np.flatnonzero(np.isin(fine, chosen))
        rows = inside[few_of_each(fine[inside], few)]
        label = np.searchsorted(kinds, by_domain[fine[rows]] if labels == "domain" else fine[rows])
        parts.append(Part.of(numbered(texts[rows]), label, np.asarray(hierarchy.classes)[fine[rows]]))
    return Data(*parts)


@lru_cache(maxsize=4)
def toxic(folder: str | None) -> Data:
    """Return the sentences of ToxiGen that people rated, toxic or not; three tenths of each group for testing."""
    texts, groups, label = toxigen.read(folder, complete=True)
    chosen = held_out(texts, (2 * groups + label).tolist(), share=0.3, seed=0)
    ids, names = numbered(texts), np.asarray(toxigen.GROUPS)[groups]
    return Data(*(Part.of(ids[mask], label[mask], names[mask]) for mask in (~chosen, chosen)))


def numbered(texts: Sequence[str]) -> Tensor:
    """Return the numbers of the words of each sentence, cut or padded to one length.

    >>> numbered(["a b a"])[0, :4].tolist()
    [1063, 1329, 1063, 0]
    """
    rows = torch.zeros(len(texts), LONGEST, dtype=torch.long)
    for row, text in zip(rows, texts, strict=True):
        words = [2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in text.lower().split()][:LONGEST] or [1]
        row[: len(words)] = torch.tensor(words)
    return rows


def first_of_each(fine: Any, few: int, *, of: int, what: str) -> Any:
    """Return the positions of the first samples of every class, in order.

    A copy with only these samples will do as well as the whole data set; one that lacks some raises an error.
    """
    rows = few_of_each(fine, few)
    if len(rows) != few * of:
        raise UsageError(f"{what} has fewer than {few} samples of some of the {of} classes. Take a complete copy.")
    return rows


def _scaled(points: Any) -> Tensor:
    return torch.tensor((points - points.mean(0)) / points.std(0), dtype=torch.float32)


def _halved(inputs: Tensor, labels: Any, fine: Any) -> Data:
    """Divide every fine class into a training and a test half."""
    from sklearn.model_selection import train_test_split

    both = train_test_split(np.arange(len(inputs)), test_size=0.5, random_state=0, stratify=fine)
    labels, fine = np.asarray(labels), np.asarray(fine)
    return Data(*(Part.of(inputs[rows], labels[rows], fine[rows]) for rows in map(np.sort, both)))
