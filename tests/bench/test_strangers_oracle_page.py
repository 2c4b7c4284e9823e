"""The page's tables about the oracle count whole rounds, and name the cells that miss a target."""

from __future__ import annotations

from bench.strangers import page_oracle


def trial(task, method, number, seed, kept, *, valid=True, error=None):
    row = {"task": task, "seed": seed, "method": method, "number": number, "settings": {}, "error": error}
    row |= {"valid": valid, "share": 0.1, "settings": {"rate": 0.5} if number else {}}
    return row | {f"{half} {name}": kept for half in ("first", "second") for name in ("adjacent", "remote")}


ROWS = [
    trial("x", None, 0, 0, 0.8),
    trial("x", None, 0, 1, 0.8),
    trial("x", "adaptive", 0, 0, 0.8),
    trial("x", "adaptive", 1, 0, 0.9),
    trial("x", "adaptive", 2, 0, 1.0),
    trial("x", "b", 0, 0, 0.7),
    trial("x", "b", 1, 0, 0.95, valid=False),
    trial("x", "adaptive", 1, 1, 0.81),
    trial("y", None, 0, 0, 0.8, valid=False, error="CollapseError"),
    trial("y", "adaptive", 0, 0, 0.8, valid=False),
    trial("y", "b", 0, 0, 0.8, valid=False),
]


def test_the_oracle_is_the_best_of_whole_rounds():
    shown = page_oracle.oracle(ROWS)
    assert "| x | 0 | 2 | adaptive: rate 0.5 | 80.0, 90.0 | 80.0, 90.0 |" in shown
    assert "| x | 1 | 2 | adaptive: rate 0.5 | 80.0, 81.0 | 80.0, 81.0 |" in shown
    assert "| y | | 1 | no valid trial | | |" in shown
    assert "adjacent 5.5 in the median and 10.0 at worst" in shown


def test_facts_name_the_cells_that_miss_a_target():
    facts = page_oracle.regret_facts(ROWS)
    assert "Tuned: `adaptive`, `b`, 1 to 2 trials of each" in facts
    assert "above 6 points: 1 (x/0)" in facts
    assert "no trial is valid: 1 (y)" in facts
    assert "default itself is the oracle: 0" in facts
    assert "collapsed and a trial of the task is valid: 0." in facts


def test_the_choice_shows_every_method_with_the_chosen_in_bold():
    rows = [trial("x", method, 0, 0, 0.9 - 0.1 * place) for place, method in enumerate("abcde")]
    shown = page_oracle.choice(rows)
    assert "| **a** | 0.0 | 1 of 1 tasks | 1 |" in shown
    assert "| e | 40.0 | 1 of 1 tasks | 1 |" in shown
    assert shown.count("**") == 8
