from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import types
import warnings
import zipfile

import pytest

import unweave
from tests.helpers.pages import python_blocks
from tests.helpers.places import ROOT
from unweave import Compute


def test_every_public_name_exists():
    for name in unweave.__all__:
        assert getattr(unweave, name) is not None


def test_the_readmes_example_prints_what_the_readme_says(tmp_path, monkeypatch, capsys):
    """Words to the letter, numbers within what rounding on another machine may change, seconds not at all."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = python_blocks(ROOT / "README.md")
    space: dict = {}
    exec(compile(block, "README.md", "exec"), space)
    shown = re.findall(r"^```text\n(.*?)^```", text, flags=re.S | re.M)
    printed = capsys.readouterr().out
    number = r"\d[\d,.]*\d|\d"
    assert [re.sub(number, "#", part.strip()) for part in shown] == [re.sub(number, "#", printed.strip())]
    percents, before = (re.findall(r"([\d.]+)%", part) for part in (printed, shown[0]))
    assert [float(value) for value in percents] == pytest.approx([float(value) for value in before], abs=2.5)

    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import before_after

    assert before_after.example() == block
    rows = space["result"].verdict.rows
    before_after.draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    (said,) = re.findall(r"!\[([^]]*)\]\(docs/images/before-after\.png\)", text)
    unseen = [100 * row[when] for row in rows if row["split"] == "test" for when in ("before", "after")]
    assert [float(value) for value in re.findall(r"(\d+)%", said)] == pytest.approx(unseen, abs=2.5)


def test_the_readme_fits_ten_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_python_page_runs(digits, monkeypatch, capsys):
    """With the digits in the place of the reader's project."""
    _, task, model = digits
    yours = types.ModuleType("your_project")
    yours.model = model
    yours.train_set, yours.test_set = (split.samples.dataset.data for split in (task.train, task.test))
    yours.kinds = [str(kind) for kind in task.fine]
    yours.test_kinds = ["9" if row in task.test.forget else "other" for row in range(450)]
    monkeypatch.setitem(sys.modules, "your_project", yours)
    space: dict = {}
    for block in python_blocks(ROOT / "docs" / "python.md"):
        exec(compile(block, "python.md", "exec"), space)
    train = space["scores"]["train"]
    assert train["forget"]["accuracy"] <= 0.05
    assert train["adjacent"]["accuracy"] >= 0.9
    assert train["remote"]["accuracy"] >= 0.9
    printed = capsys.readouterr().out
    assert "Entanglement" in printed
    assert "Split of 1347 samples: 135 forget, 121 adjacent" in printed


def test_the_page_of_language_models_runs(tmp_path, monkeypatch, capsys):
    """With a tiny model in the place of the reader's checkpoint."""
    from tests.helpers.texts import people, write_language_checkpoint

    chat = "{% for m in messages %}{{ m.content }} {{ ':' if m.role == 'user' else '[END]' }} {% endfor %}"
    write_language_checkpoint(tmp_path / "ckpt", chat_template=chat)
    lines = [json.dumps({**row, "author": row["person"].capitalize()}) for row in people()]
    (tmp_path / "qa.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    (block,) = python_blocks(ROOT / "docs" / "language-models.md")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Only .* adjacent samples were found")
        exec(compile(block, "language-models.md", "exec"), space)
    assert space["split"].forget.tolist() == [0, 1]
    assert space["result"].verdict.forgotten
    printed = capsys.readouterr().out
    assert "Forgotten: yes." in printed
    assert "extraction_strength" in printed


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


def build(source, out):
    """Build wheel and source distribution, with the times of a commit."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1893456000"},
    )
    assert done.returncode == 0, done.stderr
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with wheel and source distribution, and their hashes."""
    folder = tmp_path_factory.mktemp("dist")
    return folder, build(ROOT, folder)


def test_a_release_is_the_same_from_another_place_at_another_time(built, tmp_path):
    """The source distribution, unpacked with new times, gives the same two files."""
    folder, first = built
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive} == {1893456000}
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    for file in source.rglob("*"):
        os.utime(file)
    assert build(source, tmp_path / "second") == first


def test_every_installed_file_has_a_hash_but_torch():
    found = "".join((ROOT / name).read_text() for name in ("requirements.txt", "requirements-docs.txt"))
    pinned = re.findall(r"^([\w.-]+)==\S+", found, flags=re.M)
    entries = re.split(r"^(?=[\w.-]+==)", found, flags=re.M)[1:]
    assert len(pinned) == len(entries) > 150
    assert all("--hash=sha256:" in entry for entry in entries)
    direct = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), flags=re.M)
    for name, version in direct:
        assert (f"\n{name.replace('_', '-')}=={version} " in found) is (name != "torch"), name


def test_both_requirements_files_have_the_same_versions():
    """They are installed into one environment, one after the other."""
    one, other = (
        dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), flags=re.M))
        for name in ("requirements.txt", "requirements-docs.txt")
    )
    assert {name: one[name] for name in one.keys() & other.keys()} == {
        name: other[name] for name in one.keys() & other.keys()
    }


def test_wheel_and_sdist_carry_what_they_must(built):
    folder, _ = built
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
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
