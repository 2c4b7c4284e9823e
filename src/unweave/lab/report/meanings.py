"""What each measure means, in a sentence that stands beside its numbers, and which axis suits it."""

from __future__ import annotations

import re

CHANCE = 0.5  # of an AUC: the attack learns nothing
WORDS = (
    (r"accuracy", "Share of samples that the model recognises."),
    (r"probe_accuracy", "Share of samples that a new linear layer on the model's features recognises."),
    (r"loss", "Mean loss of a sample: 0 is certain and right."),
    (r"loss_wasserstein", "Distance (W₂) between the losses of this model and those of a retrained model."),
    (r"mia_svc_\w+(?<!auc)(?<!accuracy)(?<!fpr)", "Share of samples that the attack takes for unseen."),
    (r"\w+_tpr_at_\w+", "Share of training samples that the attack finds while it accuses hardly any unseen one."),
    (
        r"mia_\w+_balanced_accuracy",
        "How often the attack is right, with as many seen as unseen samples; 50% is chance.",
    ),
    (r"mia_\w+_auc", "How well an attack tells training samples from unseen ones; 0.5 is chance, 1 is always."),
    (r"tow\w*", "How near all accuracies are to those of a retrained model; 1 is the same."),
    (r"klom\w*", "Distance between the outputs of this model and those of retrained models."),
    (r"prediction_\w+", "Distance between the predictions of this model and those of a retrained model."),
    (r"weight_distance", "Distance between the weights of this model and those of a retrained model."),
    (r"forget_bound", "Share of the forget samples that the certificate allows to be recognised at most."),
    (
        r"relearn\w*",
        "Training steps until the forget data are recognised again; a retrained model needs this many too.",
    ),
    (r"seconds", "Time of the unlearning run."),
    (r"peak_memory_bytes", "The most memory of the accelerator during the run."),
    (r"process_memory_bytes", "The most memory of the process during the run."),
    (r"sample_gradients", "Gradients of samples that the run computed. It does not depend on the machine."),
    (r"sample_forwards", "Forward passes of samples that the run computed. It does not depend on the machine."),
    (r"samples", "Number of samples."),
    (r"probability", "Probability of the true answer, per token."),
    (r"probability_among_options", "Probability of the true answer beside that of wrong answers."),
    (r"rouge", "Share of the true answer's words, in order, that are in the written answer (ROUGE-L recall)."),
    (
        r"exact_memorisation",
        "Share of the answer's tokens that are the likeliest when the true text stands before them.",
    ),
    (r"exact_memorisation_unshared", "The same for tokens that only the forget data explain."),
    (r"extraction_strength", "Share of an answer that follows by itself once its beginning is given."),
    (r"truth_ratio", "Whether a paraphrase of the truth is likelier than wrong answers."),
    (
        r"forget_quality",
        "p-value of a test that the model and a retrained one differ; above 0.05 no difference is seen.",
    ),
    (
        r"forget_quality_log10",
        "Forget quality as a logarithm; above −1.3 no difference from a retrained model is seen.",
    ),
    (r"ks_statistic", "Largest gap between the truth ratios of this model and of a retrained one."),
    (r"privacy_leak", "How much better an attack works than on a retrained model; 0 is as on that."),
    (r"model_utility", "Harmonic mean of nine numbers about what is to stay."),
)


def meaning(metric: str) -> str:
    """Return what a metric means, in a sentence; empty if it is unknown.

    >>> meaning("mia_rmia_auc")
    'How well an attack tells training samples from unseen ones; 0.5 is chance, 1 is always.'
    >>> meaning("of a plug-in")
    ''
    """
    return next((words for form, words in WORDS if re.fullmatch(form, metric)), "")


def axis_of(metric: str, unit: str) -> tuple[float | None, float | None]:
    """Return where the axis of a metric begins and ends; None where its values decide.

    >>> axis_of("mia_rmia_auc", ""), axis_of("accuracy", "%"), axis_of("loss", "")
    ((0.5, 1.0), (0.0, 1.0), (0.0, None))
    """
    if metric.endswith("_auc"):
        return CHANCE, 1.0
    shares = ("probability", "rouge", "exact_memor", "extraction_strength", "tow", "truth_ratio", "model_utility")
    return (
        (0.0, 1.0) if unit == "%" or metric.startswith(shares) else (None, None) if "log10" in metric else (0.0, None)
    )
