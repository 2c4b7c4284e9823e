"""Methods for language models: each loss beside its paper's equation and open-unlearning's formula, literally."""

from __future__ import annotations

import copy
import math
from functools import cache

import pytest
import torch
from torch.nn import functional

import unweave as uw
from tests.helpers.answers import WIDE, alternatives, chatty
from tests.helpers.fitting import ON_TOKENS
from tests.helpers.recorded import acting
from tests.helpers.tensors import same, weights
from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer
from unweave.data import Batch
from unweave.engine import Workbench
from unweave.methods import find_method

CPU = torch.device("cpu")
FORGET, RETAINED = [0, 1, 2, 7], [5, 8, 9, 3]
OWN = {"rmu": {"layer": 1}}
GIVEN = {
    "dpo": lambda: {"alternatives": alternatives(FORGET)},
    "idk-dpo": lambda: {"tokenizer": chatty()},
    "altpo": lambda: {"alternatives": alternatives(FORGET)},
}


def data():
    return uw.answers(rows(), tokenizer(), template=TEMPLATE)


def some(places):
    return {name: value[places] for name, value in data().items()}


@cache
def learned():
    """A model that knows the answers half."""
    model = llama(WIDE).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        model(**data()).loss.backward()
        optimizer.step()
    return model


def changed(model, seed=5):
    """Another model near a model: what it is after a few steps."""
    found = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return found


def begun(name, profile, **more):
    """Return a phase that has begun with the original, with its weights then changed; the original; the present one."""
    original = copy.deepcopy(learned())
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    values = OWN.get(name, {}) | more
    method = find_method(name).configure(values, GIVEN.get(name, dict)(), profile=profile)
    (phase,) = method.phases()
    bench = Workbench(copy.deepcopy(original), split, device=CPU, task="language", seed=3)
    phase.prepare(bench)
    phase.begin()
    now = changed(original)
    bench.model.load_state_dict(now.state_dict())
    bench.mode("eval")
    return phase, original, now


def terms(phase):
    forget = phase.forget_term(Batch(torch.tensor(FORGET), some(FORGET)), 0)
    retain = phase.retain_term(Batch(torch.tensor(RETAINED), some(RETAINED))) if phase.retained is not None else None
    return forget, retain


def agree(ours, theirs, phase, now):
    """Tell whether value and gradient of a term agree to 1e-6. The formula is a function of the model as it is now."""
    assert abs(theirs.item()) > 1e-3, "the term is too small to compare"
    if abs(ours.item() - theirs.item()) >= 1e-6:
        return False
    mine = torch.autograd.grad(ours, list(phase.bench.model.parameters()), allow_unused=True)
    other = torch.autograd.grad(theirs, list(now.parameters()), allow_unused=True)
    zeros = [torch.zeros_like(parameter) for parameter in now.parameters()]
    return all(
        torch.allclose(zero if a is None else a, zero if b is None else b, rtol=0, atol=1e-6)
        for a, b, zero in zip(mine, other, zeros, strict=True)
    )


# Literal transcriptions. First what papers write, one sample at a time; then what open-unlearning computes on batches.


def logits_and_labels(model, texts, row):
    """The logits that predict the tokens of one answer, without padding, and these tokens."""
    there = texts["attention_mask"][row].bool()
    ids, labels = texts["input_ids"][row][there], texts["labels"][row][there]
    logits = model(input_ids=ids[None]).logits[0, :-1]
    answer = labels[1:] != -100
    return logits[answer], labels[1:][answer]


def log_p(model, texts, row):
    """log p(y_t | x, y_<t) for every token of one answer."""
    logits, tokens = logits_and_labels(model, texts, row)
    return torch.stack([torch.log(torch.softmax(z, 0)[y]) for z, y in zip(logits, tokens, strict=True)])


def mean_over(texts, function):
    return sum(function(row) for row in range(len(texts["labels"]))) / len(texts["labels"])


def paper_retain(model):
    texts = some(RETAINED)
    return mean_over(texts, lambda row: -log_p(model, texts, row).mean())


def sigma(x):
    return 1 / (1 + torch.exp(-x))


def paper_grad_diff(model, reference, texts):
    return mean_over(texts, lambda row: log_p(model, texts, row).mean())


def paper_npo(model, reference, texts, beta=0.1):
    def one(row):
        ratio = torch.exp(log_p(model, texts, row).sum() - log_p(reference, texts, row).sum())
        return 2 / beta * torch.log(1 + ratio**beta)

    return mean_over(texts, one)


