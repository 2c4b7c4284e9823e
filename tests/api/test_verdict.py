"""The verdict: forgotten, kept, beside a model that never saw the data, at what price; and its warnings."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch import nn

import unweave as uw
from unweave.api.verdict import _judged
from unweave.engine import Cost
from unweave.evaluation import NeverSeen, never_seen

CPU = uw.Compute("cpu")
LOOSE = {"adjacent_accuracy_drop": 1.0, "remote_accuracy_drop": 1.0, "adjacent_loss_rise": 0, "remote_loss_rise": 0}


def points(count=240, seed=0):
    """Six groups on a circle, two for each label. Group 0 is to be forgotten."""
    draw = torch.Generator().manual_seed(seed)
    of = torch.arange(count) % 6
    angle = of * (torch.pi / 3)
    centres = 3 * torch.stack([angle.cos(), angle.sin()], dim=1)
    return centres + 0.3 * torch.randn((count, 2), generator=draw), of % 3, of


def parts(seed):
    inputs, labels, of = points(seed=seed)
    return uw.Split.by_class((inputs, labels), fine=of, forget=0)


@pytest.fixture(scope="module")
def case():
    torch.manual_seed(1)
    split, test = parts(0), parts(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
    inputs, labels, _ = points()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model.eval(), split, test


def run(case, method="adaptive", **how):
    model, split, test = case
    given = {"test": test, "compute": CPU, "callbacks": [uw.Progress(show=False)], **how}
    return uw.unlearn(model, split, method, **given)


def told(make):
    """Return what was made, and what our warnings said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = make()
    return found, [str(one.message) for one in caught if one.category is uw.RunWarning]


def test_a_good_run_is_said_to_be_one_without_a_warning(case, tmp_path):
    result, words = told(lambda: run(case, out=tmp_path / "run"))
    verdict = result.verdict
    assert (verdict.forgotten, verdict.kept, verdict.goal, words) == (True, True, "erase", [])
    assert verdict.never_seen.share is not None
    assert not verdict.never_seen.measured
    assert verdict.passes == result.cost.sample_gradients / 200
    for name in ("verdict.md", "report.html"):
        assert str(verdict).splitlines()[0] in (tmp_path / "run" / name).read_text()
        assert str(verdict.never_seen) in (tmp_path / "run" / name).read_text()


def test_a_wrecked_model_is_said_to_be_wrecked_once(case):
    wreck = uw.GradientAscent(learning_rate=1.0, epochs=20)
    result, words = told(lambda: run(case, wreck, guard=LOOSE))
    verdict, more = told(lambda: result.verdict)
    assert verdict.kept is False
    assert "Kept: no." in str(verdict)
    assert set(verdict.warnings) & {"adjacent", "remote"}
    every = words + more
    for subset in set(verdict.warnings) & {"adjacent", "remote"}:
        assert sum(f"{subset} accuracy" in one for one in every) == 1, "by the guard or by the verdict, not by both"
    assert told(lambda: result.verdict)[1] == []
    result.warned = None  # as without a guard
    del result.verdict
    assert told(lambda: result.verdict)[1] == []


def test_data_that_is_not_forgotten_is_said_to_be_known_still_once(case):
    hardly = uw.GradientAscent(learning_rate=1e-6, epochs=1)
    guarded, words = told(lambda: run(case, hardly))
    assert guarded.warned == {"forget"}
    assert "hardly forgotten" in words[0]
    quiet, words = told(lambda: run(case, hardly, guard={"forget_loss_rise": 0}))
    assert words == []
    verdict, words = told(lambda: quiet.verdict)
    assert verdict.forgotten is False
    assert "forget training samples are recognised" in words[0]
    assert "Use the method adaptive" in words[0]
    guarded.scores = quiet.scores  # to measure only once
    assert told(lambda: guarded.verdict)[1] == [], "the guard has said it"


