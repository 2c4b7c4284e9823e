"""What a sample is to a model. A task turns outputs and labels into losses, log-odds and *recognised*.

>>> import torch
>>> task = Classification()
>>> outputs, labels = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
>>> task.losses(outputs, labels), task.recognised(outputs, labels)
(tensor([0.1269, 2.1269]), tensor([ True, False]))
"""

from unweave.tasks.answering import prompts_and_answers, written
from unweave.tasks.binary import Binary
from unweave.tasks.classification import CLASSIFICATION, Classification, Loss, cross_entropy, log_odds, logits
from unweave.tasks.finding import describe_task, find_task, is_text, scoring_task
from unweave.tasks.language import Language, token_losses
from unweave.tasks.multi_label import MultiLabel
from unweave.tasks.own_loss import OwnLoss
from unweave.tasks.raw import explained, raw_outputs
from unweave.tasks.regression import Regression
from unweave.tasks.task import Task
from unweave.tasks.token_logits import IGNORED, block, hidden_states, token_values

__all__ = [
    "CLASSIFICATION",
    "IGNORED",
    "Binary",
    "Classification",
    "Language",
    "Loss",
    "MultiLabel",
    "OwnLoss",
    "Regression",
    "Task",
    "block",
    "cross_entropy",
    "describe_task",
    "explained",
    "find_task",
    "hidden_states",
    "is_text",
    "log_odds",
    "logits",
    "prompts_and_answers",
    "raw_outputs",
    "scoring_task",
    "token_losses",
    "token_values",
    "written",
]
