"""Signed runs on record, with everything that went into them: one made now, and one that older code wrote."""

from __future__ import annotations

import warnings

import safetensors.torch
import torch
from torch import nn

from tests.helpers.calling import unlearn_on_record
from tests.helpers.places import ROOT
from unweave import Compute, Request, Split, evaluate
from unweave.record import (
    certificate_of,
    generate,
    load_public,
    model_after,
    read_exact,
    read_proofs,
    read_record,
    with_exact,
)
from unweave.runs import load_weights

FAST = {"guard": None, "stage1_learning_rate": 1e-2, "stage2_epochs": 1, "compute": Compute("cpu")}
OLD = ROOT / "tests" / "record" / "data" / "version-1"  # see tests/record/test_old_record.py
OLD_RUN = OLD / "run"


def make_data():
    labels = torch.arange(60) // 20
    centres = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 2
    return centres[labels] + torch.randn(60, 5, generator=torch.Generator().manual_seed(2)), labels


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def make_split(data):
    return Split(data, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))


class Run:
    """A signed run on record, with everything that went into it."""

    def __init__(self, folder):
        self.folder, self.key = folder, folder / "key"
        self.public = load_public(generate(self.key))
        self.data, self.model = make_data(), make_model().eval()
        self.split = make_split(self.data)
        request = Request(id="2031-17", text="Ümit's eight points by mail", key=self.key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.result = unlearn_on_record(
                self.model,
                self.split,
                "two-stage",
                profile="released",
                out=folder / "one",
                test=self.split,
                request=request,
                seed=5,
                **FAST,
            )
        self.file = folder / "one" / "record.json"
        self.record = read_record(self.file)
        self.proofs = read_proofs(folder / "one" / "forget-proofs.json")
        self.exact = read_exact(folder / "one" / "exact-scores.json")
        self.whole = with_exact(self.record, self.exact)  # as only its owner sees it


class OldRun:
    """An old run: its record, its proofs, its data and its models."""

    def __init__(self):
        tensors = safetensors.torch.load_file(OLD / "data.safetensors")
        self.data = tensors["inputs"], tensors["labels"]
        self.split = Split.load(OLD_RUN / "split.json", self.data)
        self.test = Split.load(OLD_RUN / "test-split.json", self.data)
        self.record, self.proofs = read_record(OLD_RUN / "record.json"), read_proofs(OLD_RUN / "forget-proofs.json")
        self.public = load_public(OLD / "key.pub")
        self.original = load_weights(make_model(), OLD / "original.safetensors").eval()
        self.model = load_weights(make_model(), OLD_RUN).eval()

    def scores(self):
        kept = certificate_of(self.record["configuration"], lambda phase: model_after(OLD_RUN, make_model(), phase))
        return evaluate(
            self.model, self.split, self.test, original=self.original, certificate=kept, compute=Compute("cpu")
        )
