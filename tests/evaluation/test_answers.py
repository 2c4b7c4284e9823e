"""Questions about a language model's answers, beside worked examples and direct computation."""

from __future__ import annotations

import json
import math
import zlib

import numpy as np
import pytest
import torch
from torch.nn import functional

import unweave as uw
from tests.helpers.answers import other_rows
from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer
from unweave.evaluation import answer_attacks as attacks
from unweave.evaluation import memorisation, model_utility, truth_ratio
from unweave.evaluation.answer_probability import probabilities, probabilities_among_options
from unweave.evaluation.answer_sheets import AnswerSheet, Wording, answer_sheet
from unweave.evaluation.forget_quality import forget_quality
from unweave.evaluation.four_bits import rounded
from unweave.evaluation.rouge import rouge_recall
from unweave.evaluation.stemming import stem

CPU = uw.Compute("cpu")
WORDING = Wording(tokenizer=tokenizer(), template=TEMPLATE, write=8)


def sheet(logs, right=None, **more):
    """A sheet of one answer for each list of log-probabilities."""
    count = len(logs)
    return uw.AnswerSheet(
        questions=[f"q{place}" for place in range(count)],
        answers=more.pop("answers", ["a b"] * count),
        log_probabilities=logs,
        right=right or [[True] * len(tokens) for tokens in logs],
        expected=more.pop("expected", [[0.0] * len(tokens) for tokens in logs]),
        spread=more.pop("spread", [[1.0] * len(tokens) for tokens in logs]),
        **more,
    )


def asked(places=range(6)):
    """Questions with a paraphrase and two wrong answers."""
    every, others = rows(), other_rows()
    return [
        {
            **every[place],
            "paraphrased_answer": every[place]["answer"].replace(" .", ""),
            "perturbed_answer": [others[place]["answer"], others[(place + 2) % 24]["answer"]],
        }
        for place in places
    ]


# One forward pass


@torch.no_grad()
def test_a_sheet_holds_what_the_model_says_of_every_token():
    model, speak = llama(), tokenizer()
    found = answer_sheet(model, asked(), WORDING, compute=CPU)
    for place, row in enumerate(asked()):
        before = speak(f"{row['question']} :")["input_ids"]
        answer = [*speak(row["answer"])["input_ids"], speak.eos_token_id]
        logits = model(input_ids=torch.tensor([before + answer])).logits[0, len(before) - 1 : -1].double()
        logs = torch.log_softmax(logits, dim=-1)
        own = logs[range(len(answer)), answer]
        assert found.log_probabilities[place] == pytest.approx(own.tolist(), abs=1e-5)
        assert found.right[place] == (logits.argmax(-1) == torch.tensor(answer)).tolist()
        mean = (logs.exp() * logs).sum(-1)
        assert found.expected[place] == pytest.approx(mean.tolist(), abs=1e-5)
        spread = ((logs.exp() * (logs - mean[:, None]) ** 2).sum(-1)).sqrt()
        assert found.spread[place] == pytest.approx(spread.clamp(min=1e-3).tolist(), abs=1e-3)
        assert found.losses[place] == pytest.approx(-float(own.mean()), abs=1e-5)
        said = model.generate(
            torch.tensor([before]), attention_mask=torch.ones(1, len(before)), max_new_tokens=8, do_sample=False
        )[0, len(before) :]
        assert found.written[place] == speak.decode(said, skip_special_tokens=True)
        texts = (row["paraphrased_answer"], row["perturbed_answer"][1])
        for losses, text in zip((found.paraphrase[place], found.wrong[place][1]), texts, strict=True):
            other = [*speak(text)["input_ids"], speak.eos_token_id]
            logits = model(input_ids=torch.tensor([before + other])).logits[0, len(before) - 1 : -1]
            assert losses == pytest.approx(float(functional.cross_entropy(logits, torch.tensor(other))), abs=1e-5)


