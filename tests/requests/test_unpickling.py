"""`unweave convert`: pickled weights become safetensors, and nothing that a pickle holds is run."""

from __future__ import annotations

import os

import pytest
import safetensors.torch
import torch

from tests.helpers.own_files import sentences, transformers, write_table, write_text_checkpoint
from unweave import Request, UsageError
from unweave.requests import convert_weights


class Runs:
    """Makes a folder when it is unpickled by a reader that runs code."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def test_a_converted_checkpoint_runs_as_the_refusal_said(tmp_path, shell):
    write_text_checkpoint(tmp_path / "ckpt")
    weights = safetensors.torch.load_file(tmp_path / "ckpt" / "model.safetensors")
    (tmp_path / "ckpt" / "model.safetensors").unlink()
    pickled = tmp_path / "ckpt" / "pytorch_model.bin"
    torch.save(weights, pickled)
    data = str(write_table(tmp_path / "train.parquet", sentences()))
    with pytest.raises(UsageError, match="unweave convert") as refused:
        Request(model=str(tmp_path / "ckpt"), train=data, forget=["r1"]).find()
    command = str(refused.value).partition("unweave convert ")[2]
    assert shell("convert", command).code == 0
    found = safetensors.torch.load_file(tmp_path / "ckpt" / "model.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ckpt")
    again = shell("convert", str(pickled))
    assert (again.code, "exists already" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(2), "epoch": 3}, r"also 'epoch', a int"),
        ([torch.ones(2)], r"it holds a list, not tensors by name"),
    ],
)
def test_a_file_with_more_than_tensors_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "odd.pt")
    with pytest.raises(UsageError, match=message):
        convert_weights(tmp_path / "odd.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["odd.pt"]


def test_code_in_a_pickle_is_never_run(tmp_path):
    torch.save({"weight": Runs(tmp_path / "it-ran")}, tmp_path / "evil.pt")
    with pytest.raises(UsageError, match=r"holds more than tensors. It would run \w+\.mkdir\.") as refused:
        convert_weights(tmp_path / "evil.pt", tmp_path / "out.safetensors")
    assert "weights_only" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["evil.pt"]


def test_tied_and_nested_weights_are_written(tmp_path):
    tied = torch.ones(2, 2)
    torch.save({"state_dict": {"a": tied, "b": tied.t()}, "epoch": 7}, tmp_path / "checkpoint.ckpt")
    found = safetensors.torch.load_file(convert_weights(tmp_path / "checkpoint.ckpt"))
    assert sorted(found) == ["a", "b"]
