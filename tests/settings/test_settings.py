from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from unweave import UsageError
from unweave.methods import METHODS, find_method
from unweave.methods.two_stage import TwoStage
from unweave.settings import default, given


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 2.0}, "alpha is 2.0, but must be at least 0 and at most 1"),
        ({"alpha": "half"}, "alpha is 'half', but must be a number"),
        ({"alpha": float("nan")}, "finite"),
        ({"momentum": 1.0}, "below 1"),
        ({"stage1_epochs": 1.5}, "whole number"),
        ({"stage1_epochs": True}, "whole number"),
        ({"mean_sign": 0}, "one of -1, 1"),
        ({"constrain_adjacent": "perhaps"}, "true or false"),
        ({"stage1_optimizer": "adem"}, "one of sgd, adam, adamw"),
        ({"aplha": 1}, "Did you mean 'alpha'"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(values, message):
    with pytest.raises(UsageError, match=message) as found:
        TwoStage.parse(values)
    assert "\n" not in str(found.value)


def test_text_becomes_the_right_type():
    parsed = TwoStage.parse({"alpha": "1", "mean_sign": "+1", "constrain_adjacent": "true", "stage1_epochs": "3"})
    assert (parsed.alpha, parsed.mean_sign, parsed.constrain_adjacent, parsed.stage1_epochs) == (
        1.0,
        1,
        True,
        3,
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_profile_of_every_method_is_valid(name):
    method = METHODS[name]
    assert method.name == name
    for profile in method.profiles:
        method.configure(profile=profile)
    for row in method.describe():
        assert row["help"].endswith(".")


def test_profiles_of_two_stage():
    two_stage = find_method("two-stage")
    assert two_stage.configure().momentum == 0.9
    assert two_stage.configure().mean_sign == -1
    printed = two_stage.configure(profile="paper")
    assert (printed.momentum, printed.mean_sign, printed.multiplier_update) == (0.0, 1, "after")
    assert find_method("pgd").configure().alpha == 0
    with pytest.raises(UsageError, match="Did you mean 'released'"):
        two_stage.configure(profile="relaesed")
    with pytest.raises(UsageError, match="Did you mean 'two-stage'"):
        find_method("twostage")


@dataclass(frozen=True, kw_only=True)
class Short(TwoStage):
    stage1_epochs: int = default(3)
    teacher: Any = given(help="A model.")


def test_a_new_default_keeps_everything_else_of_its_field():
    before, after = (
        next(row for row in kind.describe() if row["name"] == "stage1_epochs") for kind in (TwoStage, Short)
    )
    assert after == before | {"default": 3}
    assert list(Short().to_dict()) == list(TwoStage().to_dict())
    assert Short.searched()["stage1_epochs"] is TwoStage.searched()["stage1_epochs"]
    with pytest.raises(UsageError, match="stage1_epochs is -1"):
        Short(stage1_epochs=-1)


def test_a_new_default_of_nothing_is_an_error():
    with pytest.raises(TypeError, match=r"alhpa has a new default but inherits no setting"):

        class Misspelt(TwoStage):
            alhpa: float = default(0.1)


def test_what_is_given_is_taken_as_it_is():
    teacher = object()
    made = Short.parse({"teacher": teacher, "alpha": "0.25"})
    assert made.teacher is teacher
    assert made == Short(alpha=0.25)  # what is given has no part in comparisons
    assert Short(alpha=0.25).with_given(teacher=teacher, unknown=1, initial=None).teacher is teacher
    assert "teacher" not in repr(made)
    with pytest.raises(UsageError, match="teacher"):
        Short.parse({"teacher": "a path"})