def test_answers_may_be_saved_and_scored_elsewhere(tmp_path):
    groups = {"forget": asked(range(2)), "adjacent": asked(range(2, 6))}
    sheets = uw.ask(llama(), groups, tokenizer(), template=TEMPLATE, write=4, compute=CPU)
    uw.save_answers(sheets, tmp_path / "answers.json")
    again = uw.load_answers(tmp_path / "answers.json")
    assert again == sheets
    assert uw.score_answers(again, resamples=5).to_dict() == uw.score_answers(sheets, resamples=5).to_dict()


# Worked examples


def test_probability_is_the_geometric_mean_of_the_tokens():
    some = sheet([[math.log(0.5), math.log(0.125)]], wrong=[[math.log(4), math.log(8)]])
    assert probabilities(some).tolist() == pytest.approx([0.25])
    assert probabilities_among_options(some).tolist() == pytest.approx([0.25 / (0.25 + 0.25 + 0.125)])


def test_the_truth_ratio_compares_mean_losses():
    some = sheet([[-1.0, -1.0]] * 2, paraphrase=[1.0, 0.5], wrong=[[1.5, 2.5], [0.25, 0.25]])
    ratios = truth_ratio.truth_ratios(some)
    assert ratios.tolist() == pytest.approx([math.exp(-2) / math.exp(-1), math.exp(-0.25) / math.exp(-0.5)])
    assert truth_ratio.indifference(ratios).tolist() == pytest.approx([math.exp(-1), math.exp(-0.25)])
    assert truth_ratio.truthfulness(ratios).tolist() == pytest.approx([1 - math.exp(-1), 0.0])
    without = sheet([[-1.0, -3.0]], wrong=[[2.0, 2.0]])
    assert truth_ratio.truth_ratios(without).tolist() == pytest.approx([1.0])
    assert truth_ratio.knowledge(without).tolist() == pytest.approx([0.5])


def test_memorisation_leaves_the_end_token_out():
    right = [[True, False, True, True, False], [False, False, True], [True, True, False], [False, True]]
    some = sheet([[-1.0] * len(tokens) for tokens in right], right=right)
    assert memorisation.exact_memorisation(some).tolist() == pytest.approx([3 / 4, 0, 1, 0])
    assert memorisation.extraction_strength(some).tolist() == pytest.approx([2 / 4, 0, 1, 0])
    assert memorisation.extraction_strength(some, floor=True).tolist() == pytest.approx([2 / 4, 1 / 2, 1, 1])


def test_unshared_tokens_are_those_that_only_the_forget_data_explains():
    original, retrained = sheet([[-0.1, -0.1, -0.2, 0.0]]), sheet([[-0.1, -2.0, -0.6, 0.0]])
    only = memorisation.unshared_tokens(original, retrained)
    assert only == [[False, True, False, False]]
    some = sheet([[-1.0] * 4], right=[[True, False, True, True]])
    assert memorisation.exact_memorisation(some, only).tolist() == [0.0]
    assert np.isnan(memorisation.exact_memorisation(some, [[False] * 4])).all()


def test_forget_quality_is_the_kolmogorov_smirnov_test():
    ratios = np.linspace(0.1, 0.9, 40)
    same = forget_quality(ratios, ratios)
    assert (same.p_value, same.statistic, same.log10) == (1.0, 0.0, 0.0)
    apart = forget_quality(ratios, ratios + 5)
    assert apart.statistic == 1.0
    assert apart.p_value == pytest.approx(2 / math.comb(80, 40))  # the two orders in which all of one come first