def paper_simnpo(model, reference, texts, beta=0.5, gamma=0.7):
    def one(row):
        logs = log_p(model, texts, row)
        return -2 / beta * torch.log(sigma(-beta / len(logs) * logs.sum() - gamma))

    return mean_over(texts, one)


def paper_dpo(model, reference, texts, beta=0.1, scale=1.0):
    others = alternatives(FORGET)

    def ratio(some, row):
        return log_p(model, some, row).sum() - log_p(reference, some, row).sum()

    return mean_over(texts, lambda row: -scale * torch.log(sigma(beta * ratio(others, row) - beta * ratio(texts, row))))


def paper_undial(model, reference, texts, beta=10.0):
    def one(row):
        (z, tokens), (taught, _) = (logits_and_labels(m, texts, row) for m in (model, reference))
        target = torch.softmax(taught - beta * functional.one_hot(tokens, WIDE), dim=1)
        return -(target * torch.log_softmax(z, dim=1)).sum(dim=1).mean()

    return mean_over(texts, one)


def paper_ceu(model, reference, texts):
    def one(row):
        z, tokens = (part[1:] for part in logits_and_labels(model, texts, row))
        without = z.detach().clone()
        without[torch.arange(len(tokens)), tokens] = -torch.inf
        return -(torch.softmax(without, dim=1) * torch.log_softmax(z, dim=1)).sum(dim=1).mean()

    return mean_over(texts, one)


def paper_wga(model, reference, texts, beta=1.0):
    def one(row):
        logs = log_p(model, texts, row)
        return (torch.exp(logs).detach() ** beta * logs).mean()

    return mean_over(texts, one)


def paper_satimp(model, reference, texts, beta1=5.0, beta2=1.0):
    def one(row):
        logs = log_p(model, texts, row)
        p = torch.exp(logs).detach()
        return (p**beta1 * (1 - p) ** beta2 * logs).mean()

    return mean_over(texts, one)


def paper_pdu(model, reference, texts):
    def one(row):
        z, _ = logits_and_labels(model, texts, row)
        return torch.stack([(each.max() - each.mean()) ** 2 for each in z]).mean()

    return mean_over(texts, one)


