"""Removing a span from a gradient, under the names that other projects rely on.

>>> import torch
>>> remove_span([torch.tensor([1.0, 1.0])], basis=[[torch.tensor([2.0, 0.0])]])
[tensor([0., 1.])]
"""

from unweave.maths import Gradient, gram_matrix, remove_span

__all__ = ["Gradient", "gram_matrix", "remove_span"]