def test_attacks_score_answers_as_their_papers_say():
    some = sheet([[-1.0, -2.0, -4.0, -0.5, -9.0]], answers=["ab ab ab ab ab ab"])
    assert attacks.loss_scores(some).tolist() == pytest.approx([3.3])
    assert attacks.zlib_scores(some).tolist() == pytest.approx([3.3 / len(zlib.compress(b"ab ab ab ab ab ab"))])
    assert attacks.min_k_scores(some).tolist() == [4.0]  # 40% of four tokens is one
    assert attacks.min_k_scores(some, share=0.5).tolist() == [3.0]
    some = sheet([[-1.0, -2.0, -4.0, -9.0]], expected=[[-1.0, -1.0, -3.0, 0.0]], spread=[[1.0, 0.5, 2.0, 1.0]])
    assert attacks.min_k_plus_scores(some).tolist() == [2.0]  # 0, −2 and −0.5
    sure = sheet([[-0.002, -1.0]], expected=[[0.0, 0.0]], spread=[[0.0, 1.0]])
    assert attacks.min_k_plus_scores(sure).tolist() == [2.0]  # the least spread is 0.001
    assert attacks.reference_scores(some, sheet([[-1.0]])).tolist() == [3.0]
    forget, held_out = np.array([1.0, 2.0, 5.0]), np.array([3.0, 4.0, 6.0, 7.0])
    assert attacks.familiarity(forget, held_out, resamples=0).value == pytest.approx(10 / 12)
    assert attacks.privacy_leak(0.9, 0.6) == pytest.approx((0.1 - 0.4) / 0.4 * 100)


def test_the_gradient_attack_takes_the_mean_norm_over_tensors():
    model = llama(layers=1)
    found = attacks.gradient_scores(model, asked(range(2)), WORDING)
    data = WORDING.tokens(asked(range(2)), model)
    for row in range(2):
        there = data["attention_mask"][row].bool()
        ids, labels = data["input_ids"][row][there][None], data["labels"][row][there][None].clone()
        labels[0, -1] = -100  # the end token
        model.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
        assert found[row] == pytest.approx(float(torch.stack(norms).mean()), rel=1e-4)


def test_model_utility_is_the_harmonic_mean_of_nine_means():
    one = sheet([[math.log(0.5)]], paraphrase=[0.0], wrong=[[math.log(2)]], written=["a b"])
    two = sheet([[math.log(0.5)]], wrong=[[math.log(4)]], written=["a x"])
    found = uw.score_answers({"retain": one, "real_authors": two, "world_facts": two}, resamples=3)
    parts = [0.5, 1.0, 0.5] + [0.5 / 0.75, 0.5, 0.5] * 2
    assert found["model"]["model_utility"] == pytest.approx(9 / sum(1 / part for part in parts), rel=1e-6)
    assert model_utility.harmonic_mean([0.0, 1.0]) == 0.0


@pytest.mark.parametrize(
    ("truth", "text", "recall"),
    [
        ("The author's name is Hina Ameen.", "Hina Ameen", 2 / 7),
        ("Hina Ameen", "The author's name is Hina Ameen.", 1.0),
        ("one two three four", "four three two one", 1 / 4),
        ("relational databases", "relate a database", 1.0),
        ("", "anything", 0.0),
        ("words", "", 0.0),
    ],
)
def test_rouge_is_the_longest_common_subsequence_of_stems(truth, text, recall):
    assert rouge_recall(truth, text) == pytest.approx(recall)


def test_stems_are_porters():
    examples = {  # of Porter's paper, and of NLTK where it departs
        "caresses": "caress",
        "ponies": "poni",
        "cats": "cat",
        "agreed": "agre",
        "plastered": "plaster",
        "motoring": "motor",
        "conflated": "conflat",
        "sized": "size",
        "hopping": "hop",
        "falling": "fall",
        "hissing": "hiss",
        "fizzed": "fizz",
        "filing": "file",
        "happy": "happi",
        "sky": "sky",
        "relational": "relat",
        "conditional": "condit",
        "valenci": "valenc",
        "digitizer": "digit",
        "conformabli": "conform",
        "radicalli": "radic",
        "vietnamization": "vietnam",
        "operator": "oper",
        "feudalism": "feudal",
        "hopefulness": "hope",
        "formaliti": "formal",
        "sensitiviti": "sensit",
        "sensibiliti": "sensibl",
        "triplicate": "triplic",
        "formative": "form",
        "electriciti": "electr",
        "hopeful": "hope",
        "goodness": "good",
        "revival": "reviv",
        "adjustment": "adjust",
        "adoption": "adopt",
        "effective": "effect",
        "probate": "probat",
        "rate": "rate",
        "cease": "ceas",
        "controll": "control",
        "roll": "roll",
        "dying": "die",
        "cries": "cri",
        "enjoy": "enjoy",
        "geologi": "geolog",
        "ties": "tie",
        "tied": "tie",
    }
    assert {word: stem(word) for word in examples} == examples


