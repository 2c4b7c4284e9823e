"""What a sample is to a model: how a model is run on a batch, and the loss of every sample."""

from unweave.tasks.classification import Loss, cross_entropy, log_odds, logits, require_one_each, try_on

__all__ = ["Loss", "cross_entropy", "log_odds", "logits", "require_one_each", "try_on"]
