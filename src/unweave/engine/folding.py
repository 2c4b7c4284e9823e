"""Normalisation in evaluation mode, folded into the convolution before it: the same function, less to read and write.

With frozen statistics, batch normalisation is an affine map of every channel, y = s x + t with s = γ / √(σ² + ε) and
t = β − s μ. After a convolution with weights W and bias b, both are a convolution with weights s W and bias s b + t.
Gradients reach W, b, γ and β through these products, exactly; what differs is rounding. The output of the convolution
itself is then needed by nobody: backward passes neither keep it nor read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
ARGUMENTS = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
DEFAULTS = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}


def compile_folded(graph: GraphModule, examples: list[Tensor]) -> Any:
    """Compile what torch has traced, folded first: a backend of `torch.compile`."""
    from torch._inductor.compile_fx import compile_fx

    fold_normalisation(graph)
    return compile_fx(graph, examples)


def fold_normalisation(graph: GraphModule) -> int:
    """Fold every normalisation with frozen statistics whose input is a convolution's output and nobody else's.

    What is folded stands where the convolution stood: later, its input may have been changed in place. So statistics
    and weights of the normalisation must be known there. Returns how many were folded.
    """
    count = 0
    place = {node: number for number, node in enumerate(graph.graph.nodes)}
    for node in place:
        if node.op != "call_function" or node.target is not functional.batch_norm:
            continue
        given = {**DEFAULTS, **dict(zip(ARGUMENTS, node.args, strict=False)), **node.kwargs}
        before = given["input"]
        if given["training"] or given["running_mean"] is None or not _is_convolution(before) or len(before.users) > 1:
            continue
        own = [given[name] for name in ("running_mean", "running_var", "weight", "bias")]
        if any(tensor is not None and not _is_given(tensor, place, before) for tensor in own):
            continue
        with graph.graph.inserting_before(before):
            folded = graph.graph.call_function(
                _folded(before.target), before.args, {**before.kwargs, **_normalisation(given)}
            )
        node.replace_all_uses_with(folded)
        graph.graph.erase_node(node)
        graph.graph.erase_node(before)
        count += 1
    if count:
        graph.recompile()
    return count


def _is_convolution(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target in CONVOLUTIONS


def _is_given(node: Any, place: dict[Node, int], before: Node) -> bool:
    """Tell whether a tensor is an argument or attribute of the graph that is named before a node."""
    return isinstance(node, Node) and node.op in ("placeholder", "get_attr") and place[node] < place[before]


def _normalisation(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean": given["running_mean"],
        "variance": given["running_var"],
        "scale": given["weight"],
        "shift": given["bias"],
        "eps": given["eps"],
    }


def _folded(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(
        data: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *more: Any,
        mean: Tensor,
        variance: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        eps: float,
        **others: Any,
    ) -> Tensor:
        factor = (variance + eps).rsqrt()
        if scale is not None:
            factor = factor * scale
        offset = -mean * factor if bias is None else (bias - mean) * factor
        if shift is not None:
            offset = offset + shift
        weights = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
        # Statistics may be kept in a wider type than weights.
        return convolution(data, weights.to(weight.dtype), offset.to(weight.dtype), *more, **others)

    return run
