"""What every adapter shares. It runs in the peer's environment, so it imports only torch and safetensors.

An adapter is called as `python ADAPTER CASE OUT METHOD SETTINGS PLACE`: the folder of the case, the folder for its
answer, the peer's name of the method, settings as JSON, and the peer's checkout or unpacked wheel. It leaves
`weights.safetensors` and `said.json` in OUT.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import platform
import random
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


@dataclass
class Given:
    """The case and the request, as an adapter reads them."""

    case: Path
    out: Path
    method: str
    settings: dict[str, Any]
    place: Path
    gradients: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def read(cls, words: Sequence[str]) -> Given:
        """Parse the five command-line arguments, and seed all random generators."""
        case, out, method, settings, place = words
        given = cls(Path(case), Path(out), method, json.loads(settings), Path(place))
        given.about = json.loads((given.case / "about.json").read_text(encoding="utf-8"))
        given.tensors = load_file(given.case / "data.safetensors")
        sys.path.insert(0, str(given.place))
        seed = given.about["seed"]
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # peers draw from the global generator
        return given

    def network(self) -> nn.Module:
        """Return the network with the original's weights; it counts samples whose gradients are asked for."""
        network: nn.Module = torch.load(self.case / "network.pt", weights_only=False)
        network.load_state_dict(load_file(self.case / "original.safetensors"))
        network.register_forward_hook(self._count)
        return network

    def inputs(self, part: str, *subsets: str) -> Tensor:
        """Return the inputs of subsets as the network takes them."""
        shape = (1, -1) + (1,) * (self.tensors[f"{part}.inputs"].dim() - 2)
        mean, std = (torch.tensor(self.about[key]).view(shape) for key in ("mean", "std"))
        return (self.tensors[f"{part}.inputs"][self.rows(part, *subsets)].float() / self.about["divide"] - mean) / std

    def labels(self, part: str, *subsets: str) -> Tensor:
        """Return the labels of subsets."""
        return self.tensors[f"{part}.labels"][self.rows(part, *subsets)]

    def rows(self, part: str, *subsets: str) -> Tensor:
        """Return the positions of subsets in the data."""
        return torch.cat([self.tensors[f"{part}.{subset}"] for subset in subsets])

    def answer(self, run: Callable[[], nn.Module], packages: Sequence[str], **more: Any) -> None:
        """Run the method, time it, and write the weights and what is to be said."""
        begun, busy = time.perf_counter(), time.process_time()
        network = run()
        spent = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - busy}
        weights = {key: value.detach().clone().contiguous() for key, value in network.state_dict().items()}
        save_file(weights, self.out / "weights.safetensors")
        said = {
            **{key: round(value, 2) for key, value in spent.items()},
            "gradients": self.gradients,
            "versions": {"python": platform.python_version(), **_versions(packages)},
            **more,
        }
        (self.out / "said.json").write_text(json.dumps(said) + "\n", encoding="utf-8")

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            self.gradients += len(inputs[0])


class Anything(type):
    """A class that has every attribute and takes every argument: what a peer imports and never uses here."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: Any, **named: Any) -> Any:
        """Return the class again, whatever is given."""
        return cls


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives an empty module for every package named, with the parts that are named.

    torchvision does not import beside the environment's torch, and no method here needs more of it than the parts.
    """

    def __init__(self, *packages: str, **parts: Any) -> None:
        self.packages, self.parts = packages, parts
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find the packages that are stood in for, and everything in them."""
        mine = name.partition(".")[0] in self.packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return a module that has an attribute of every name."""
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Put the named parts into it."""
        module.__path__ = []
        vars(module).update(self.parts)


class _Empty(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
