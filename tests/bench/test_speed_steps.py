"""Two sides run at the same time and are compared round by round; two trees are compared by the same public calls."""

from __future__ import annotations

import inspect
import sys

import pytest
from bench.clocked import Rounds, in_steps, intervals
from bench.sides import Part, Side, measure_sides, row_of, show, slower, smallest, table
from bench.steps import source_of

import unweave
from bench import clocked
from tests.helpers.places import ROOT


def found(*times, digest="a", count=1):
    return {"digest": digest, "parts": {"stage1": {"count": count, "intervals": [(2 * t, t, 5) for t in times]}}}


def test_a_step_takes_the_smallest_times_of_its_intervals_or_the_median_of_its_rounds():
    part = Part(count=2)
    for pair, times in ((0, (3.0, 4.0)), (0, (5.0, 2.0)), (1, (4.0, 4.0))):
        part.add(pair, [(2 * t, t, 0) for t in times])
    assert part.smallest("processor") == (3 + 2) / 2
    assert part.smallest("wall") == 3 + 2
    assert part.seconds(0) == [3.5, 3.5]
    assert part.seconds(1) == [4.0]
    assert row_of(part)["median_processor_seconds"] == 3.5


def test_runs_with_another_number_of_passes_are_not_compared():
    with pytest.raises(ValueError, match="number of forward passes changed"):
        smallest([[(1, 1)], [(1, 1), (1, 1)]])


def test_the_ratio_is_that_of_rounds_taken_together_and_the_guard_finds_what_is_too_slow(capsys):
    ours, other = Side([]), Side([])
    for pair, busy in ((0, (1.0, 1.5)), (1, (3.0, 1.0))):
        for slow in busy:  # both sides have the same neighbours in a round
            ours.add(pair, found(1.05 * slow, 1.05 * slow))
            other.add(pair, found(slow, slow))
    ours.add_calls(found(1.0))
    other.add_calls(found(1.0, 1.0))
    rows = table(ours, other)
    assert rows["stage1"]["ratio"]["median"] == pytest.approx(1.05)
    assert rows["stage1"]["ratio"]["median_of_each_pair"] == pytest.approx([1.05, 1.05])
    assert rows["stage1"]["ratio"]["smallest"] == pytest.approx(1.05)
    assert rows["stage1"]["ratio"]["calls"] == 0.5
    assert slower(rows, than=1.03) == ["stage1"]
    assert slower(rows, than=1.06) == []
    show(rows, other="other tree")
    assert (
        "ratio 1.050 (of each pair: 1.050, 1.050; of the smallest: 1.050; of calls: 0.500)" in capsys.readouterr().out
    )
    show(table(ours, None), other="other tree")
    assert "other tree" not in capsys.readouterr().out


ANSWERS = """
import json, os, sys
print("something else", file=sys.stderr)
for line in sys.stdin:
    calls = 7 if line.strip() == "count" else 0
    part = {"count": 2, "intervals": [(2.0, float(os.environ["SECONDS"]), calls)]}
    print(json.dumps({"digest": os.environ["PYTHONHASHSEED"], "parts": {"step": part}}), flush=True)
"""


def test_both_sides_are_asked_for_each_round_and_once_for_their_calls(capsys):
    mine, other = (Side([sys.executable, "-c", ANSWERS], {"SECONDS": seconds}) for seconds in ("3", "2"))
    measure_sides([mine, other], pairs=2, rounds=3)
    assert [len(pair) for pair in mine.parts["step"].pairs] == [3, 3]
    row = table(mine, other)["step"]
    assert row["ratio"] == {"median": 1.5, "median_of_each_pair": [1.5, 1.5], "smallest": 1.5, "calls": 1.0}
    assert row["ours"]["calls"] == 3.5
    assert mine.digests == {"0"}
    assert "pair 2 of 2, round 3 of 3" in capsys.readouterr().err


def test_a_side_that_fails_ends_the_measurement():
    with pytest.raises(SystemExit, match="ended early"):
        measure_sides([Side([sys.executable, "-c", "raise SystemExit(1)"])], pairs=1, rounds=1)


def test_steps_lie_between_the_first_and_the_last_one():
    def stamps(*grads):
        return [(float(place), float(place), 10 * place, grad) for place, grad in enumerate([True, *grads, True])]

    three_steps_of_two_passes = stamps(False, *[True] * 6, False)
    assert in_steps(three_steps_of_two_passes, steps=3) == [(1.0, 1.0, 10)] * 4
    with_a_look_between = stamps(True, False, True)
    assert in_steps(with_a_look_between, steps=2) == [(1.0, 1.0, 10)] * 2
    with pytest.raises(ValueError, match="3 passes with gradient do not divide into 2 steps"):
        in_steps(stamps(True, True, True), steps=2)
    assert len(intervals(with_a_look_between)) == 4


def test_a_round_measures_every_part_and_gives_the_same_weights_again(monkeypatch):
    monkeypatch.setattr(clocked, "BRIEFLY", {"stage1_epochs": 1, "stage2_epochs": 1})
    monkeypatch.setattr(clocked, "FINE_TUNING_EPOCHS", 1)
    rounds = Rounds()
    timed, again, counted = (rounds.take(counted) for counted in (False, False, True))
    assert timed["digest"] == again["digest"] == counted["digest"]
    assert list(timed["parts"]) == ["stage1", "stage2", "fine_tuning", "evaluation", "run"]
    for name, part in timed["parts"].items():
        assert len(part["intervals"]) == len(again["parts"][name]["intervals"]) > 0
        assert all(wall > 0 and processor >= 0 and calls == 0 for wall, processor, calls in part["intervals"])
        assert sum(calls for *_, calls in counted["parts"][name]["intervals"]) > 100


def test_calls_follow_the_signature_of_the_tree(monkeypatch):
    seen = []

    def of_today(model, split, method, *, device=None, limits=(), progress=None, **settings):
        seen.append({"device": device, "limits": limits, "progress": progress, **settings})

    def of_tomorrow(model, split, method, *, compute=None, guard=(), **settings):
        seen.append({"compute": compute, "guard": guard, **settings})

    monkeypatch.setattr(unweave, "Compute", lambda **given: given, raising=False)
    for one in (of_today, of_tomorrow):
        monkeypatch.setattr(unweave, "unlearn", one)
        clocked.unlearn(None, None, "ft", guarded=False, epochs=1)
        clocked.unlearn(None, None, "ft", guarded=True)
    assert seen == [
        {"device": "cpu", "limits": None, "progress": False, "epochs": 1},
        {"device": "cpu", "limits": (), "progress": False},
        {"compute": {"device": "cpu"}, "guard": None, "epochs": 1},
        {"compute": {"device": "cpu"}, "guard": ()},
    ]
    assert {"train", "test", "compute"} <= set(inspect.signature(unweave.evaluate).parameters)


def test_a_checkout_and_its_source_folder_are_both_taken(tmp_path):
    assert source_of(ROOT) == source_of(ROOT / "src") == (ROOT / "src").resolve()
    with pytest.raises(SystemExit, match="holds no package unweave"):
        source_of(tmp_path)
