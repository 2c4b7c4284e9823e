"""open-unlearning's result files: ``TOFU_EVAL.json`` with a value for each question, ``TOFU_SUMMARY.json`` with means.

A public file of a retrained model can serve as the reference of forget quality and PrivLeak, and ours can be read by
its scripts. The numbers are computed as its code does: extraction strength has its floor of 1/T.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unweave.errors import UsageError, as_path, require_type
from unweave.evaluation import answer_attacks as attacks
from unweave.evaluation.answer_probability import probabilities, probabilities_among_options
from unweave.evaluation.answer_scores import FORGET, HELD_OUT, require_sheets
from unweave.evaluation.answer_sheets import AnswerSheet, Values
from unweave.evaluation.forget_quality import ForgetQuality, forget_quality
from unweave.evaluation.memorisation import exact_memorisation, extraction_strength
from unweave.evaluation.model_utility import GROUPS, harmonic_mean, utility_parts
from unweave.evaluation.rouge import rouge_recalls
from unweave.evaluation.truth_ratio import indifference, truth_ratios, truthfulness
from unweave.storage import NUMBER, read_json, require_form, write_whole

EVALUATION, SUMMARY = "TOFU_EVAL.json", "TOFU_SUMMARY.json"
SHORT = {FORGET: "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}


@dataclass(frozen=True)
class Logs:
    """The content of an evaluation file.

    Args:
        content: Its entries by name, as open-unlearning writes them.

    Raises:
        UsageError: An entry is missing, when it is asked for.

    >>> Logs({"forget_Truth_Ratio": {"value_by_index": {"0": {"score": 0.5}}}}).truth_ratios.tolist()
    [0.5]
    """

    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def truth_ratios(self) -> Values:
        """The truth ratio of every forget question."""
        entries = self._entry("forget_Truth_Ratio", "value_by_index")
        require_form(entries, {"*": {"score": NUMBER}}, "value_by_index of 'forget_Truth_Ratio'")
        if not entries:
            raise UsageError("value_by_index of 'forget_Truth_Ratio' is empty.")
        if odd := next((place for place in entries if not re.fullmatch(r"[0-9]{1,18}", place)), None):
            raise UsageError(f"value_by_index of 'forget_Truth_Ratio' has the place {odd!r}, but must have numbers.")
        return np.array([entries[place]["score"] for place in sorted(entries, key=int)], dtype=np.float64)

    @property
    def min_k_auc(self) -> float:
        """The AUC of min-k."""
        value = self._entry("mia_min_k", "agg_value")
        require_form(value, NUMBER, "agg_value of 'mia_min_k'")
        return float(value)

    def quality_of(self, sheet: AnswerSheet) -> ForgetQuality:
        """Return the forget quality of another model's answers, with these as the retrained model's."""
        return forget_quality(truth_ratios(sheet), self.truth_ratios)

    def _entry(self, name: str, part: str) -> Any:
        entry = self.content.get(name)
        if not isinstance(entry, Mapping) or entry.get(part) is None:
            raise UsageError(f"The evaluation has no {part} of {name!r}; it has {', '.join(sorted(self.content))}.")
        return self.content[name][part]


def read_logs(file: str | os.PathLike[str]) -> Logs:
    """Read an evaluation file of open-unlearning.

    Args:
        file: The file, or the folder that holds ``TOFU_EVAL.json``.

    Returns:
        Its content.

    Raises:
        UsageError: It is no such file.

    >>> read_logs("nowhere.json")
    Traceback (most recent call last):
    unweave.errors.UsageError: nowhere.json is no evaluation of open-unlearning: nowhere.json cannot be read: [Errno...
    """
    path = as_path("file", file)
    try:
        content = read_json(path / EVALUATION if path.is_dir() else path)
    except UsageError as error:
        raise UsageError(f"{file} is no evaluation of open-unlearning: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(entry, dict) for entry in content.values()):
        raise UsageError(f"{file} is no evaluation of open-unlearning: it has no entries by name.")
    return Logs(content)


def write_logs(
    sheets: Mapping[str, AnswerSheet], folder: str | os.PathLike[str], *, retrained: Logs | None = None
) -> Logs:
    """Write both result files of open-unlearning.

    Args:
        sheets: What the model said, by group (`ask`).
        folder: Where to write.
        retrained: The evaluation of a retrained model, for forget quality and PrivLeak.

    Returns:
        What was written.

    Raises:
        OSError: A file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_logs({}, folder).content
    {}
    """
    require_sheets("sheets", sheets)
    require_type("retrained", retrained, (Logs, type(None)), "what `read_logs` returned")
    target = as_path("folder", folder)
    content: dict[str, Any] = {}
    for group, short in SHORT.items():
        if group in sheets:
            content |= _group(sheets[group], short)
    content |= _whole(sheets, retrained)
    content = dict(sorted(content.items()))
    summary = {name: entry["agg_value"] for name, entry in content.items() if entry["agg_value"] is not None}
    try:
        texts = [json.dumps(entries, indent=4, allow_nan=False) for entries in (content, summary)]
    except ValueError:
        raise UsageError("The scores of these answers are not finite, so nothing was written.") from None
    target.mkdir(parents=True, exist_ok=True)
    for name, text in zip((EVALUATION, SUMMARY), texts, strict=True):
        write_whole(target / name, text.encode(), private=True)
    return Logs(content)


def _entry(values: Values, key: str = "score", mean: float | None = None) -> dict[str, Any]:
    entries = {str(place): {key: None if np.isnan(value) else float(value)} for place, value in enumerate(values)}
    return {"agg_value": float(np.nanmean(values)) if mean is None else mean, "value_by_index": entries}


def _group(sheet: AnswerSheet, short: str) -> dict[str, Any]:
    """Return the entries of a group."""
    found = {f"{short}_Q_A_Prob": _entry(probabilities(sheet), "prob")}
    if sheet.written:
        found[f"{short}_Q_A_ROUGE"] = _entry(rouge_recalls(sheet), "rougeL_recall")
    if sheet.wrong:
        ratios = truth_ratios(sheet)
        form = indifference if short == "forget" else truthfulness
        found[f"{short}_Truth_Ratio"] = _entry(ratios, mean=float(np.mean(form(ratios))))
        if not sheet.paraphrase:
            found[f"{short}_Q_A_Prob_normalised"] = _entry(probabilities_among_options(sheet), "prob")
    if short == "forget":
        found["exact_memorization"] = _entry(exact_memorisation(sheet))
        found["extraction_strength"] = _entry(extraction_strength(sheet, floor=True))
    return found


def _whole(sheets: Mapping[str, AnswerSheet], retrained: Logs | None) -> dict[str, Any]:
    """Return the entries that need several groups or a retrained model."""
    found: dict[str, Any] = {}
    if set(GROUPS) <= set(sheets) and all(sheets[group].written and sheets[group].wrong for group in GROUPS):
        means = [float(np.mean(part)) for part in utility_parts(sheets).values()]
        found["model_utility"] = {"agg_value": harmonic_mean(means)}
    if FORGET in sheets and HELD_OUT in sheets:
        kinds = {
            "mia_loss": attacks.loss_scores,
            "mia_zlib": attacks.zlib_scores,
            "mia_min_k": attacks.min_k_scores,
            "mia_min_k_plus_plus": attacks.min_k_plus_scores,
        }
        for name, scores in kinds.items():
            auc = attacks.familiarity(scores(sheets[FORGET]), scores(sheets[HELD_OUT]), resamples=0).value
            found[name] = {"agg_value": auc, "auc": auc}
        known = retrained is not None and "mia_min_k" in retrained.content
        chance = retrained.min_k_auc if retrained is not None and known else 0.5
        found["privleak"] = {"agg_value": attacks.privacy_leak(found["mia_min_k"]["auc"], chance)}
    if retrained is not None and FORGET in sheets and sheets[FORGET].wrong:
        found["forget_quality"] = {"agg_value": retrained.quality_of(sheets[FORGET]).p_value}
    return found
