"""The front door: `Split`, `unlearn` and what it returns.

>>> import torch
>>> data = (torch.randn(8, 4), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
>>> result = unlearn(torch.nn.Linear(4, 2), Split(data, forget=[0, 1], adjacent=[2, 3]), "ga", learning_rate=0.1)
>>> result
Result of ga: 5 steps, 10 sample gradients, ...
"""

from unweave.api.compiled_code import warm
from unweave.api.result import Result
from unweave.api.split import Split
from unweave.api.unlearning import report_page, unlearn
from unweave.api.verdict import Verdict

__all__ = ["Result", "Split", "Verdict", "report_page", "unlearn", "warm"]
