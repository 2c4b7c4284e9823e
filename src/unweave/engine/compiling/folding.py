"""Normalisation with frozen statistics, folded into the convolution before it: the same function, faster.

With frozen statistics, batch normalisation is an affine map of each channel: y = s x + t with s = γ / √(σ² + ε) and
t = β − s μ. After a convolution with weights W and bias b, the two are one convolution with weights s W and bias
s b + t. Gradients reach W, b, γ and β through these products, exactly; only rounding differs. The backward pass no
longer keeps or reads the convolution's own output.

If a ReLU and a maximum over windows follow, the maximum is taken first: shift and ReLU are monotone in every channel,
and fewer pixels are left for them. First convolutions run over blocks of pixels (`unweave.engine.compiling.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional

from unweave.engine.compiling import blocks
from unweave.engine.compiling.torch_internals import compile_graph

RELUS = (functional.relu, torch.relu)
MOST_POOLING_ARGUMENTS = 6  # a seventh asks for the indices of the maxima
ARGUMENTS = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
DEFAULTS = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}


def compile_folded(graph: GraphModule, examples: list[Tensor]) -> Any:
    """Fold a traced graph and compile it: a backend of `torch.compile`."""
    rewrite(graph)
    return compile_graph(graph, examples, known=OURS)


def fold_only(graph: GraphModule, _: list[Tensor]) -> Any:
    """Fold a traced graph without compiling it: a backend of `torch.compile` that takes a second instead of many."""
    rewrite(graph)
    return graph.forward


def rewrite(graph: GraphModule) -> None:
    """Replace operations of a traced model by faster ones that compute the same."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is torch.conv2d:
            node.target = blocks.convolve
    fold_normalisation(graph)
    pool_first(graph)
    graph.recompile()


def fold_normalisation(graph: GraphModule) -> None:
    """Fold each normalisation with frozen statistics that alone uses the output of a convolution.

    The folded node takes the convolution's place in the graph, because the convolution's input may be overwritten
    later. So the statistics and weights of the normalisation must be known at that place.
    """
    place = {node: number for number, node in enumerate(graph.graph.nodes)}
    for node in place:
        if node.op != "call_function" or node.target is not functional.batch_norm:
            continue
        given = {**DEFAULTS, **dict(zip(ARGUMENTS, node.args, strict=False)), **node.kwargs}
        before = given["input"]
        if given["training"] or given["running_mean"] is None or not _calls(before, *FOLDED) or len(before.users) > 1:
            continue
        own = [given[name] for name in ("running_mean", "running_var", "weight", "bias")]
        if any(tensor is not None and not _is_given(tensor, place, before) for tensor in own):
            continue
        with graph.graph.inserting_before(before):
            folded = graph.graph.call_function(
                FOLDED[before.target], before.args, {**before.kwargs, **_normalisation(given)}
            )
        folded.meta = dict(node.meta)  # its example value tells torch's cache what it is
        node.replace_all_uses_with(folded)
        graph.graph.erase_node(node)
        graph.graph.erase_node(before)


def pool_first(graph: GraphModule) -> None:
    """Move the maximum over windows before the shift and the ReLU that follow a folded convolution."""
    for node in list(graph.graph.nodes):
        if not (_calls(node, functional.max_pool2d) and 1 < len(node.args) <= MOST_POOLING_ARGUMENTS):
            continue
        relu = node.args[0]
        if not (_calls(relu, *RELUS) and len(relu.users) == 1 and relu.args) or node.kwargs.get("return_indices"):
            continue
        before = relu.args[0]
        if not (_calls(before, folded_conv2d) and len(before.users) == 1):
            continue
        before.kwargs = {**before.kwargs, "pooling": node.args[1:], "pooling_options": node.kwargs}
        before.meta = dict(node.meta)
        node.replace_all_uses_with(before)
        graph.graph.erase_node(node)
        graph.graph.erase_node(relu)


def _calls(node: Any, *functions: Any) -> bool:
    """Tell whether a node calls one of these functions."""
    return isinstance(node, Node) and node.op == "call_function" and node.target in functions


def _is_given(node: Any, place: dict[Node, int], before: Node) -> bool:
    """Tell whether a tensor is an argument or attribute of the graph that stands before a node."""
    return isinstance(node, Node) and node.op in ("placeholder", "get_attr") and place[node] < place[before]


def _normalisation(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a normalisation under the names that `fold` uses."""
    return {
        "mean": given["running_mean"],
        "variance": given["running_var"],
        "scale": given["weight"],
        "shift": given["bias"],
        "eps": given["eps"],
    }


def fold(
    convolution: Callable[..., Tensor],
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *more: Any,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    eps: float,
    pooling: tuple[Any, ...] | None = None,
    pooling_options: dict[str, Any] | None = None,
    **others: Any,
) -> Tensor:
    """Convolve and normalise; with ``pooling``, also apply the maximum over its windows and the ReLU."""
    factor = (variance + eps).rsqrt()
    if scale is not None:
        factor = factor * scale
    offset = -mean * factor if bias is None else (bias - mean) * factor
    if shift is not None:
        offset = offset + shift
    # Statistics may have a wider type than weights.
    weights = (weight * factor.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
    if pooling is None:
        return convolution(data, weights, offset.to(weight.dtype), *more, **others)
    found = convolution(data, weights, None, *more, **others)
    found = functional.max_pool2d(found, *pooling, **(pooling_options or {}))
    return functional.relu(found + offset.to(found.dtype).reshape(-1, 1, 1))


def folded_conv1d(*given: Any, **named: Any) -> Tensor:
    """Apply `fold` to a convolution over one dimension."""
    return fold(torch.conv1d, *given, **named)


def folded_conv2d(*given: Any, **named: Any) -> Tensor:
    """Apply `fold` to a convolution over two dimensions."""
    return fold(blocks.convolve, *given, **named)


def folded_conv3d(*given: Any, **named: Any) -> Tensor:
    """Apply `fold` to a convolution over three dimensions."""
    return fold(torch.conv3d, *given, **named)


# Functions with names, by which torch finds the compiled graph in its cache.
FOLDED = {torch.conv1d: folded_conv1d, blocks.convolve: folded_conv2d, torch.conv3d: folded_conv3d}
OURS = (blocks.convolve, *FOLDED.values())