# All numbers of a model


def test_scores_stand_by_group_with_intervals_and_the_retrained_model_beside():
    groups = {name: asked(places) for name, places in (("forget", range(6)), ("held_out", range(10, 20)))}
    models = {seed: llama(seed=seed) for seed in range(3)}
    how = {"template": TEMPLATE, "write": 4, "gradients": True, "compute": CPU}
    sheets = [uw.ask(model, groups, tokenizer(), **how) for model in models.values()]
    scores = uw.score_answers(sheets[0], reference=sheets[1], before=sheets[2], resamples=50)
    rouge = scores.metric("rouge", "forget")
    alone = [uw.score_answers(one, resamples=0)["forget"] for one in sheets]
    assert (rouge.value, rouge.reference, rouge.before) == tuple(one["rouge"] for one in alone)
    assert rouge.low <= rouge.value <= rouge.high
    forget = scores["forget"]
    for name in (
        "mia_loss_auc",
        "mia_zlib_auc",
        "mia_min_k_auc",
        "mia_min_k_plus_auc",
        "mia_reference_auc",
        "mia_gradient_auc",
    ):
        assert 0 <= forget[name] <= 1
    assert (
        forget["ks_statistic"]
        == forget_quality(*(truth_ratio.truth_ratios(one["forget"]) for one in sheets[:2])).statistic
    )
    assert {"privacy_leak", "forget_quality", "forget_quality_log10"} <= set(forget)
    assert "No forget answer has such tokens" in scores.metric("exact_memorisation_unshared", "forget").note
    assert "privacy_leak" not in alone[0]
    assert "model_utility" in str(scores) or "forget_quality" in str(scores)


def test_models_must_be_asked_the_same():
    mine = sheet([[-1.0]])
    with pytest.raises(uw.UsageError, match="were asked different forget questions"):
        uw.score_answers({"forget": mine}, reference={"forget": sheet([[-1.0]], answers=["c d"])})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uw.ask(llama(), {}, tokenizer()), "no groups of questions"),
        (lambda: uw.ask(llama(), {"forget": []}, tokenizer(), template=TEMPLATE), "There is no question"),
        (lambda: uw.ask(llama(), {"forget": asked()}, tokenizer()), "no chat template"),
        (lambda: uw.ask(llama(30), {"forget": asked()}, tokenizer(), template=TEMPLATE), "has 52 tokens, but the mod"),
        (lambda: uw.rounded_weights(llama(), bits=0), "bits is 0 and block is 64, but both must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(call, words):
    with pytest.raises(uw.UsageError, match=words):
        call()


# Files of open-unlearning


def test_result_files_are_read_and_written_as_open_unlearning_has_them(tmp_path):
    groups = {
        "forget": asked(range(6)),
        "retain": asked(range(6, 12)),
        "held_out": asked(range(12, 20)),
        **{name: [{**row, "paraphrased_answer": None} for row in asked(range(20, 24))] for name in WITHOUT},
    }
    sheets = [uw.ask(llama(seed=s), groups, tokenizer(), template=TEMPLATE, write=4, compute=CPU) for s in (0, 1)]
    uw.write_logs(sheets[1], tmp_path / "retrained")
    logs = uw.write_logs(sheets[0], tmp_path / "mine", retrained=uw.read_logs(tmp_path / "retrained"))
    summary = json.loads((tmp_path / "mine" / "TOFU_SUMMARY.json").read_text())
    assert {"forget_quality", "model_utility", "privleak", "extraction_strength", "exact_memorization"} <= set(summary)
    assert {"forget_Truth_Ratio", "forget_Q_A_Prob", "forget_Q_A_ROUGE", "ra_Q_A_Prob_normalised"} <= set(summary)
    assert uw.read_logs(tmp_path / "mine" / "TOFU_EVAL.json").content == logs.content
    mine = uw.score_answers(sheets[0], reference=sheets[1], resamples=0)
    assert summary["forget_quality"] == pytest.approx(mine["forget"]["forget_quality"])
    assert summary["privleak"] == pytest.approx(mine["forget"]["privacy_leak"])
    assert summary["model_utility"] == pytest.approx(mine["model"]["model_utility"])
    assert summary["forget_Truth_Ratio"] == pytest.approx(mine["forget"]["truth_ratio"])


WITHOUT = ("real_authors", "world_facts")


def test_files_that_are_no_logs_are_refused(tmp_path):
    (tmp_path / "list.json").write_text("[1, 2]")
    for read in (uw.read_logs, uw.load_answers):
        with pytest.raises(uw.UsageError, match=r"list\.json"):
            read(tmp_path / "list.json")
    with pytest.raises(uw.UsageError, match="has no value_by_index of 'forget_Truth_Ratio'"):
        _ = uw.Logs({}).truth_ratios


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"forget": {}, "forget": {}}', "'forget' occurs twice"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        ('{"forget": {"questions": []}}', "lacks the entry 'answers'"),
        ('{"forget": {"answers": "a"}}', "lacks the entry 'questions'"),
        ('{"forget": NaN}', "NaN is not valid JSON"),
    ],
)
def test_answers_that_say_two_things_or_are_none_are_refused(tmp_path, text, words):
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(uw.UsageError, match=words):
        uw.load_answers(tmp_path / "answers.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answers": ["a", "b"]}, "has 2 answers, but 1 entries in 'questions'"),
        ({"right": [[True]]}, r"has 1 tokens in right\[0\], not 2"),
        ({"right": [[1, 2]]}, "neither true nor false"),
        ({"log_probabilities": [[]]}, r"in right\[0\], not 1"),
        ({"expected": [["x", 1.0]]}, r"expected\[0\]\[0\] is 'x', but must be a number"),
        ({"wrong": [[]]}, "without wrong answers"),
        ({"other": 1}, "unknown entry 'other'"),
    ],
)
def test_a_sheet_must_fit_its_questions(change, words):
    numbers = [[-0.5, -1.5]]
    whole = {"questions": ["q"], "answers": ["a"], "log_probabilities": numbers, "right": [[True, False]]}
    whole |= {"expected": numbers, "spread": numbers}
    AnswerSheet.from_dict(whole)
    with pytest.raises(uw.UsageError, match=words):
        AnswerSheet.from_dict({**whole, **change})


