"""What the guard, the verdict, its page and `inspect` advise was tried: each on a case that failed without it."""

from __future__ import annotations

import re
import warnings

import pytest
import torch

import unweave as uw
from tests.helpers.advised import classes, inputs, run
from tests.helpers.strangers import accuracy, blobs, mlp, normed, trained
from unweave.engine import advice_on

CPU = uw.Compute("cpu")
HOW = {"compute": CPU, "callbacks": [uw.Progress(show=False)]}
LIMITS = ("adjacent_accuracy_drop", "remote_accuracy_drop", "adjacent_loss_rise", "remote_loss_rise")
NONE = {"adjacent_accuracy_drop": 1.0, "remote_accuracy_drop": 1.0, "adjacent_loss_rise": 0.0, "remote_loss_rise": 0.0}


@pytest.fixture(scope="module")
def case():
    data, labels, groups = blobs()
    return trained(data, labels, mlp), uw.Split.by_class((data, labels), fine=groups.tolist(), forget=4)


def told(make):
    """Return what was made, and what our warnings said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = make()
    return found, [str(one.message) for one in caught if one.category is uw.RunWarning]


# The guard


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
@pytest.mark.parametrize("limit", LIMITS)
def test_the_limit_that_an_error_names_lets_the_run_go_on(case, limit):
    model, parts = case
    ascend = uw.GradientAscent(learning_rate=0.3, epochs=30)
    tight = {**NONE, limit: 0.01}
    with pytest.raises(uw.CollapseError, match=f"To allow more, change {limit} in the limits.") as caught:
        uw.unlearn(model, parts, ascend, guard=tight, **HOW)
    assert uw.unlearn(model, parts, ascend, guard={**tight, caught.value.limit: NONE[limit]}, **HOW).checks


def test_losses_that_no_limit_allows_advise_no_limit():
    """Wider limits did not let such a run go on, but the error said so."""

    def brittle(model, batch):
        losses = uw.Classification().batch_losses(model, batch)
        return torch.where(batch[1] > 0, losses / (losses < 2), losses)  # infinite for kept data, in the end

    zeros = uw.Split((inputs(), classes()), range(0, 18, 3), range(18, 48, 3), range(1, 48, 3))
    with pytest.raises(uw.CollapseError, match=r"the adjacent loss is (inf|nan)") as caught:
        run(some=zeros, task=uw.OwnLoss(brittle), learning_rate=0.5, epochs=40, guard={**NONE, "share": 1.0})
    assert "Use the method adaptive" in str(caught.value)
    assert "To allow more" not in str(caught.value)


def test_what_a_higher_effort_does_not_mend_is_seen_by_inspect(case):
    """The guard says: raise effort, and if that does not help, look at inspect. Copies of the forget data are kept."""
    _, parts = case
    data, labels, _ = blobs()
    gone = torch.from_numpy(parts.forget)
    twins = (torch.cat([data, data[gone]]), torch.cat([labels, labels[gone]]))
    model = trained(*twins, mlp)
    impossible = uw.Split(twins, gone, range(len(data), len(data) + len(gone)))
    said = []
    for effort in (2.0, 4.0):
        _, words = told(lambda e=effort: uw.unlearn(model, impossible, uw.Adaptive(effort=e), guard=NONE, **HOW))
        said.append(words)
    assert all("Raise effort. If that does not help" in " ".join(words) for words in said)
    found = impossible.inspect(model, device="cpu")
    assert found.still_recognised > 0.9, "no model can forget the ones and keep the others"
    assert found.entanglement.score > 0.5


# The verdict and its page


def test_a_verdict_on_little_forgotten_data_is_mended_as_it_says(case, tmp_path):
    model, parts = case
    hardly = uw.GradientAscent(learning_rate=1e-6, epochs=1)
    quiet = {"forget_loss_rise": 0}
    _, words = told(lambda: uw.unlearn(model, parts, hardly, guard=quiet, out=tmp_path / "run", **HOW))
    advice = advice_on(hardly)
    assert advice in words[0]
    assert f"{advice} Or retrain." in (tmp_path / "run" / "report.html").read_text()
    assert uw.unlearn(model, parts, "adaptive", **HOW).verdict.forgotten
    retrained = uw.Retrain(initial=mlp, epochs=60, learning_rate=1e-2, batch_size=64)
    assert uw.unlearn(model, parts, retrained, **HOW).verdict.kept, "or retrain"


def test_a_verdict_on_lost_data_is_mended_as_it_says(tmp_path):
    data, labels, _ = blobs()
    model = trained(data, labels, normed)
    gone = (model(data).argmax(dim=1) == labels).nonzero()[::60, 0].tolist()
    parts = uw.Split((data, labels), gone, sorted({*range(1, 900, 7)} - {*gone}))
    short = uw.Adaptive(effort=0.6)
    lost, words = told(lambda: uw.unlearn(model, parts, short, out=tmp_path / "run", **HOW))
    assert lost.verdict.kept is False
    assert any(advice_on(short) in one for one in words)
    assert f"{advice_on(short)} Or retrain." in (tmp_path / "run" / "report.html").read_text()
    mended, words = told(lambda: uw.unlearn(model, parts, uw.Adaptive(effort=12.0), **HOW))
    assert mended.verdict.forgotten
    assert words == []


@pytest.mark.parametrize(("fails", "follows"), [({"learning_rate": 1e-6}, {}), ({"epochs": 1}, {})])
def test_a_run_with_the_goal_retrain_is_not_told_to_erase(case, fails, follows):
    """The guard once advised adaptive, which has another goal."""
    model, parts = case
    usual = {"initial": mlp, "epochs": 60, "learning_rate": 1e-3, "batch_size": 64}
    with pytest.raises(uw.CollapseError, match=r"Use more epochs or another learning rate\.") as caught:
        uw.unlearn(model, parts, uw.Retrain(**{**usual, **fails}), **HOW)
    assert "adaptive" not in str(caught.value)
    result, words = told(lambda: uw.unlearn(model, parts, uw.Retrain(**{**usual, **follows}), **HOW))
    assert (result.verdict.as_if_never_trained, result.verdict.kept, words) == (True, True, [])


# Inspect


def test_the_goal_erase_that_inspect_advises_succeeds(case):
    model, parts = case
    assert any('The goal "erase", that of the default method, fits' in words for words in parts.inspect(model).advice)
    result, words = told(lambda: uw.unlearn(model, parts, **HOW))
    assert (result.verdict.forgotten, result.verdict.kept, words) == (True, True, [])


@pytest.mark.parametrize("spread", [True, False])
def test_the_goal_retrain_that_inspect_advises_gives_a_model_as_if_never_trained(case, spread):
    """Its own lines of code, run as they stand, on a pair of tensors: their length once counted as two samples."""
    model, _ = case
    data, labels, _ = blobs()
    gone = range(0, 900, 31) if spread else range(0, 180, 9)  # of all labels, or of one
    parts = uw.Split((data, labels), gone, sorted({*range(1, 900, 4)} - {*gone}))
    advice = " ".join(parts.inspect(model, device="cpu").advice)
    names = {"uw": uw, "data": blobs(300, seed=5)[:2]}
    if spread:
        line = re.search(r"uw\.Split\.where\(.*?allow_empty=True\)", advice)[0]
        names["held_out_split"] = eval(line, names)
        assert len(names["held_out_split"].adjacent) == 300
        goal = eval(re.search(r"uw\.Unweave\(.*?\)", advice)[0], names)
    else:
        assert 'For a model as if never trained, use the goal "retrain".' in advice
        everything = uw.Split(names["data"], [], range(300), [], allow_empty=True)
        goal = uw.Unweave(goal="retrain", reference=everything)
    result, words = told(lambda: uw.unlearn(model, parts, goal, **HOW))
    assert (result.verdict.as_if_never_trained, result.verdict.kept, words) == (True, True, [])


@pytest.mark.parametrize("follow", ["the neighbours in near", "Split.by_neighbours"])
def test_the_neighbours_that_inspect_names_lose_less_as_adjacent_data(follow):
    """Half of a cloud is forgotten; its other half, the neighbour, has another name and is not adjacent."""
    data, labels, groups = blobs()
    groups = torch.where((groups == 4) & (data[:, 0] > data[groups == 4][:, 0].median()), 9, groups)
    names = [*map(str, range(4)), "gone", *map(str, range(5, 9)), "near"]
    model = trained(data, labels, mlp)
    gone, far = ((groups == some).nonzero()[:, 0].tolist() for some in (4, 0))
    look = {"groups": groups, "names": names, "device": "cpu"}
    missed = uw.Split((data, labels), gone, far)
    (advice,) = (words for words in missed.inspect(model, **look).advice if "Add the neighbours in" in words)
    assert re.search(r"Add the neighbours in near.* to it, or take Split.by_neighbours", advice)
    near = (groups == 9).nonzero()[:, 0]
    if follow == "Split.by_neighbours":
        better = uw.Split.by_neighbours((data, labels), forget=gone, model=model, device="cpu")
    else:
        better = uw.Split((data, labels), gone, [*far, *near.tolist()])
    assert not any("Add the neighbours" in words for words in better.inspect(model, **look).advice)
    kept = []
    for some in (missed, better):
        result, _ = told(lambda s=some: uw.unlearn(model, s, uw.Adaptive(effort=1.0, least_steps=9), guard=None, **HOW))
        kept.append(accuracy(result.model, (data, labels), near.numpy()))
    assert kept[1] > kept[0]
