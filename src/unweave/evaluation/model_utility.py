"""Model utility (TOFU): the harmonic mean of nine means: probability, ROUGE-L recall and truth ratio on three groups.

The groups are retained questions, real authors and world facts. The mean hides harm to the neighbours: two of the
groups are hardly related to what was forgotten. So it is only one of the numbers here.
"""

from __future__ import annotations

from collections.abc import Mapping

from unweave.evaluation.answer_probability import probabilities, probabilities_among_options
from unweave.evaluation.answer_sheets import AnswerSheet, Values
from unweave.evaluation.rouge import rouge_recalls
from unweave.evaluation.truth_ratio import truth_ratios, truthfulness

GROUPS = ("retain", "real_authors", "world_facts")


def utility_parts(sheets: Mapping[str, AnswerSheet]) -> dict[str, Values]:
    """Return the values of the nine parts, by name. A group without paraphrases has probabilities among options."""
    found: dict[str, Values] = {}
    for group in GROUPS:
        sheet = sheets[group]
        among = probabilities if sheet.paraphrase else probabilities_among_options
        found |= {
            f"{group}_probability": among(sheet),
            f"{group}_rouge": rouge_recalls(sheet),
            f"{group}_truth_ratio": truthfulness(truth_ratios(sheet)),
        }
    return found


def harmonic_mean(means: list[float]) -> float:
    """Return the harmonic mean; 0 if any of the numbers is 0.

    >>> harmonic_mean([0.5, 1.0])
    0.6666666666666666
    """
    return len(means) / sum(1 / mean for mean in means) if min(means) > 0 else 0.0
