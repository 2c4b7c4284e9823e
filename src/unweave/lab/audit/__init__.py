"""Scores of and attacks on a saved model: what ``unweave evaluate`` and ``unweave audit`` do."""

from unweave.lab.audit.examine import audit, examine, original_of
from unweave.lab.audit.lm_eval_tasks import lm_eval_scores, lm_eval_table
from unweave.lab.audit.shadows import Pool, make_shadows
from unweave.lab.audit.subject import Subject, load_splits, load_subject

__all__ = [
    "Pool",
    "Subject",
    "audit",
    "examine",
    "lm_eval_scores",
    "lm_eval_table",
    "load_splits",
    "load_subject",
    "make_shadows",
    "original_of",
]
