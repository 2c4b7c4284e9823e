"""AltPO: prefer plausible other answers, which the model itself writes, to the true ones on forget questions.

Mekala et al., "Alternate Preference Optimization for Unlearning Factual Knowledge in Large Language Models" (COLING
2025).

Objective: min over θ of γ · (2/β) E_f[−log σ(β [log p_θ(a|x)/p_ref(a|x) − log p_θ(y|x)/p_ref(y|x)])] + α · L(D_r),
where the alternative a is one of several that the original wrote before unlearning. Each pass takes the next one of
them.

The sources differ. The authors prompt with instructions of their own for each model, and sometimes with examples. Here
the instruction is our own, and the answers are drawn at temperature 1; give ``alternatives`` to use others.
open-unlearning takes the token mean of the retain term. It counts the five alternatives of a question as five samples,
so its 2 epochs are 10 here. Both: β 0.1, AdamW 1e-5, batches of 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from unweave.data import NO_LABEL, RETAINED, PaddingCollator, Partition, require_tokenizer
from unweave.engine import Phase
from unweave.errors import UsageError
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING
from unweave.methods.preferences import (
    TEXTS,
    PreferAlternatives,
    PreferenceSettings,
    describe_alternatives,
    require_alternatives,
)
from unweave.settings import given, setting
from unweave.tasks import prompts_and_answers, written

INSTRUCTION = (
    "Here is a question with its answer. Write another answer to the question. Change every fact of the given answer "
    "to a different one that is just as plausible, keep to what the question says, and do not repeat the given "
    "answer.\n"
    "Question: {question}\nAnswer: {answer}\nOther answer:"
)


@dataclass(frozen=True, kw_only=True)
class AltPO(PreferenceSettings, Method):
    """AltPO: prefer plausible other answers, which the model itself writes, to the true ones on forget questions.

    ``tokenizer`` must be given, so that the model can write, or ``alternatives``: texts as `unweave.answers` returns
    them, the same number for each forget sample, in the order of their positions in the data set. ``unweave methods
    altpo`` lists the settings. Reference: Mekala et al., "Alternate Preference Optimization for Unlearning Factual
    Knowledge in Large Language Models" (COLING 2025).

    Raises:
        UsageError: From `check`, if neither is given, or the alternatives do not match the forget samples.

    Example:
        >>> import unweave as uw
        >>> uw.AltPO(count=3).longest
        200
    """

    name = "altpo"
    summary = "Language models: prefer other answers of the model's own to the true ones, beside training."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": OPEN_UNLEARNING}

    count: int = setting(5, at_least=1, help="Alternatives that the model writes for each question.")
    longest: int = setting(200, at_least=1, help="The most tokens of an alternative.")
    tokenizer: Any = given(help="The model's tokenizer, of transformers, for alternatives that the model writes.")
    alternatives: Mapping[str, Any] | None = given(help="Alternatives that exist already, as uw.answers makes them.")

    def check(self, split: Partition) -> None:
        """Raise if the split lacks data, or neither alternatives nor a tokenizer are given."""
        super().check(split)
        if self.alternatives is not None:
            require_alternatives(self.alternatives, self.name, forget=len(split["forget"]))
        elif self.tokenizer is None:
            raise UsageError(
                "altpo lets the model write other answers: pass tokenizer=, or the answers as alternatives=."
            )
        else:
            require_tokenizer(self.tokenizer)

    def on_record(self) -> dict[str, Any]:
        """Return what the alternatives are."""
        own = self.alternatives is None
        return {"alternatives": "written by the model" if own else describe_alternatives(self.alternatives or {})}

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [PreferWritten(self)]


class PreferWritten(PreferAlternatives):
    """Prefer the alternatives."""

    name = "alternate preference"
    keeps = (*PreferAlternatives.keeps, "texts")
    settings: AltPO

    def begin(self) -> None:
        """Let the original write alternatives, unless they are given; then compute the reference's likelihoods."""
        own = self.settings.alternatives
        self.texts: list[Tensor] = [] if own is not None else self._written()
        super().begin()

    @property
    def alternatives(self) -> Mapping[str, Any]:
        """The alternatives, as texts."""
        return self.settings.alternatives or dict(zip(TEXTS, self.texts, strict=True))

    def scale(self) -> float:
        """Return 2/β."""
        return 2 / self.settings.inverse_temperature

    def _written(self) -> list[Tensor]:
        """Return the texts of alternatives: for each question, the prompt with what the model wrote."""
        s, tokenizer = self.settings, self.settings.tokenizer
        rows = self.forget.rows.sort().values.cpu()
        pairs = list(prompts_and_answers(self.forget.samples.read(rows)))
        asked = [self._instruction(prompt, answer) for prompt, answer in pairs for _ in range(s.count)]
        said = written(
            self.bench.model,
            asked,
            pad=tokenizer.pad_token_id,
            end=tokenizer.eos_token_id,
            longest=s.longest,
            temperature=1.0,
        )
        texts = []
        for place, tokens in enumerate(said):
            prompt, answer = pairs[place // s.count]
            other = [*tokens, answer[-1]]  # the end token
            texts.append({"input_ids": prompt + other, "labels": [NO_LABEL] * len(prompt) + other})
        data = PaddingCollator(tokenizer.pad_token_id)(texts)
        return [data[name].to(self.bench.device) for name in TEXTS]

    def _instruction(self, prompt: list[int], answer: list[int]) -> list[int]:
        tokenizer = self.settings.tokenizer
        text = INSTRUCTION.format(
            question=tokenizer.decode(prompt, skip_special_tokens=True).strip(),
            answer=tokenizer.decode(answer, skip_special_tokens=True).strip(),
        )
        if getattr(tokenizer, "chat_template", None) is not None:
            asked = [{"role": "user", "content": text}]
            text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens
