"""Texts as tokens: what is labelled, and what is refused before any work."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unweave as uw
from tests.helpers.texts import TEMPLATE, llama, rows, tokenizer, transformers

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} [END]\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def words(data, row, *, labelled=False):
    some = data["labels"][row] if labelled else data["input_ids"][row][data["attention_mask"][row].bool()]
    return tokenizer().decode(some[some != -100])


def test_only_the_answer_and_its_end_are_labelled():
    data = uw.answers(rows(), tokenizer(), template=TEMPLATE)
    assert words(data, 0) == "where does ada live ? : ada lives in rome . [END]"
    assert words(data, 0, labelled=True) == "ada lives in rome . [END]"
    assert data["attention_mask"].sum(dim=1).tolist() == [12 if row % 2 == 0 else 13 for row in range(24)]


def test_a_chat_template_marks_the_same_answer():
    chatty = tokenizer()
    chatty.chat_template = CHAT
    data = uw.answers(rows(), chatty, prompt="question", answer="answer")
    assert words(data, 0, labelled=True) == "ada lives in rome . [END]"
    assert words(data, 0).endswith("live ? [END] [UNK] ada lives in rome . [END]")


def test_running_text_is_packed_into_blocks_that_leave_nothing_out():
    texts = [row["answer"] for row in rows()]
    data = uw.packed(texts, tokenizer(), length=16)
    every = data["input_ids"][data["attention_mask"].bool()]
    assert tokenizer().decode(every) == " ".join(f"{text} [END]" for text in texts)
    model = llama().double()
    with torch.no_grad():
        losses = uw.Language().batch_losses(model, data)
        whole = [
            model(input_ids=ids[m.bool()][None], labels=ids[m.bool()][None]).loss
            for ids, m in zip(data["input_ids"], data["attention_mask"], strict=True)
        ]
    assert torch.allclose(losses, torch.stack(whole).double(), atol=1e-6)


def without(**changes):
    found = tokenizer()
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def changed(**values):
    return [{**rows()[0], **values}]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: uw.answers(rows(), without(pad_token=None), template=TEMPLATE),
            "no pad token. Set one: tokenizer.pad",
        ),
        (lambda: uw.answers(rows(), tokenizer()), "no chat template. Give one as text: template='Question"),
        (lambda: uw.answers(rows(), tokenizer(), template="{answer}"), r"must have {prompt} and, after it, {answer}"),
        (
            lambda: uw.answers(rows(), tokenizer(), template=TEMPLATE, longest=12),
            r"12 of 24 answers would be cut off at 12 tokens \(row 1 has 13\). Raise longest=",
        ),
        (
            lambda: uw.answers(changed(answer=" "), tokenizer(), template=TEMPLATE),
            "Row 0 has an empty 'answer'. Remove",
        ),
        (lambda: uw.answers(changed(answer=7), tokenizer(), template=TEMPLATE), "Row 0 has int in 'answer'"),
        (
            lambda: uw.answers(rows(), tokenizer(), prompt="ask", template=TEMPLATE),
            "no column 'ask', but 'question', 'ans",
        ),
        (
            lambda: uw.answers(rows(), tokenizer(), template=TEMPLATE, model=llama(30)),
            "tokenizer has 52 tokens, but the model's embedding has 30: it is the tokenizer of another model",
        ),
        (lambda: uw.packed([], tokenizer(), length=8), "no text to pack"),
        (lambda: uw.packed(["a"], tokenizer(), length=1), "needs 2 tokens at least"),
    ],
)
def test_what_cannot_become_texts_is_refused_in_a_sentence(make, words):
    with pytest.raises(uw.UsageError, match=words) as caught:
        make()
    assert str(caught.value).count("\n") == 0


def masked():
    data = uw.answers(rows(), tokenizer(), template=TEMPLATE)
    data["labels"][3] = -100
    return data


def test_a_model_is_never_run_on_texts_that_it_cannot_take():
    data = uw.answers(rows(), tokenizer(), template=TEMPLATE)
    bert = transformers.BertConfig(
        vocab_size=60, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    cases = [
        (
            llama(30),
            data,
            r"has the token \d+, but the model knows 30 \(0 to 29\): the texts were made by",
        ),
        (llama(positions=12), data, r"12 texts are longer than the 12 tokens that the model takes \(sample 1 has"),
        (llama(), masked(), "Sample 3 has no answer: all of its labels are -100"),
        (transformers.BertForMaskedLM(bert), data, "BertForMaskedLM does not predict the next token"),
    ]
    for model, some, words in cases:
        model.forward = never
        split = uw.Split(some, forget=[0, 2], adjacent=[1, 3])
        for task in (None, "language", uw.Language()):
            with pytest.raises(uw.UsageError, match=words):
                uw.unlearn(model, split, "gdr", task=task, compute=uw.Compute("cpu"))
            with pytest.raises(uw.UsageError, match=words):
                uw.evaluate(model, split, task=task, compute=uw.Compute("cpu"))


def never(*_, **__):
    raise AssertionError("the model was run")


def test_labels_of_another_shape_are_refused():
    data = uw.answers(rows(), tokenizer(), template=TEMPLATE)
    split = uw.Split({**data, "labels": data["labels"][:, 1:]}, forget=[0], adjacent=[1])
    with pytest.raises(uw.UsageError, match=r"Texts of 13 tokens have labels of shape \(12,\). Each token"):
        uw.unlearn(llama(), split, "gdr", task="language", compute=uw.Compute("cpu"))
    with pytest.raises(uw.UsageError, match=r"needs input_ids, attention_mask and labels, but samples have tuple"):
        pair = uw.Split((data["input_ids"], data["labels"]), forget=[0], adjacent=[1])
        uw.unlearn(llama(), pair, "gdr", task="language", compute=uw.Compute("cpu"))


def test_an_unknown_side_is_refused():
    with pytest.raises(uw.UsageError, match="side"):
        uw.PaddingCollator(0, side="rigth")


def test_threshold_and_kind_are_checked():
    with pytest.raises(uw.UsageError, match="threshold is 0, but must be above 0"):
        uw.Language(threshold=0)
    with pytest.raises(uw.UsageError, match="generation"):
        uw.Language(by="generations")
    with pytest.raises(uw.UsageError, match="needs logits of shape"):
        uw.Language().outputs(nn.Linear(3, 2), (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.long)))
