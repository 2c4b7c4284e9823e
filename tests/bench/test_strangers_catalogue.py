"""The halves of the suite of strangers are those that the protocol was written with."""

import hashlib

import pytest
from bench.strangers.catalogue import REQUESTS, family_of, halves

from tests.helpers.places import ROOT


def test_the_halves_never_change():
    text = "\n".join(f"{name} {half}" for name, half in sorted(halves().items()))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "490bc6cb0347f3b0"


def test_both_halves_have_every_family_and_as_many_tasks_of_every_request():
    found = halves()
    assert len(found) == 30
    for half in ("development", "judgement"):
        names = [name for name in found if found[name] == half]
        assert {family_of(name) for name in names} == {family_of(name) for name in REQUESTS}
    for kind in set(REQUESTS.values()):
        of_kind = [found[name] for name, request in REQUESTS.items() if request == kind]
        assert abs(of_kind.count("development") - of_kind.count("judgement")) <= 1


def test_the_protocol_says_which_tasks_are_in_which_half():
    told = {}
    for line in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if cells[0] in REQUESTS.values():
            for half, names in zip(("development", "judgement"), cells[1:], strict=True):
                told |= dict.fromkeys(names.split(", "), half)
    assert told == halves()


def test_a_family_of_one_task_cannot_be_in_both_halves():
    with pytest.raises(ValueError, match="every family"):
        halves({"a-mlp-x": "class"})
