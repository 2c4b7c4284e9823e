"""What errors of `unlearn` advise, each with a case that fails by it and the same case with the advice followed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import unweave as uw

HOW: dict[str, Any] = {"compute": uw.Compute("cpu"), "guard": None, "callbacks": [uw.Progress(show=False)]}
SHORT = {"epochs": 1, "batch_size": 16}
PARTS: dict[str, Any] = {"forget": range(6), "adjacent": range(6, 18), "remote": range(18, 48)}


@dataclass(frozen=True)
class Advised:
    """A piece of advice, the call that fails and says it, and the call that follows it."""

    advice: str
    fails: Callable[[], Any]
    follows: Callable[[], Any]


def inputs() -> torch.Tensor:
    return torch.randn((48, 5), generator=torch.Generator().manual_seed(1))


def classes() -> torch.Tensor:
    return torch.arange(48) % 3


def quantities() -> torch.Tensor:
    return inputs()[:, :1] * 3 + 1


def several() -> torch.Tensor:
    return (inputs()[:, :3] > 0).float()


def split(labels: Any = None, data: Any = None, **more: Any) -> uw.Split:
    given = (inputs(), classes() if labels is None else labels) if data is None else data
    return uw.Split(given, **{**PARTS, **more})


def linear(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, outputs))


def run(model: nn.Module | None = None, some: uw.Split | None = None, method: Any = "ga", **more: Any) -> uw.Result:
    """Call `unlearn` briefly."""
    short = SHORT if isinstance(method, str) and method not in BRIEF else BRIEF.get(method, {})
    given = {**HOW, **(short if isinstance(method, str) else {}), **more}
    return uw.unlearn(linear() if model is None else model, split() if some is None else some, method, **given)


BRIEF: dict[Any, dict[str, Any]] = {
    "two-stage": {"stage1_epochs": 1, "stage2_epochs": 1},
    "adaptive": {"effort": 1.0, "least_steps": 4},
    "ssd": {},
}


# Models and data with something odd about them


class Extra(nn.Linear):
    """A model with state of its own that is a number, or a tensor."""

    def __init__(self, kind: Callable[[float], Any]) -> None:
        super().__init__(5, 3)
        self.kind = kind

    def get_extra_state(self) -> Any:
        return self.kind(1.0)

    def set_extra_state(self, state: Any) -> None:
        pass


class Embedded(nn.Module):
    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.words(tokens).mean(dim=1))
        return found


def embedded(*, sparse: bool) -> uw.Result:
    return run(Embedded(sparse=sparse), split(data=(torch.arange(96).view(48, 2) % 9, classes())))


def odd_model(**said: Any) -> nn.Module:
    """A model with attributes as transformers sets them."""
    model = linear()
    for name, value in said.items():
        setattr(model, name, value)
    return model


def normed(how: Callable[[nn.Module], nn.Module]) -> nn.Module:
    model = nn.Sequential(how(nn.Linear(5, 3)))
    model(torch.zeros(1, 5))
    return model


def half() -> nn.Module:
    return linear().to(torch.bfloat16)


def on_meta(*, loaded: bool) -> nn.Module:
    with torch.device("meta"):
        model = linear()
    return model.to_empty(device="cpu").apply(_reset) if loaded else model


def _reset(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.reset_parameters()


class Rows(Dataset[Any]):
    """Samples one by one, perhaps changed by a transform."""

    def __init__(self, transform: Callable[[int, Any], Any] = lambda _, sample: sample) -> None:
        self.pairs, self.transform = list(zip(inputs(), classes(), strict=True)), transform

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> Any:
        return self.transform(place, self.pairs[place])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(Rows())


def longer(place: int, sample: Any) -> Any:
    return torch.cat([sample[0], torch.zeros(place % 2)]), sample[1]


def padded(samples: list[Any]) -> Any:
    return torch.stack([values[:5] for values, _ in samples]), torch.stack([label for _, label in samples])


class Named(Dataset[Any]):
    """Samples as mappings, perhaps with a further column."""

    def __init__(self, **more: Any) -> None:
        self.more = more

    def __len__(self) -> int:
        return 48

    def __getitem__(self, place: int) -> Any:
        return {"values": inputs()[place], "labels": classes()[place], **self.more}


class Keyed(nn.Module):
    """A model that takes what it needs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, values: torch.Tensor, made: torch.Tensor | None = None) -> torch.Tensor:
        found: torch.Tensor = self.layer(values if made is None else values + made)
        return found


def strict(samples: list[Any]) -> Any:
    """A collator that rejects values other than tensors, like a tokenizer's."""
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


class Headless(nn.Module):
    """A model whose outputs are those of no linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.rest = nn.Parameter(torch.ones(5, 3)), nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rest(values @ self.weight)
        return found


def saved_split(data: Any) -> uw.Split:
    """Load a split that was saved for all of the data."""
    with tempfile.TemporaryDirectory() as folder:
        split().save(Path(folder) / "split.json")
        return uw.Split.load(Path(folder) / "split.json", data)


def resumed() -> uw.Result:
    """Stop a run in a folder, and resume it there."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = linear(), Path(folder) / "run"
        try:
            run(model, out=out, callbacks=[uw.StopWhen(lambda: True), uw.Progress(show=False)], epochs=5)
        except uw.Stopped:
            return run(model, out=out, resume=True, epochs=5)
    raise AssertionError("the run was not stopped")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(torch.cat([left, right], dim=1))
        return found


class Pixels(nn.Module):
    """A model that gives a row of scores for each place of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(values[..., None])
        return found


def by_pixel(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).mT, batch[1], reduction="none").mean(dim=1)


def by_output(model: nn.Module, batch: Any) -> torch.Tensor:
    return (model(batch[0]) - batch[1][..., 0]).square().mean(dim=1)


def squared(model: nn.Module, batch: Any, *, reduction: str = "none") -> torch.Tensor:
    losses = (model(batch[0])[:, 0] - batch[1][:, 0]).square()
    return losses if reduction == "none" else losses.mean()


def broken(*, repaired: bool) -> uw.Split:
    values = inputs()
    values[20, 0] = torch.nan
    return split(data=(values.nan_to_num() if repaired else values, classes()))


def huge(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        [*model.modules()][1].weight[0, 0] = torch.inf  # type: ignore[index,operator]
    return model


class Spare(nn.Linear):
    """A model with a layer that counts for nothing."""

    def __init__(self) -> None:
        super().__init__(5, 3)
        self.spare = nn.Linear(2, 2)


def steady(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.nan_to_num_(0, 0, 0)
    return model


def frozen() -> nn.Module:
    return linear().requires_grad_(False)


def thawed() -> nn.Module:
    model = frozen()
    model[2].requires_grad_(True)  # type: ignore[index]
    return model


def gradients_off(*, outside: bool) -> uw.Result:
    with torch.no_grad():
        model = linear()
        if not outside:
            return run(model)
    return run(model)


def tensors(*, as_mapping: bool) -> uw.Result:
    left, right = inputs(), inputs() + 1
    whole: Any = TensorDataset(left, right, classes(), torch.zeros(48))
    if as_mapping:
        whole = {"left": left, "right": right, "labels": classes()}
    return run(Two(), split(data=whole))
