"""One colour and shape a method."""

from __future__ import annotations

from unweave.lab.report import Group
from unweave.lab.report.looks import LOOKS, MARKERS, PAGE_MARKERS, PALETTE, looks
from unweave.methods import METHODS


def test_every_method_has_a_look_of_its_own():
    assert LOOKS.keys() == METHODS.keys()
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert {colour for name, (colour, _) in LOOKS.items() if name not in ("original", "retrain")} <= set(PALETTE)
    assert {marker for _, marker in LOOKS.values()} <= {*MARKERS, *PAGE_MARKERS}


def test_a_method_looks_the_same_in_every_study():
    small = [Group("original", "", ""), Group("npo", "paper", "")]
    large = [Group("a-plug-in", "", ""), *(Group(name, "paper", "") for name in sorted(METHODS)), *small]
    assert looks(small)[small[1]] == looks(large)[small[1]]


def test_profiles_and_variants_are_hollow_and_names_tell_them_apart():
    groups = [Group("ft", "tuned", ""), Group("ft", "official", ""), Group("ft", "tuned", "epochs=3")]
    found = [looks(groups)[group] for group in groups]
    assert [look.hollow for look in found] == [False, True, True]
    assert len({(look.colour, look.marker) for look in found}) == 1


def test_a_method_of_another_package_takes_a_look_that_is_left():
    strangers = [Group(f"stranger-{number}", "", "") for number in range(10)]
    found = looks(strangers)
    assert len({(look.colour, look.marker) for look in found.values()}) == 10
    assert not {(look.colour, look.marker) for look in found.values()} & set(LOOKS.values())
