"""The attacks with many models: what is trained, that it resumes and is shared, and the numbers that come of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bench.attacks.__main__ import main, without_places
from bench.attacks.models import Contender, Plan
from bench.attacks.numbers import numbers_of
from safetensors.numpy import load_file, save_file

from unweave import UsageError

METHODS = ("ga", "unweave:default goal=retrain")


def run(folder, *more, shadows=6, retrained=2, methods=METHODS):
    named = [word for method in methods for word in ("--method", method)]
    counts = ["--shadows", str(shadows), "--retrained", str(retrained)]
    words = ["run", "digits", "--small", *named, *counts, "--device", "cpu", "--out", str(folder), *more]
    assert main(words) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacks") / "made"
    run(folder, "--share", "0/2")
    run(folder, "--share", "1/2")
    return folder


def files(folder):
    return {file.name: file.stat().st_mtime_ns for file in (folder / "margins").iterdir()}


def test_two_shares_make_every_model_once_and_again_makes_none(made, capsys):
    names = sorted(files(made))
    labels = ("ga", "original", "unweave+default+goal=retrain")
    expected = [
        f"{kind}-{n:03d}.{label}"
        for kind, most in (("shadow", 6), ("whole", 2))
        for n in range(most)
        for label in labels
    ]
    expected += [f"retrained-{number:03d}.retrain" for number in range(4)]
    assert names == sorted(f"{name}.safetensors" for name in expected)
    before = files(made)
    run(made)
    assert files(made) == before
    assert capsys.readouterr().out == ""


def test_each_shadow_forgot_its_own_half_and_each_sample_is_in_half_of_them(made):
    shadows = [load_file(made / "margins" / f"shadow-{number:03d}.ga.safetensors") for number in range(6)]
    for subset in ("forget", "adjacent"):
        seen = np.stack([shadow[f"{subset}.seen"] for shadow in shadows])
        assert set(seen.sum(axis=0)) == {3}
        assert len({tuple(row) for row in seen}) == 6
    assert not np.array_equal(shadows[0]["forget.margins"], shadows[1]["forget.margins"])


def test_the_tables_say_how_many_models_they_are_from(made, capsys):
    assert main(["table", str(made)]) == 0
    shown = capsys.readouterr().out
    assert "U-LiRA on forget data, 6 shadow models" in shown
    assert "KLOM, 2 models against 2 retrained ones" in shown
    found = json.loads((made / "numbers.json").read_text())
    assert {row["method"] for row in found["ulira"]} == {"ga", "original", "unweave default goal=retrain"}
    assert {row["method"] for row in found["klom"]} == {"ga", "original", "unweave default goal=retrain", "retrain"}
    for row in found["ulira"]:
        assert row["auc"][1] <= row["auc"][2]
        low, high = row["sample_most"][1:]
        assert low <= row["sample_most"][0] <= high
    assert found["shadows"] == 6
    assert all(start["protocol"] for start in found["runs"])


def test_other_attacks_do_not_share_a_folder(made, capsys):
    assert main(["run", "digits", "--small", "--method", "ga", "--shadows", "8", "--out", str(made)]) == 2
    assert "holds other attacks" in capsys.readouterr().err


def made_up(folder, *, leak, models=16, samples=40):
    """Write margins of shadow models that are higher by ``leak`` where a sample was forgotten, and of others."""
    (folder / "margins").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(models):
        content = {}
        for subset in ("forget", "adjacent"):
            seen = (np.arange(samples) + number) % 2 == 0
            content[f"{subset}.seen"] = seen
            content[f"{subset}.margins"] = generator.normal(leak * seen, 1).astype(np.float32)
        save_file(content, folder / "margins" / f"shadow-{number:03d}.a.safetensors")
    for kind, label, shift in (("whole", "a", leak), ("whole", "b", 0), ("retrained", "retrain", 0)):
        for number in range(models):
            content = {
                f"{subset}.margins": generator.normal(shift, 1, samples).astype(np.float32)
                for subset in ("forget", "adjacent", "remote")
            }
            save_file(content, folder / "margins" / f"{kind}-{number:03d}.{label}.safetensors")
    (folder / "attacks.json").write_text(json.dumps({"members": {"forget": 20, "adjacent": 20}}))
    return numbers_of(folder)


def test_a_method_that_leaks_is_found_and_one_that_does_not_is_at_chance(tmp_path):
    for leak, name in ((8.0, "leaks"), (0.0, "clean")):
        found = made_up(tmp_path / name, leak=leak)
        (row,) = [row for row in found["ulira"] if row["subset"] == "forget"]
        by = {(row["method"], row["data"]): row for row in found["klom"]}
        if leak:
            assert row["auc"][0] > 0.99
            assert row["tpr_01"][0] > 0.9
            assert row["above_chance"] == 1.0
            assert by["a", "train forget"]["mean"][0] > 1.5 * by["retrain", "train forget"]["mean"][0]
        else:
            assert row["auc"][1] < 0.5 < row["auc"][2]
            assert row["above_chance"] < 0.15
        nothing = by["b", "train forget"]["mean"]
        assert nothing[1] < by["retrain", "train forget"]["mean"][0] < nothing[2] + 0.5


def test_too_few_models_are_refused(tmp_path):
    (tmp_path / "margins").mkdir()
    (tmp_path / "attacks.json").write_text(json.dumps({"members": {}}))
    with pytest.raises(UsageError, match="too few models"):
        numbers_of(tmp_path)


def test_shares_are_disjoint_and_complete():
    plan = Plan(benchmark=None, task=None, contenders=(), shadows=8, retrained=3, folder=None)
    shares = [plan.jobs((part, 3)) for part in range(3)]
    assert sorted(job for share in shares for job in share) == sorted(plan.jobs())
    assert len(plan.jobs()) == 8 + 3 + 6


def test_fewer_than_six_shadow_models_are_refused(tmp_path, capsys):
    words = ["run", "digits", "--small", "--method", "ga", "--shadows", "4", "--out", str(tmp_path / "few")]
    assert main(words) == 2
    assert "--shadows 4 are too few" in capsys.readouterr().err


def test_published_numbers_name_no_folder_of_one_machine(made, tmp_path):
    assert main(["table", str(made), "--publish", str(tmp_path / "published")]) == 0
    text = (tmp_path / "published" / "numbers.json").read_text()
    assert json.loads(text)["ulira"] == json.loads((made / "numbers.json").read_text())["ulira"]
    command = "run cifar100-cnn --data /home/me/data --tuned /tmp/x/tuning --out /tmp/y/attacks"
    assert without_places(command) == "run cifar100-cnn --data DATA --tuned tuning --out attacks"


def test_a_method_is_named_with_its_settings():
    one = Contender.parse("two-stage:released alpha=0.5")
    assert (one.method, one.profile, one.settings) == ("two-stage", "released", (("alpha", "0.5"),))
    assert one.file == "two-stage+released+alpha=0.5"
    with pytest.raises(UsageError, match="KEY=VALUE"):
        Contender.parse("ga epochs")
