"""What errors about texts and language models advise, as in `advised.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import unweave as uw
from tests.helpers.advised import HOW, Advised
from tests.helpers.answers import alternatives, chatty
from tests.helpers.texts import KNOWN, TEMPLATE, llama, rows, tokenizer

SHORT = {"epochs": 1, "batch_size": 8}
FORGET = [0, 1, 2]


def texts(**more: Any) -> Any:
    return uw.answers(rows(), tokenizer(), **{"template": TEMPLATE, **more})


def split(data: Any = None) -> uw.Split:
    return uw.Split(texts() if data is None else data, forget=FORGET, adjacent=[3, 5, 6])


def run(method: str = "npo", *, model: nn.Module | None = None, data: Any = None, **more: Any) -> uw.Result:
    """Call `unlearn` briefly on a tiny language model."""
    return uw.unlearn(llama() if model is None else model, split(data), method, **HOW, **SHORT, **more)


def unlabelled(*, mended: bool) -> Any:
    """Texts of which one has no answer."""
    data = {name: value.clone() for name, value in texts().items()}
    whole = data["labels"][4].clone()
    data["labels"][4] = -100
    if mended:
        data["labels"][4] = whole
    return data


def spoken(*, with_end: bool = True, with_pad: bool = True) -> Any:
    found = tokenizer()
    found.pad_token = "[PAD]" if with_pad else None
    found.eos_token = "[END]" if with_end else None
    return found


def mended(**tokens: str) -> Any:
    """A tokenizer that lacks a token, with the token set as advised."""
    found = spoken(with_end="eos_token" not in tokens, with_pad="pad_token" not in tokens)
    for name, token in tokens.items():
        setattr(found, name, token)
    return found


def with_template(template: str) -> Any:
    found = tokenizer()
    found.chat_template = template
    return found


class Changing(torch.utils.data.Dataset[Any]):
    """Texts of which one token changes each time that they are read."""

    def __init__(self) -> None:
        self.texts = texts()

    def __len__(self) -> int:
        return len(self.texts["labels"])

    def __getitem__(self, place: int) -> Any:
        sample = {name: value[place].clone() for name, value in self.texts.items()}
        sample["input_ids"][0] = torch.randint(3, KNOWN, ())
        return sample


def without_down_projections() -> nn.Module:
    """A model whose layers cannot be told apart by their names."""
    model = llama()
    for name, weight in model.named_parameters():
        weight.requires_grad_("down_proj" not in name)
    return model


class Flat(nn.Module):
    """A model without a list of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(KNOWN, 8), nn.Linear(8, KNOWN)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.words(input_ids))
        return found


def with_rows(**change: Any) -> Any:
    """Make answers of rows of which the first is changed."""
    return uw.answers([{**rows()[0], **change}, *rows()[1:]], tokenizer(), template=TEMPLATE)


def renamed(**more: Any) -> Any:
    """Make answers of rows whose column has another name."""
    said = [{"question": row["question"], "said": row["answer"]} for row in rows()]
    return uw.answers(said, tokenizer(), template=TEMPLATE, **more)


def without_the_first() -> Any:
    return uw.answers(rows()[1:], tokenizer(), template=TEMPLATE)


WORDS = [" ".join(row["question"] for row in rows())]

TEXTS = [
    Advised(
        "pass tokenizer=, or the answers as alternatives=.",
        lambda: run("altpo"),
        lambda: (run("altpo", tokenizer=tokenizer(), longest=3), run("altpo", alternatives=alternatives(FORGET))),
    ),
    Advised(
        "pass tokenizer=, the model's own.",
        lambda: run("idk-dpo"),
        lambda: run("idk-dpo", model=llama(120), tokenizer=chatty()),
    ),
    Advised(
        "pass alternatives=, texts as uw.answers returns them",
        lambda: run("dpo"),
        lambda: run("dpo", alternatives=alternatives(FORGET)),
    ),
    Advised(
        "Give the same number for each, in their order.",
        lambda: run("dpo", alternatives=alternatives([0, 1, 2, 3])),
        lambda: run("dpo", alternatives=alternatives(FORGET)),
    ),
    Advised(
        "Use trained=all.",
        lambda: run("rmu", model=without_down_projections(), layer=1),
        lambda: run("rmu", model=without_down_projections(), layer=1, trained="all"),
    ),
    Advised("Give data without random transforms.", lambda: run("npo", data=Changing()), run),
    Advised(
        "Label the tokens of the answer with their numbers.",
        lambda: run(data=unlabelled(mended=False)),
        lambda: run(data=unlabelled(mended=True)),
    ),
    Advised(
        "the texts were made by the tokenizer of another model. Use the model's own.",
        lambda: run(model=llama(20)),
        lambda: run(model=llama(KNOWN)),
    ),
    Advised(
        "Shorten them, or split them with uw.packed.",
        lambda: run(model=llama(positions=8)),
        lambda: (
            run(model=llama(positions=8), data={name: value[:, -8:] for name, value in texts().items()}),
            run(model=llama(positions=8), data=uw.packed(WORDS * 3, tokenizer(), length=8)),
        ),
    ),
    Advised(
        "Pass features=.",
        lambda: split().inspect(Flat(), device="cpu"),
        lambda: split().inspect(features=torch.randn(24, 4)),
    ),
    Advised(
        "Set one: tokenizer.pad_token = tokenizer.eos_token.",
        lambda: uw.answers(rows(), spoken(with_pad=False), template=TEMPLATE),
        lambda: uw.answers(rows(), mended(pad_token="[END]"), template=TEMPLATE),
    ),
    Advised(
        "Set tokenizer.eos_token.",
        lambda: uw.packed(WORDS, spoken(with_end=False), length=4),
        lambda: uw.packed(WORDS, mended(eos_token="[END]"), length=4),
    ),
    Advised(
        "Load the model's own.",
        lambda: uw.answers(rows(), tokenizer(), template=TEMPLATE, model=llama(20)),
        lambda: uw.answers(rows(), tokenizer(), template=TEMPLATE, model=llama(KNOWN)),
    ),
    *(
        Advised(
            "Raise longest=, as far as the model goes, or remove these rows.",
            lambda: texts(longest=12),
            follow,
        )
        for follow in (
            lambda: texts(longest=13),
            lambda: uw.answers(rows()[::2], tokenizer(), template=TEMPLATE, longest=12),
        )
    ),
    Advised(
        "Give at least one with a prompt and an answer.", lambda: uw.answers([], tokenizer(), template=TEMPLATE), texts
    ),
    Advised("Remove it: there is nothing to learn or to forget.", lambda: with_rows(answer=""), without_the_first),
    Advised(
        "Remove it: there is nothing to answer.",
        lambda: uw.answers([{"question": "", "answer": "ada"}, *rows()], tokenizer(), template="{prompt}{answer}"),
        lambda: uw.answers(rows(), tokenizer(), template=TEMPLATE),
    ),
    Advised(
        "a lone surrogate). Write it again.",
        lambda: with_rows(question="where does \ud800 live ?"),
        lambda: with_rows(question="where does ada live ?"),
    ),
    Advised("Name it.", renamed, lambda: renamed(answer="said")),
    *(
        Advised(
            advice,
            lambda made=made: uw.answers(rows(), made(), template="chat"),
            lambda made=made: uw.answers(rows(), made(), template="{prompt} {answer}"),
        )
        for advice, made in (
            ("no chat template. Give one as text: template=", tokenizer),
            ("fails: ", lambda: with_template("{{ raise_exception('no') }}")),
            (
                "changes the prompt when an answer follows. Give a template as text: template=",
                lambda: with_template("{{ messages | length }} {{ messages[-1]['content'] }}"),
            ),
        )
    ),
]
