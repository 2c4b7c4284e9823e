from __future__ import annotations

import pytest

from unweave import UsageError
from unweave.methods import METHODS, find_method
from unweave.methods.two_stage import TwoStageSettings


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
        TwoStageSettings.parse(values)
    assert "\n" not in str(found.value)


def test_text_becomes_the_right_type():
    parsed = TwoStageSettings.parse(
        {"alpha": "1", "mean_sign": "+1", "constrain_adjacent": "true", "stage1_epochs": "3"}
    )
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
    for row in method.settings.describe():
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
