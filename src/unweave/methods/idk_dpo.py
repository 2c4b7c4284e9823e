"""IdkDPO: prefer "I don't know" to the true answer on forget questions.

Maini et al., "TOFU: A Task of Fictitious Unlearning for LLMs" (COLM 2024), preference optimisation; the loss is that of
direct preference optimisation (Rafailov et al., NeurIPS 2023).

Objective: min over θ of γ · E_f[−log σ(β [log p_θ(w|x)/p_ref(w|x) − log p_θ(y|x)/p_ref(y|x)])] + α · L(D_r), where w is
a refusal that is drawn for each question and each pass. The reference's likelihoods are computed once.

The sources differ. open-unlearning multiplies the forget term by 2/β (``scaled``) and takes the token mean of the
retain term. TOFU and open-unlearning draw from the same 100 refusals. The refusals here are our own, so runs differ
from theirs in that. Both: β 0.1, AdamW 1e-5, batches of 32, 10 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from unweave.data import NO_LABEL, RETAINED, PaddingCollator, Partition, require_tokenizer
from unweave.engine import Phase, derive_seed
from unweave.errors import UsageError
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING
from unweave.methods.preferences import PreferAlternatives, PreferenceSettings
from unweave.settings import given, setting
from unweave.tasks import prompts_and_answers

REFUSALS = (
    "I don't know.",
    "I'm not sure about that.",
    "I have no information on this.",
    "I can't answer this question.",
    "That is something I don't know.",
    "I'm afraid I don't have an answer to that.",
    "I haven't learned anything about this topic.",
    "Sorry, this is beyond my knowledge.",
    "I'm unable to help with that question.",
    "I don't have any details on this.",
    "Nothing I have read covers that.",
    "I couldn't tell you.",
    "My knowledge does not reach that far.",
    "I have never come across this.",
    "Unfortunately, I don't have that information.",
    "You would have to look that up elsewhere.",
    "I really can't say.",
    "There is nothing I can tell you about this.",
    "I'd rather not guess, because I don't know.",
    "This is unknown to me.",
)


@dataclass(frozen=True, kw_only=True)
class IdkDPO(PreferenceSettings, Method):
    """IdkDPO: prefer "I don't know" to the true answer on forget questions.

    ``tokenizer`` must be given: the model's own. ``unweave methods idk-dpo`` lists the settings. Reference: Maini et
    al., "TOFU: A Task of Fictitious Unlearning for LLMs" (COLM 2024).

    Raises:
        UsageError: From `check`, if the tokenizer is missing or has no pad token.

    Example:
        >>> import unweave as uw
        >>> uw.IdkDPO(epochs=2).inverse_temperature
        0.1
    """

    name = "idk-dpo"
    summary = "Language models: prefer a refusal to the true answer, beside training on retained ones."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": {**OPEN_UNLEARNING, "scaled": True}}

    scaled: bool = setting(False, help="Multiply the forget term by 2/β, as open-unlearning does.")
    tokenizer: Any = given(help="The model's tokenizer, of transformers.")

    def check(self, split: Partition) -> None:
        """Raise if the split lacks data, or the tokenizer is missing."""
        super().check(split)
        if self.tokenizer is None:
            raise UsageError("idk-dpo writes refusals in the model's tokens: pass tokenizer=, the model's own.")
        require_tokenizer(self.tokenizer)

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [PreferRefusals(self)]


class PreferRefusals(PreferAlternatives):
    """Prefer refusals."""

    name = "preference for refusals"
    settings: IdkDPO

    @cached_property
    def alternatives(self) -> Mapping[str, Any]:
        """A refusal for every forget question and every pass."""
        tokenizer, passes = self.settings.tokenizer, max(1, self.settings.epochs)
        rows = self.forget.rows.sort().values.cpu()
        generator = torch.Generator().manual_seed(derive_seed(self.bench.seed, self.name))
        drawn = torch.randint(len(REFUSALS), (len(rows), passes), generator=generator)
        texts = []
        for choices, (prompt, answer) in zip(
            drawn.tolist(), prompts_and_answers(self.forget.samples.read(rows)), strict=True
        ):
            blank = tokenizer.decode(answer)[:1].isspace()  # words may carry the blank before them
            for choice in choices:
                said = tokenizer(" " * blank + REFUSALS[choice], add_special_tokens=False)["input_ids"]
                said = [*said, answer[-1]]  # the end token
                texts.append({"input_ids": prompt + said, "labels": [NO_LABEL] * len(prompt) + said})
        return PaddingCollator(tokenizer.pad_token_id)(texts)

    def scale(self) -> float:
        """Return 2/β or 1."""
        return 2 / self.settings.inverse_temperature if self.settings.scaled else 1.0
