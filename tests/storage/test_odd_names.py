"""Names in files and on the command line that no file can have. The fuzzing harness found these."""

from __future__ import annotations

import json
import os

import pytest
import torch

from unweave import Split, UsageError, load_weights


def test_an_index_that_names_a_file_with_too_long_a_name_is_refused(tmp_path):
    index = {"weight_map": {"weight": "a" * 300 + ".safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="cannot be read"):
        load_weights(torch.nn.Linear(2, 2), tmp_path)


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    """As root, a file took the place of the device that was named."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    split = Split((torch.zeros(4, 1), torch.arange(4)), forget=[0], adjacent=[1])
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match="a folder, a pipe or a device"):
            split.save(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_what_is_no_name_of_a_file_is_refused(unweave_command):
    split = Split((torch.zeros(4, 1), torch.arange(4)), forget=[0], adjacent=[1])
    with pytest.raises(UsageError, match="is not the name of a file"):
        split.save("/")
    for place in ("/", "."):
        code, _, err = unweave_command("convert", place)
        assert (code, err.startswith("unweave: ")) == (2, True), err
        code, _, err = unweave_command("record", "keygen", place)
        assert (code, "is not the name of a file" in err) == (2, True), err
