"""Removing the span of some gradients from another. Other projects import these names from here, so they stay.

>>> import torch
>>> import unweave as uw
>>> uw.projection.remove_span([torch.tensor([1.0, 1.0])], basis=[[torch.tensor([2.0, 0.0])]])
[tensor([0., 1.])]
>>> uw.projection.gram_matrix([[torch.tensor([1.0, 1.0])], [torch.tensor([2.0, 0.0])]])
tensor([[2., 2.],
        [2., 4.]], dtype=torch.float64)
"""

from unweave.maths import Gradient, gram_matrix, remove_span

__all__ = ["Gradient", "gram_matrix", "remove_span"]
