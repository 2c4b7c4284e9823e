"""The task language: losses of answers, padding, chunks, recognition, adapters; a fact is learned and forgotten."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

import unweave as uw
from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer, transformers
from unweave.data import Samples
from unweave.engine import Workbench
from unweave.tasks import find_task
from unweave.tasks.token_logits import token_values

CPU = torch.device("cpu")


def data():
    return uw.answers(rows(), tokenizer(), template=TEMPLATE)


def by_hand(model, data):
    """Return the mean negative log-likelihood of every answer, one text at a time and without padding."""
    found = []
    for ids, mask, labels in zip(data["input_ids"], data["attention_mask"], data["labels"], strict=True):
        there = mask.bool()
        logits = model(input_ids=ids[there][None]).logits[0, :-1]
        found.append(functional.cross_entropy(logits, labels[there][1:], ignore_index=-100))
    return torch.stack(found)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=60, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=None, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config).eval()


def capped():
    """A model that bounds its logits after the head."""
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        final_logit_softcapping=0.1,
        bos_token_id=None,
    )
    return transformers.Gemma2ForCausalLM(config).eval()


@pytest.mark.parametrize("make", [llama, gpt2, capped])
def test_a_loss_is_the_mean_negative_log_likelihood_of_the_answer(make):
    model = make().double()
    assert torch.allclose(uw.Language().batch_losses(model, data()), by_hand(model, data()), atol=1e-9)


@pytest.mark.parametrize("make", [llama, gpt2])
def test_left_and_right_padding_agree(make):
    model, right = make().double(), data()
    samples = [
        {name: value[mask.bool()] for name, value in (("input_ids", ids), ("labels", labels))}
        for ids, mask, labels in zip(right["input_ids"], right["attention_mask"], right["labels"], strict=True)
    ]
    left = uw.PaddingCollator(0, side="left")(samples)
    assert not torch.equal(left["input_ids"], right["input_ids"])
    outputs = [uw.Language().outputs(model, some) for some in (left, right)]
    assert torch.allclose(*outputs, atol=1e-9)
    gradients = []
    for some in (left, right):
        model.zero_grad()
        uw.Language().batch_losses(model, some).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.allclose(*gradients, atol=1e-9)


def test_chunks_change_neither_values_nor_gradients():
    model, batch = llama().double(), data()

    def loss(logits, targets):
        return functional.cross_entropy(logits, targets, reduction="none", ignore_index=-100)

    found = []
    for chunk in (10**9, 7 * 60, 1):
        model.zero_grad()
        values, answer = token_values(model, batch, loss, chunk=chunk)
        (values * answer).sum().backward()
        found.append(torch.cat([values.flatten(), *(p.grad.flatten() for p in model.parameters())]).detach())
    assert torch.allclose(found[0], found[1], atol=1e-9)
    assert torch.allclose(found[0], found[2], atol=1e-9)


def test_no_more_logits_than_a_chunk_ever_stand_in_memory():
    seen = []

    def note(logits, targets):
        seen.append(logits.numel())
        return logits[:, 0]

    token_values(llama(), data(), note, chunk=500)
    assert max(seen) <= 500
    assert len(seen) > 1


@pytest.mark.parametrize("positions", [16, 64])
def test_cut_padding_and_pieces_by_length_change_nothing(positions):
    model, whole = llama(positions=positions), data()
    wide = {name: functional.pad(value, (0, 30), value=-100 * (name == "labels")) for name, value in whole.items()}
    split = uw.Split(wide, forget=[0], adjacent=[1, 2])
    found = uw.evaluate(model, split, resamples=0, compute=uw.Compute("cpu"))
    assert found["train"]["remote"]["loss"] == pytest.approx(by_hand(model, whole)[3:].mean().item(), abs=1e-5)


def test_samples_of_different_lengths_go_through_a_padding_collator():
    whole = data()
    samples = [
        {"input_ids": ids[mask.bool()], "labels": labels[mask.bool()]}
        for ids, mask, labels in zip(whole["input_ids"], whole["attention_mask"], whole["labels"], strict=True)
    ]
    results = []
    for some in (
        uw.Split(whole, forget=[0, 2], adjacent=[1, 3]),
        uw.Split(samples, forget=[0, 2], adjacent=[1, 3], collate=uw.PaddingCollator(0)),
    ):
        result = uw.unlearn(llama(), some, "gdr", epochs=2, batch_size=5, compute=uw.Compute("cpu"), guard=None)
        results.append(torch.cat([p.detach().flatten() for p in result.model.parameters()]))
        assert result.scores["train"]["remote"]["samples"] == 20
    assert torch.allclose(*results, atol=1e-5)


@torch.no_grad()
def test_recognised_counts_tokens_or_what_greedy_generation_writes():
    model = llama(hidden=16)
    batch = data()
    values = uw.Language().outputs(model, batch)
    generated = uw.Language(by="generation").outputs(model, batch)
    for row in range(len(rows())):
        there = batch["attention_mask"][row].bool()
        ids, labels = batch["input_ids"][row][there], batch["labels"][row][there]
        start = int((labels != -100).nonzero()[0])
        answer = ids[start:]
        right = model(input_ids=ids[None]).logits[0, start - 1 : -1].argmax(dim=-1) == answer
        assert values[row, 1] == pytest.approx(float(right.float().mean()), abs=1e-6)
        said = model.generate(
            ids[None, :start], attention_mask=torch.ones(1, start), max_new_tokens=len(answer), do_sample=False
        )[0, start:]
        same = [int(a) == int(b) for a, b in zip(said, answer, strict=False)]
        length = next((place for place, equal in enumerate(same) if not equal), len(same))
        assert generated[row, 1] == pytest.approx(length / len(answer), abs=1e-6)


def test_it_takes_many_tokens_to_reach_a_margin():
    """One token that became impossible is not a forgotten answer, though the mean loss says so."""
    batch = {"input_ids": torch.zeros(2, 9, dtype=torch.long), "labels": torch.zeros(2, 9, dtype=torch.long)}

    class Says(torch.nn.Module):
        def forward(self, input_ids):
            logits = torch.zeros(*input_ids.shape, 2)
            logits[0, 0, 1] = 40.0  # one token has a loss of 40
            logits[1, :, 1] = 5.0  # each has a loss of 5
            return logits

    task = uw.Language()
    losses, margins = (function(Says(), batch) for function in (task.batch_losses, task.batch_margins))
    assert losses[0] > losses[1] > 5 - 1e-2
    assert margins[0] < 0.7 < 2.4 < margins[1]
    assert torch.allclose(task.margins(task.outputs(Says(), batch), batch["labels"]), margins)


@pytest.mark.parametrize("method", ["adaptive", "two-stage"])
def test_with_few_kept_answers_none_is_held_back(method):
    split = uw.Split(data(), forget=[0], adjacent=[1, 2], remote=[3, 4])
    result = uw.unlearn(llama(), split, method, compute=uw.Compute("cpu"), guard=None)
    assert result.history.rows


def test_the_task_is_found_and_may_be_named():
    split = uw.Split(data(), forget=[0], adjacent=[1])
    rows_of = split.rows("forget", "adjacent")
    assert isinstance(find_task(None, llama(), Samples(data()), rows_of, CPU), uw.Language)
    assert isinstance(find_task("language", llama(), Samples(data()), rows_of, CPU), uw.Language)
    result = uw.unlearn(llama(), split, "ga", epochs=1, compute=uw.Compute("cpu"), guard=None)
    assert result.config["task"] == "language"
    assert result.config["threshold"] == 0.9


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ({"is_quantized": True}, "weights of LlamaForCausalLM are quantised, so they cannot be copied"),
        (
            {"hf_device_map": {"model": 0, "lm_head": "cpu"}},
            r"is spread over the devices 0, cpu \(device_map\). Load it",
        ),
    ],
)
def test_models_that_cannot_be_copied_whole_are_refused_in_a_sentence(mark, words):
    model = llama()
    for name, value in mark.items():
        setattr(model, name, value)
    split = uw.Split(data(), forget=[0], adjacent=[1])
    with pytest.raises(uw.UsageError, match=words):
        uw.unlearn(model, split, "gdr", compute=uw.Compute("cpu"))


def trained(model, data, epochs=60):
    split = uw.Split(data, [], range(1), allow_empty=True)
    method = uw.Retrain(epochs=epochs, learning_rate=5e-3, batch_size=24, initial=lambda: copy.deepcopy(model))
    return uw.unlearn(model, split, method, compute=uw.Compute("cpu"), guard=None).model


@pytest.fixture(scope="module")
def taught():
    """A model that gives every answer, and its data. Facts 0 and 1 are ada's."""
    return trained(llama(), data()), data()