PAPERS = {
    "grad-diff": (paper_grad_diff, {}),
    "npo": (paper_npo, {}),
    "simnpo": (paper_simnpo, {"margin": 0.7, "inverse_temperature": 0.5}),
    "dpo": (paper_dpo, {}),
    "altpo": (lambda *of: paper_dpo(*of, scale=20.0), {}),
    "undial": (paper_undial, {}),
    "ce-u": (paper_ceu, {}),
    "wga": (paper_wga, {}),
    "satimp": (paper_satimp, {}),
    "pdu": (paper_pdu, {}),
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_loss_is_the_papers_equation(name):
    formula, values = PAPERS[name]
    phase, original, now = begun(name, "paper", **values)
    forget, retain = terms(phase)
    assert agree(forget, formula(now, original, some(FORGET)), phase, now)
    if retain is not None:
        assert agree(retain, paper_retain(now), phase, now)


def both(model, texts):
    """The logits that predict the next token, and the next labels, of a padded batch."""
    logits = model(input_ids=texts["input_ids"], attention_mask=texts["attention_mask"]).logits
    return logits[..., :-1, :], texts["labels"][..., 1:]


def batch_loss(model, texts):
    """The loss that a model of transformers returns: the mean over the labelled tokens of a batch."""
    return model(**texts).loss


def sums(model, texts):
    logits, labels = both(model, texts)
    return functional.cross_entropy(logits.transpose(-1, -2), labels, ignore_index=-100, reduction="none").sum(-1)


def code_npo(model, reference, texts, beta=0.1):
    lose = -(sums(model, texts) - sums(reference, texts))
    return -2 / beta * functional.logsigmoid(beta * (0.0 - lose)).mean()


def code_simnpo(model, reference, texts, beta=0.5, delta=0.7):
    means = sums(model, texts) / (texts["labels"] != -100).sum(-1) - delta
    return -functional.logsigmoid(beta * means).mean() * 2 / beta


def code_dpo(model, reference, texts, beta=0.1):
    others = alternatives(FORGET)
    win, lose = (-(sums(model, each) - sums(reference, each)) for each in (others, texts))
    return -2 / beta * functional.logsigmoid(beta * (win - lose)).mean()


def code_undial(model, reference, texts, beta=10.0):
    (logits, labels), (taught, _) = both(model, texts), both(reference, texts)
    mask = torch.zeros_like(taught)
    mask[torch.arange(len(mask))[:, None, None], torch.arange(mask.shape[1])[None, :, None], labels[..., None]] = 1.0
    soft = torch.softmax(taught - mask * beta, dim=-1)
    return functional.cross_entropy(logits.reshape(-1, WIDE), soft.reshape(-1, WIDE), reduction="none").mean()


def code_ceu(model, reference, texts):
    labels = texts["labels"]
    valid = labels != -100
    kept = labels.masked_fill((valid.cumsum(-1) <= 1) & valid, -100)[..., 1:]
    logits = both(model, texts)[0][kept != -100]
    target = logits.detach().clone().scatter_(-1, kept[kept != -100][:, None], -torch.inf)
    return functional.cross_entropy(logits, torch.softmax(target, -1))


def code_weighted(model, texts, weigh):
    logits, labels = both(model, texts)
    losses = functional.cross_entropy(logits.reshape(-1, WIDE), labels.reshape(-1), ignore_index=-100, reduction="none")
    return -(weigh((-losses).exp().detach()) * losses)[labels.reshape(-1) != -100].mean()


def code_pdu(model, reference, texts):
    logits = model(input_ids=texts["input_ids"], attention_mask=texts["attention_mask"]).logits.reshape(-1, WIDE)
    squares = (logits.max(-1)[0] - logits.mean(-1)) ** 2
    mask = (texts["labels"] != -100).reshape(-1)
    return (squares * mask).sum() / mask.sum()


CODES = {
    "grad-diff": (lambda model, _, texts: -batch_loss(model, texts), {}),
    "npo": (code_npo, {}),
    "simnpo": (code_simnpo, {"margin": 0.7, "inverse_temperature": 0.5}),
    "dpo": (code_dpo, {}),
    "altpo": (code_dpo, {}),
    "undial": (code_undial, {}),
    "ce-u": (code_ceu, {}),
    "wga": (lambda model, _, texts: code_weighted(model, texts, lambda p: p**1.0), {}),
    "satimp": (lambda model, _, texts: code_weighted(model, texts, lambda p: p**5.0 * (1 - p) ** 1.0), {}),
    "pdu": (code_pdu, {}),
}


@pytest.mark.parametrize("name", CODES)
def test_the_loss_is_open_unlearnings_formula_under_its_profile(name):
    formula, values = CODES[name]
    phase, original, now = begun(name, "open-unlearning", **values)
    forget, retain = terms(phase)
    assert agree(forget, formula(now, original, some(FORGET)), phase, now)
    if retain is not None:
        assert agree(retain, batch_loss(now, some(RETAINED)), phase, now)


@torch.no_grad()
def test_the_two_profiles_differ_where_the_sources_do():
    for name, (paper, values) in PAPERS.items():
        _, original, now = begun(name, "paper", **values)
        code = CODES[name][0]
        gap = abs(float(paper(now, original, some(FORGET))) - float(code(now, original, some(FORGET))))
        assert (gap < 1e-6) == (name in ("npo", "altpo"))


def hidden(model, texts, layer):
    """The output of a block of a Llama model."""
    seen = []
    handle = model.model.layers[layer].register_forward_hook(
        lambda _, __, output: seen.append(output if isinstance(output, torch.Tensor) else output[0])
    )
    model(input_ids=texts["input_ids"], attention_mask=texts["attention_mask"])
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("profile", ["paper", "open-unlearning"])
def test_misdirection_is_the_papers_equation_and_open_unlearnings_formula(profile):
    phase, original, now = begun("rmu", profile)
    strength = 6.5 if profile == "paper" else 2.0
    forget, retain = terms(phase)
    direction = phase._direction({}, torch.zeros(1, 32, dtype=torch.float64))
    assert float(direction.norm()) == pytest.approx(strength, abs=1e-6)
    assert (direction >= 0).all()
    for ours, texts, reference in ((forget, some(FORGET), None), (retain, some(RETAINED), original)):
        aim = direction if reference is None else hidden(reference, texts, 1).detach()
        formula = paper_rmu if profile == "paper" else code_rmu
        assert agree(ours, formula(hidden(now, texts, 1), aim, texts["labels"] != -100), phase, now)


def paper_rmu(h, aim, mask):
    aim = aim.expand_as(h)
    return mean_over({"labels": h}, lambda row: ((h[row][mask[row]] - aim[row][mask[row]]) ** 2).sum(dim=1).mean())


def code_rmu(h, aim, mask):
    squared = functional.mse_loss(h, aim.expand_as(h), reduction="none")
    summed = (squared * mask.unsqueeze(-1).expand_as(squared)).mean(dim=2).sum(dim=1)
    return (summed / mask.sum(dim=-1, keepdim=True)).mean()  # a row by a column: all pairs of samples


@pytest.mark.parametrize(("kind", "places"), [("kl", "answers"), ("kl-everywhere", "all")])
def test_the_divergence_from_the_original_covers_what_it_says(kind, places):
    phase, original, now = begun("npo", "open-unlearning", retain_loss=kind)
    _, retain = terms(phase)
    texts = some(RETAINED)
    inputs = {name: texts[name] for name in ("input_ids", "attention_mask")}
    logs, taught = (torch.log_softmax(model(**inputs).logits, dim=-1) for model in (now, original))
    taught = taught.detach()
    if places == "all":
        theirs = functional.kl_div(
            logs.reshape(-1, WIDE), taught.reshape(-1, WIDE), reduction="batchmean", log_target=True
        )
    else:
        answer = texts["labels"][:, 1:] != -100
        theirs = (taught.exp() * (taught - logs)).sum(dim=-1)[:, :-1][answer].mean()
    assert agree(retain, theirs, phase, now)


# What runs do


def settings(name):
    return {**OWN.get(name, {}), **GIVEN.get(name, dict)(), "epochs": 2, "batch_size": 3}


@pytest.mark.parametrize("name", ON_TOKENS)
def test_each_keeps_no_second_model_unless_it_needs_one(name):
    phase, *_ = begun(name, "paper")
    copies = len(list(phase.teacher.parameters()))
    assert (copies > 0) == (name in ("rmu", "undial"))


@pytest.mark.parametrize("name", ON_TOKENS)
def test_a_resumed_run_is_the_run_that_was_never_stopped(name, tmp_path):
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    method = find_method(name).configure(settings(name), {"epochs": 3} if name != "pdu" else {"fixed_epochs": 0})
    how = {"compute": uw.Compute("cpu"), "guard": None, "callbacks": [uw.Progress(show=False)]}
    whole = uw.unlearn(llama(WIDE), split, method, out=tmp_path / "whole", **how)
    steps = iter(range(99))
    how["callbacks"] = [uw.Progress(show=False), uw.StopWhen(lambda: next(steps) == 1)]
    with pytest.raises(uw.Stopped):
        uw.unlearn(llama(WIDE), split, method, out=tmp_path / "run", **how)
    again = uw.unlearn(llama(WIDE), split, method, out=tmp_path / "run", resume=True, **{**how, "callbacks": []})
    assert same(weights(again.model), weights(whole.model))
    assert len(whole.history) > 2


@pytest.mark.parametrize("name", [*ON_TOKENS, "two-stage", "unweave"])
def test_recorded_passes_change_nothing(name):
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    own = settings(name) if name in ON_TOKENS else {"stage2_epochs": 2} if name == "two-stage" else {"epochs": 2}
    method = find_method(name).configure(own)
    how = {"compute": uw.Compute("cpu"), "guard": None, "callbacks": [uw.Progress(show=False)]}
    plain = uw.unlearn(llama(WIDE), split, method, **how)
    with acting() as made:
        recorded = uw.unlearn(llama(WIDE), split, method, **how)
    assert made
    assert plain.history.rows == recorded.history.rows
    assert same(weights(plain.model), weights(recorded.model))


@pytest.mark.parametrize("name", ON_TOKENS)
def test_pieces_of_a_batch_change_nothing(name):
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    method = find_method(name).configure(settings(name), {"learning_rate": 1e-3, "optimizer": "sgd"})
    found = [
        uw.unlearn(llama(WIDE), split, method, compute=uw.Compute("cpu", micro_batch=size), guard=None).model
        for size in (None, 1)
    ]
    for a, b in zip(*(model.parameters() for model in found), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_the_step_size_rises_for_one_epoch_and_falls_to_nothing():
    from unweave.methods.descent import set_learning_rate

    made = find_method("npo").configure({"learning_rate": 1.0, "epochs": 5}, profile="open-unlearning")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    rates = []
    for step in range(20):  # four steps an epoch
        set_learning_rate(optimizer, made, done=step / 20)
        rates.append(optimizer.param_groups[0]["lr"])
    theirs = [step / 4 if step < 4 else (20 - step) / 16 for step in range(20)]
    assert rates == pytest.approx(theirs)


def test_retained_samples_are_drawn_with_replacement_as_open_unlearning_does():
    phase, *_ = begun("npo", "open-unlearning", batch_size=2, epochs=9)
    drawn = torch.cat([phase.retained_batch(number).rows for number in range(phase.steps)])
    assert set(drawn.tolist()) == {3, 5, 8, 9}
    passes = drawn.view(-1, 4).sort(dim=1).values
    assert not (passes == torch.tensor([3, 5, 8, 9])).all(dim=1).all()
    phase, *_ = begun("npo", "paper", batch_size=2, epochs=9)
    drawn = torch.cat([phase.retained_batch(number).rows for number in range(phase.steps)])
    assert (drawn.view(-1, 4).sort(dim=1).values == torch.tensor([3, 5, 8, 9])).all()


def test_the_multiplier_follows_the_retained_loss_after_the_first_epochs():
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    method = uw.PDU(epochs=4, fixed_epochs=2, batch_size=2, tolerance=3.0, dual_rate=2.0)
    history = uw.unlearn(llama(WIDE), split, method, compute=uw.Compute("cpu"), guard=None).history
    multipliers, losses = history.column("multiplier"), history.column("retain_term")
    assert multipliers[:5] == [100.0] * 5
    for step in range(4, 7):
        expected = max(0.0, multipliers[step] + 2.0 * (losses[step] - 3.0))
        assert multipliers[step + 1] == pytest.approx(expected, rel=1e-5)


def test_misdirection_trains_three_down_projections_or_all_weights():
    model = llama(WIDE, layers=4)
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    for trained, most in (("down-projections", 3), ("all", 99)):
        method = uw.RMU(layer=3, trained=trained, learning_rate=1e-3)
        after = uw.unlearn(model, split, method, compute=uw.Compute("cpu"), guard=None).model.state_dict()
        moved = {name for name, before in model.state_dict().items() if not torch.equal(before, after[name])}
        if trained == "all":
            assert any("q_proj" in name for name in moved)
        else:
            assert moved == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in (1, 2, 3)}
        assert len(moved) <= most


# What is given


def test_refusals_keep_the_prompt_and_the_end_and_differ_between_questions_and_passes():
    phase, *_ = begun("idk-dpo", "paper", epochs=3)
    texts, speak = phase.alternatives, chatty()
    assert len(texts["labels"]) == 3 * len(FORGET)
    said = []
    for row in range(len(texts["labels"])):
        labels, ids = texts["labels"][row], texts["input_ids"][row]
        answer = labels[labels != -100]
        assert int(answer[-1]) == speak.eos_token_id
        asked = rows()[FORGET[row // 3]]["question"]
        assert speak.decode(ids[: int((labels != -100).nonzero()[0])]) == f"{asked} :"
        said.append(speak.decode(answer))
    assert len(set(said)) > 3


def test_the_model_writes_alternatives_where_none_are_given():
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    method = uw.AltPO(tokenizer=tokenizer(), count=2, longest=6, epochs=2, batch_size=3)
    runs = [uw.unlearn(llama(WIDE), split, method, compute=uw.Compute("cpu"), guard=None, seed=4) for _ in range(2)]
    assert same(weights(runs[0].model), weights(runs[1].model))
    assert runs[0].config["alternatives"] == "written by the model"
    (phase,) = method.phases()
    bench = Workbench(llama(WIDE), split, device=CPU, task="language")
    phase.prepare(bench)
    phase.begin()
    assert len(phase.others) == 2 * len(FORGET)
    lengths = (phase.alternatives["labels"] != -100).sum(dim=1)
    assert lengths.max() <= 7


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (uw.DPO(), "dpo needs other answers to the forget questions: pass alternatives="),
        (uw.DPO(alternatives={"input_ids": torch.zeros(4, 2)}), r"has \['input_ids'\], but must have input_ids, att"),
        (uw.DPO(alternatives=alternatives([0, 1, 2])), "has 3 texts for 4 forget samples. Give the same number"),
        (uw.IdkDPO(), "idk-dpo writes refusals in the model's tokens: pass tokenizer="),
        (uw.AltPO(), "altpo lets the model write other answers: pass tokenizer="),
        (uw.RMU(), r"layer is 7, but the model has 2 blocks \(0 to 1\)"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(method, words):
    split = uw.Split(data(), forget=FORGET, adjacent=[3, 5], remote=[8, 9])
    with pytest.raises(uw.UsageError, match=words):
        uw.unlearn(llama(WIDE), split, method, compute=uw.Compute("cpu"), guard=None)


@pytest.mark.parametrize("name", ON_TOKENS)
def test_models_without_tokens_are_refused(name, model, split):
    given = GIVEN.get(name, dict)() if name == "idk-dpo" else {}
    own = {"alternatives": alternatives(range(len(split.forget)))} if name in ("dpo", "altpo") else given
    with pytest.raises(uw.UsageError, match=f"{name} works on the tokens of answers, and the task classification"):
        uw.unlearn(model, split, find_method(name).configure(own), compute=uw.Compute("cpu"))
    assert math.isfinite(sum(float(p.detach().sum()) for p in model.parameters()))
