from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import textwrap
import types
import zipfile

import pytest

import unweave
from tests.helpers.places import ROOT
from unweave import Compute


def test_every_public_name_exists():
    for name in unweave.__all__:
        assert getattr(unweave, name) is not None


def python_blocks(path):
    """Return the Python examples of a Markdown file, indented ones included."""
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", path.read_text(), flags=re.S | re.M)
    assert blocks
    return [textwrap.dedent(body) for _, body in blocks]


def test_the_readmes_python_runs(digits, monkeypatch, capsys):
    """With the digits in the place of the reader's project."""
    _, task, model = digits
    yours = types.ModuleType("your_project")
    yours.model = model
    yours.train_set, yours.test_set = (split.samples.dataset.data for split in (task.train, task.test))
    yours.kinds = [str(kind) for kind in task.fine]
    yours.test_kinds = ["9" if row in task.test.forget else "other" for row in range(450)]
    monkeypatch.setitem(sys.modules, "your_project", yours)
    space: dict = {}
    for block in python_blocks(ROOT / "README.md"):
        exec(compile(block, "README.md", "exec"), space)
    train = space["scores"]["train"]
    assert train["forget"]["accuracy"] <= 0.05
    assert train["adjacent"]["accuracy"] >= 0.9
    assert train["remote"]["accuracy"] >= 0.9
    printed = capsys.readouterr().out
    assert "Entanglement" in printed
    assert "Split of 1347 samples: 135 forget, 121 adjacent" in printed


def test_the_method_of_the_contributors_guide_works(model, split):
    """The example of CONTRIBUTING.md, as a third party would write it."""
    (block,) = python_blocks(ROOT / "CONTRIBUTING.md")
    space: dict = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), space)
    losses = unweave.unlearn(model, split, method=space["Ascend"](rate=0.1), compute=Compute("cpu")).history.column(
        "forget_loss"
    )
    assert losses == sorted(losses)
    assert losses[-1] > losses[0]


def test_wheel_and_sdist_carry_what_they_must(tmp_path):
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "unweave/py.typed" in names
    assert "unweave/lab/benchmarks/tuned/digits.json" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (metadata,) = [name for name in names if name.endswith("METADATA")]
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert f"Version: {unweave.__version__}" in text
    assert "License-Expression: Apache-2.0" in text
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
    assert any(name.endswith("src/unweave/py.typed") for name in inside)
    assert any(name.endswith("/LICENSE") for name in inside)


def test_the_changelog_knows_this_version():
    assert f"## {unweave.__version__}" in (ROOT / "CHANGELOG.md").read_text()