@pytest.mark.parametrize("method", ["adaptive", "unweave"])
def test_a_fact_is_learned_and_forgotten_and_its_neighbour_stays(taught, method):
    """Without a setting."""
    model, facts = taught
    split = uw.Split(facts, forget=[0], adjacent=[1], remote=range(2, 24))
    assert uw.Language().outputs(model, facts)[:, 1].min() == 1
    result = uw.unlearn(model, split, method, compute=uw.Compute("cpu"))
    after = result.scores["train"]
    assert after["forget"]["accuracy"] == 0
    assert after["adjacent"]["accuracy"] == 1
    assert after["remote"]["accuracy"] >= 0.95


FORGETTING = {  # settings under which the tiny model forgets one fact and keeps the next
    "grad-diff": {"retain_weight": 5.0, "learning_rate": 1e-3},
    "npo": {"inverse_temperature": 0.5},
    "simnpo": {"forget_weight": 1.0},
    "undial": {"retain_weight": 5.0},
    "wga": {},
    "pdu": {},
    "rmu": {"layer": 0, "trained": "all", "retain_weight": 1000.0, "learning_rate": 1e-3},
}


@pytest.mark.parametrize("name", FORGETTING)
def test_methods_for_answers_forget_a_fact_and_its_neighbour_stays(taught, name):
    model, facts = taught
    split = uw.Split(facts, forget=[0], adjacent=[1], remote=range(2, 24))
    settings = {"epochs": 60, "batch_size": 24, "learning_rate": 2e-3, **FORGETTING[name]}
    result = uw.unlearn(model, split, name, compute=uw.Compute("cpu"), guard=None, **settings)
    after = result.scores["train"]
    assert after["forget"]["accuracy"] == 0
    assert after["adjacent"]["accuracy"] == 1
    assert after["remote"]["accuracy"] >= 0.9