def test_answers_of_a_broken_model_are_not_saved(tmp_path):
    broken = sheet([[float("nan")]])
    with pytest.raises(uw.UsageError, match=r"not finite as .log_probabilities. of answer 0"):
        uw.save_answers({"forget": broken}, tmp_path / "answers.json")
    assert not (tmp_path / "answers.json").exists()


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "has no value_by_index|is empty"),
        ({"0": 1}, "value_by_index of 'forget_Truth_Ratio'.0 is 1, but must be an object"),
        ({"0": {"score": None}}, "score is None, but must be a number"),
        ({"first": {"score": 0.5}}, "has the place 'first'"),
    ],
)
def test_logs_with_odd_entries_are_refused(entries, words):
    with pytest.raises(uw.UsageError, match=words):
        _ = uw.Logs({"forget_Truth_Ratio": {"value_by_index": entries}}).truth_ratios
    with pytest.raises(uw.UsageError, match="agg_value of 'mia_min_k' is 'x', but must be a number"):
        _ = uw.Logs({"mia_min_k": {"agg_value": "x"}}).min_k_auc


# What knowledge survives


def test_four_bits_leave_sixteen_values_and_half_a_step():
    torch.manual_seed(0)
    weight = torch.randn(10, 37)
    found = rounded(weight, bits=4, block=64)
    for block, original in zip(found.reshape(-1)[:320].split(64), weight.reshape(-1)[:320].split(64), strict=True):
        step = float(original.max() - original.min()) / 15
        assert len(block.unique()) <= 16
        assert (block - original).abs().max() <= step / 2 + 1e-6
    model = llama()
    low = uw.rounded_weights(model)
    same = {name for name, value in model.state_dict().items() if torch.equal(value, low.state_dict()[name])}
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} <= same
    assert not any("proj" in name for name in same)
