"""Files of a release: workflows, templates, and one version everywhere."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

import unweave
from tests.helpers.places import ROOT

GITHUB = ROOT / ".github"
pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="a source distribution has no .github")
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def workflow(name):
    return read(GITHUB / "workflows" / f"{name}.yml")


def steps_of(content):
    return [step for job in content["jobs"].values() for step in job["steps"]]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_is_sound(file):
    content = read(file)
    rights = content["permissions"]
    assert rights in ({}, {"contents": "read"}), "jobs ask for more by themselves"
    for job in content["jobs"].values():
        waits = job.get("needs", [])
        assert {waits} if isinstance(waits, str) else set(waits) <= set(content["jobs"])
    for step in steps_of(content):
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[\w./-]+", step.get("uses", "a/b@c"))
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        for target in re.findall(r"make ([a-z -]+)", step.get("run", "")):
            for name in target.split():
                assert re.search(rf"(?m)^{name}:", (ROOT / "Makefile").read_text()), name
    assert "secrets." not in file.read_text(encoding="utf-8")


def test_every_system_and_python_that_the_package_names_is_tested():
    matrix = workflow("tests")["jobs"]["tests"]["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["system"]] == ["ubuntu", "macos", "windows"]
    named = [line.rpartition(" ")[2] for line in project()["classifiers"] if "Python :: 3." in line]
    assert matrix["python"] == named == ["3.11", "3.12", "3.13", "3.14"]
    assert project()["requires-python"] == f">={named[0]}"


def test_a_release_is_built_twice_signed_and_published_without_a_password():
    jobs = workflow("release")["jobs"]
    assert list(jobs) == ["build", "sign", "index"]
    assert "diff --recursive" in str(jobs["build"])
    assert jobs["sign"]["permissions"]["id-token"] == "write"
    assert jobs["index"]["permissions"] == {"id-token": "write"}
    assert "gh-action-pypi-publish" in jobs["index"]["steps"][-1]["uses"]
    assert "with" not in jobs["index"]["steps"][-1]


def test_the_version_is_the_same_everywhere():
    assert read(ROOT / "CITATION.cff")["version"] == unweave.__version__
    newest = re.search(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1]
    assert newest == unweave.__version__


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_a_template_asks_in_fields_that_github_knows(name):
    content = read(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert {"name", "description", "body"} <= set(content)
    for field in content["body"]:
        assert field["type"] in ("textarea", "input", "markdown", "dropdown", "checkboxes")
        assert field["attributes"]["label"]


@pytest.mark.parametrize("name", ["CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"])
def test_a_file_that_people_look_for_is_there_and_in_the_source_distribution(name):
    assert (ROOT / name).stat().st_size > 300
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    assert name in include["include"]