def test_an_adapter_alone_learns_to_forget(taught):
    peft = pytest.importorskip("peft")
    model, facts = taught
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
    adapted = peft.get_peft_model(copy.deepcopy(model), config).eval()
    split = uw.Split(facts, forget=[0], adjacent=[1], remote=range(2, 24))
    losses = uw.Language().batch_losses
    assert torch.allclose(losses(adapted, facts), losses(model, facts), atol=1e-5)
    result = uw.unlearn(
        adapted,
        split,
        "gdr",
        learning_rate=1e-2,
        epochs=20,
        tolerance=0.5,
        sharpness=5.0,
        compute=uw.Compute("cpu"),
        guard=None,
    )
    assert result.scores["train"]["forget"]["loss"] > 1
    before, after = adapted.state_dict(), result.model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        name for name in before if "lora_" in name
    }


def test_texts_share_passes_up_to_a_size_of_their_own(taught):
    """A text is as much work as many small images: a pass of hundreds would fill the memory of a device."""
    model, facts = taught
    split = uw.Split(facts, forget=[0], adjacent=[1], remote=range(2, 24))
    bench = Workbench(model, split, device=torch.device("cpu"))
    bench.at_once = 512  # as on CUDA
    batches = bench.batches("remote", size=2)
    many = [batches[number % len(batches)] for number in range(40)]
    sizes = [sum(len(batch) for batch, _ in group) for group in bench.losses_in_passes(many, most=2)]
    assert max(sizes) <= 64
    assert len(sizes) > 1
