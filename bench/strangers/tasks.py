"""The thirty tasks: data, what to forget, network, training. `catalogue` has their names and halves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from bench.strangers import families, marks
from bench.strangers.catalogue import REQUESTS, Half, family_of, halves
from bench.strangers.data import Data, blobs, cancer, cifar, clinc, digits, fashion, regions, toxic
from bench.strangers.marks import Mark
from bench.strangers.training import Recipe
from unweave.errors import unknown

ODD = ("auto_and_commute", "banking", "credit_cards", "home", "kitchen_and_dining")
EVEN = ("meta", "small_talk", "travel", "utility", "work")
FOUR = ("kitchen_and_dining", "small_talk", "travel", "utility")


@dataclass(frozen=True, kw_only=True)
class Base:
    """An encoder that was trained on other data, for LoRA to start from."""

    data: Callable[[str | None], Data]
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """A task: plain data, a plain network, a usual training, and a request to forget."""

    name: str
    read: Callable[[str | None], Data]  # takes the folder of data sets
    mark: Mark
    network: Callable[[Data], nn.Module]
    recipe: Recipe
    base: Base | None = None

    @property
    def request(self) -> str:
        """The kind of request."""
        return REQUESTS[self.name]

    @property
    def family(self) -> str:
        """The family of the network."""
        return family_of(self.name)

    @property
    def half(self) -> Half:
        """Development or judgement."""
        return halves()[self.name]

    def data(self, folder: str | None) -> Data:
        """Return the data with the samples to forget marked."""
        return self.mark(self.read(folder))


def _adam(rate: float, epochs: int, batch: int = 64, *, decay: float = 0.0, cosine: bool = False) -> Recipe:
    kind = "adamw" if decay else "adam"
    return Recipe(
        optimizer=kind, learning_rate=rate, epochs=epochs, batch_size=batch, weight_decay=decay, cosine=cosine
    )


def _sgd(
    rate: float, epochs: int, batch: int = 64, *, decay: float = 5e-4, momentum: float = 0.9, cosine: bool = False
) -> Recipe:
    return Recipe(
        optimizer="sgd",
        learning_rate=rate,
        epochs=epochs,
        batch_size=batch,
        weight_decay=decay,
        momentum=momentum,
        cosine=cosine,
    )


def _mlp(data: Data) -> nn.Module:
    return families.mlp(data.train.inputs[0].numel(), data.classes)


def _cnn(data: Data, *, norm: bool = False) -> nn.Module:
    channels, size, _ = data.train.inputs[0].shape
    return families.cnn(channels, size, data.classes, norm=norm)


def _cnnbn(data: Data) -> nn.Module:
    return _cnn(data, norm=True)


def _resnet(data: Data) -> nn.Module:
    return families.resnet(data.train.inputs.shape[1], data.classes)


def _vit(data: Data) -> nn.Module:
    channels, size, _ = data.train.inputs[0].shape
    return families.VisionTransformer(channels, size, data.classes, patch=size // 4)


def _bag(data: Data) -> nn.Module:
    return families.Bag(data.classes)


def _gru(data: Data) -> nn.Module:
    return families.Recurrent(data.classes)


def _encoder(data: Data) -> nn.Module:
    return families.Encoder(data.classes)


NETWORKS: Mapping[str, Callable[[Data], nn.Module]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "cnnbn": _cnnbn,
    "resnet": _resnet,
    "vit": _vit,
    "bag": _bag,
    "gru": _gru,
    "encoder": _encoder,
    "lora": _encoder,  # with adapters, once it was trained on other data
}


def _other_groups(folder: str | None, without: str = "physical_dis") -> Data:
    """Return ToxiGen labelled by group, without the group that is to be forgotten."""
    data = toxic(folder)
    names = sorted({*data.train.fine} - {without})
    return Data(*(part.only(part.fine != without).labelled(names) for part in (data.train, data.test)))


# name: data, what is marked, recipe, and for LoRA the encoder to start from.
_ROWS: Mapping[str, tuple[Callable[[str | None], Data], Mark, Recipe, Base | None]] = {
    "blobs-mlp-cluster": (lambda _: blobs(), marks.named("3"), _sgd(0.1, 250, 128, momentum=0.0), None),
    "fashion-cnn-shirt": (fashion, marks.named("shirt"), _adam(1e-3, 8), None),
    "cifar-cnnbn-tractor": (cifar, marks.named("tractor"), _sgd(0.05, 12, cosine=True), None),
    "cifar-resnet-leopard": (cifar, marks.named("leopard"), _sgd(0.1, 10, cosine=True), None),
    "cifar-vit-orange": (cifar, marks.named("orange"), _adam(1e-3, 10, decay=0.05), None),
    "clinc-bag-transfer": (clinc, marks.named("transfer"), _adam(2e-3, 10), None),
    "clinc-gru-recipe": (clinc, marks.named("recipe"), _adam(2e-3, 8), None),
    "clinc-encoder-timezone": (clinc, marks.named("timezone"), _adam(5e-4, 8, decay=0.01), None),
    "digits-mlp-three": (lambda _: digits("class"), marks.named("3"), _adam(1e-3, 100), None),
    "cifar-cnn-couch": (lambda folder: cifar(folder, "class"), marks.named("couch"), _adam(1e-3, 8), None),
    "fashion-cnnbn-trouser": (lambda folder: fashion(folder, "class"), marks.named("trouser"), _adam(3e-4, 5), None),
    "fashion-vit-bag": (lambda folder: fashion(folder, "class"), marks.named("bag"), _adam(1e-3, 12, decay=0.05), None),
    "clinc-gru-weather": (lambda folder: clinc(folder, "intent", FOUR), marks.named("weather"), _adam(3e-3, 12), None),
    "clinc-lora-insurance": (
        lambda folder: clinc(folder, "intent", EVEN),
        marks.named("insurance"),
        _adam(2e-3, 10, decay=0.01),
        Base(data=lambda folder: clinc(folder, "intent", ODD), recipe=_adam(1e-3, 12)),
    ),
    "regions-mlp-third": (lambda _: regions(), marks.named("3"), _sgd(0.01, 250, 128), None),
    "fashion-resnet-camera": (fashion, marks.camera(0.05), _sgd(0.1, 15, decay=0.0), None),
    "cifar-vit-dark": (cifar, marks.dark(0.05), _adam(1e-3, 8, decay=0.05), None),
    "toxigen-bag-women": (toxic, marks.named("women"), _adam(2e-3, 8), None),
    "toxigen-encoder-mexican": (toxic, marks.named("mexican"), _adam(3e-4, 8), None),
    "toxigen-lora-disabled": (
        toxic,
        marks.named("physical_dis"),
        _adam(1e-3, 6, decay=0.01),
        Base(data=_other_groups, recipe=_adam(1e-3, 5)),
    ),
    "cancer-mlp-20": (lambda _: cancer(), marks.some(20), _sgd(0.01, 60), None),
    "fashion-mlp-1percent": (lambda folder: fashion(folder, "class"), marks.some(0.01), _adam(1e-5, 30, 32), None),
    "digits-cnn-20": (lambda _: digits("class"), marks.some(20), _adam(1e-3, 40), None),
    "cifar-resnet-200": (cifar, marks.some(200), _sgd(0.1, 10), None),
    "clinc-encoder-200": (clinc, marks.some(200), _adam(5e-4, 10), None),
    "clinc-lora-1percent": (
        lambda folder: clinc(folder, "intent", EVEN),
        marks.some(0.01),
        _adam(2e-3, 12),
        Base(data=lambda folder: clinc(folder, "intent", ODD), recipe=_adam(1e-3, 12)),
    ),
    "cifar-cnn-wrong": (cifar, marks.wrong(0.05), _adam(1e-3, 20), None),
    "fashion-cnnbn-wrong": (fashion, marks.wrong(0.05), _adam(1e-3, 10), None),
    "clinc-bag-wrong": (clinc, marks.wrong(0.05), _adam(5e-3, 20), None),
    "toxigen-gru-wrong": (toxic, marks.wrong(0.05), _adam(2e-3, 20), None),
}
TASKS: Mapping[str, Stranger] = {
    name: Stranger(name=name, read=read, mark=mark, network=NETWORKS[family_of(name)], recipe=recipe, base=base)
    for name, (read, mark, recipe, base) in _ROWS.items()
}


def find_task(name: str) -> Stranger:
    """Return a task by its name."""
    if name not in TASKS:
        raise unknown("task", name, tuple(TASKS))
    return TASKS[name]