def test_copies_that_are_kept_cannot_be_forgotten(case):
    model, _, _ = case
    inputs, labels, of = points()
    gone = (of == 0).nonzero()[:, 0]
    twins = (torch.cat([inputs, inputs[gone]]), torch.cat([labels, labels[gone]]))
    split = uw.Split(twins, gone, range(len(inputs), len(inputs) + len(gone)))
    how = {"guard": LOOSE, "compute": CPU, "callbacks": [uw.Progress(show=False)]}
    result, words = told(lambda: uw.unlearn(model, split, uw.Adaptive(effort=3.0), **how))
    verdict, more = told(lambda: result.verdict)
    assert verdict.kept is False or verdict.forgotten is False
    assert words + more
    assert verdict.never_seen.share == 1.0, "the copies vote for the label"


def test_the_goal_retrain_is_judged_by_what_a_retrained_model_would_do(case):
    _, split, _ = case
    assert uw.FineTune().goal_of_run == uw.Unweave(goal="retrain", reference=split).goal_of_run == "retrain"
    assert uw.Unweave().goal_of_run == uw.Adaptive().goal_of_run == "erase"
    row = {"split": "train", "subset": "forget", "before": 1.0, "after": 0.30, "samples": 400}
    how = {"forgotten": False, "kept": None, "rows": (row,), "cost": Cost(), "goal": "retrain"}
    assert uw.Verdict(**how).as_if_never_trained is None
    near = uw.Verdict(**how, never_seen=NeverSeen(share=0.28, measured=True))
    assert (near.as_if_never_trained, near.warnings) == (True, {})
    assert str(near).startswith("As if never trained: yes. 30.0% of the 400")
    far = uw.Verdict(**how, never_seen=NeverSeen(share=0.0, measured=True))
    assert far.as_if_never_trained is False
    assert set(far.warnings) == {"forget"}


def test_a_retrained_reference_takes_the_place_of_the_forecast(case):
    model, split, _ = case
    scores = uw.evaluate(model, split, reference=model, compute=CPU, resamples=0)
    found = never_seen(scores, model, split, CPU)
    assert found.measured
    assert found.share == scores["train"]["forget"]["accuracy"]


def test_retraining_is_called_cheaper_only_if_the_training_is_known(case):
    cost = Cost(seconds=1.0, sample_gradients=1000)
    verdict = uw.Verdict(forgotten=None, kept=None, rows=(), cost=cost, kept_samples=100)
    assert verdict.passes == 10
    assert verdict.retraining_is_cheaper is None
    assert "Retraining" not in str(verdict)
    assert "Retraining would be cheaper" in str(verdict.beside_training(4))
    assert "Retraining" not in str(verdict.beside_training(30))
    noted = run(case, "ga", epochs=1, guard=None, callbacks=[uw.Note(trained_epochs=0.01)])
    assert noted.verdict.retraining_is_cheaper is True
    found = noted.verdict.to_dict()
    assert json.loads(json.dumps(found)) == found
    for wrong in (0, "many"):
        with pytest.raises(uw.UsageError, match="trained_epochs"):
            run(case, "ga", callbacks=[uw.Note(trained_epochs=wrong)])


def test_a_forecast_that_cannot_be_made_says_why(case):
    _, split, _ = case

    class Headless(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.rest = nn.Parameter(torch.ones(2, 3)), nn.Identity()

        def forward(self, inputs):
            return self.rest(inputs @ self.weight)

    result = uw.unlearn(Headless(), split, "ga", epochs=1, guard=None, compute=CPU)
    assert result.verdict.never_seen.share is None
    assert "no linear layer" in str(result.verdict)


def test_test_data_that_the_original_does_not_know_cannot_tell_what_was_kept():
    """A language model does not know facts that it was not trained on: its training data are judged."""

    def made(known):
        numbers = {
            ("train", "forget"): (1.0, 0.0),
            ("train", "adjacent"): (1.0, 0.5),
            ("train", "remote"): (1.0, 0.99),
            ("test", "remote"): (known, known),
        }
        rows = [
            {"split": split, "subset": subset, "before": before, "after": after, "samples": 400}
            for (split, subset), (before, after) in numbers.items()
        ]
        return [(row["split"], row["subset"]) for row in _judged(tuple(rows))]

    assert made(0.0) == made(0.09) == [("train", "adjacent"), ("train", "remote")]
    assert made(0.5) == [("train", "adjacent"), ("test", "remote")]
