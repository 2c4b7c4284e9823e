"""Direct preference optimisation (DPO) for unlearning: prefer given answers to the true ones on forget questions.

Rafailov et al., "Direct Preference Optimization: Your Language Model is Secretly a Reward Model" (NeurIPS 2023); for
unlearning Maini et al., "TOFU" (COLM 2024).

Objective: min over θ of γ · E_f[−log σ(β [log p_θ(w|x)/p_ref(w|x) − log p_θ(y|x)/p_ref(y|x)])] + α · L(D_r), where w is
the preferred answer, y the true one, and the reference is the model before unlearning. Log-likelihoods are sums over an
answer's tokens. The reference's are computed once, so no second model is kept.

The sources differ. open-unlearning multiplies the forget term by 2/β (``scaled``), after the paper of NPO, and takes
the token mean of the retain term. Both: β 0.1, AdamW 1e-5, batches of 32, 10 epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from unweave.data import RETAINED, Partition
from unweave.engine import Phase
from unweave.methods.method import Method, Profiles
from unweave.methods.paired import OPEN_UNLEARNING
from unweave.methods.preferences import (
    PreferAlternatives,
    PreferenceSettings,
    describe_alternatives,
    require_alternatives,
)
from unweave.settings import given, setting


@dataclass(frozen=True, kw_only=True)
class DPO(PreferenceSettings, Method):
    """Direct preference optimisation: prefer given answers to the true ones on forget questions.

    ``alternatives`` must be given: texts as `unweave.answers` returns them, one or several for each forget sample, in
    the order of their positions in the data set. ``unweave methods dpo`` lists the settings. Reference: Rafailov et
    al., "Direct Preference Optimization" (NeurIPS 2023).

    Raises:
        UsageError: From `check`, if the alternatives are missing or do not match the forget samples.

    Example:
        >>> import unweave as uw
        >>> uw.DPO.configure(profile="open-unlearning").scaled
        True
    """

    name = "dpo"
    summary = "Language models: prefer given answers to the true ones, beside training on retained ones."
    needs = ("forget", RETAINED)
    needs_tokens = True
    profiles: ClassVar[Profiles] = {"paper": {}, "open-unlearning": {**OPEN_UNLEARNING, "scaled": True}}

    scaled: bool = setting(False, help="Multiply the forget term by 2/β, as open-unlearning does.")
    alternatives: Mapping[str, Any] | None = given(
        help="Other answers to the forget questions, as uw.answers makes them."
    )

    def check(self, split: Partition) -> None:
        """Raise if the split lacks data, or the alternatives do not match the forget samples."""
        super().check(split)
        require_alternatives(self.alternatives, self.name, forget=len(split["forget"]))

    def on_record(self) -> dict[str, Any]:
        """Return what the alternatives are."""
        return {"alternatives": describe_alternatives(self.alternatives or {})}

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [PreferGiven(self)]


class PreferGiven(PreferAlternatives):
    """Prefer the given answers."""

    name = "direct preference"
    settings: DPO

    @property
    def alternatives(self) -> Mapping[str, Any]:
        """The given answers."""
        return self.settings.alternatives or {}

    def scale(self) -> float:
        """Return 2/β or 1."""
        return 2 / self.settings.inverse_temperature if self.settings.scaled else 1.0
