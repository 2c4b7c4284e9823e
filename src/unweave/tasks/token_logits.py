"""Causal language models: numbers about every token, without ever holding the logits of a whole batch.

A vocabulary has tens of thousands of words, so the logits of a batch take more memory than everything else. Here the
model gives its last hidden states, and the head runs on a few hundred places at a time. Each piece is reduced to a few
numbers per place. The backward pass computes the logits of a piece again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from unweave.data import Data, labels_of
from unweave.errors import UsageError
from unweave.runtime import is_cut
from unweave.tasks.raw import raw_outputs

AtPlaces: TypeAlias = Callable[..., Tensor]  # (logits, targets[, logits of another model]) -> numbers for every place
Head: TypeAlias = Callable[[Tensor], Tensor]

IGNORED = -100  # the label of a token that is no part of the answer
CHUNK = 1 << 26  # logits at once: 256 MiB in float32
# Settings of models that change the logits after the head. Such models run whole.
AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
ROUNDING = 2e-2  # of the largest logit, because passes may be in bfloat16
_WHOLE: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # whether a model must run whole
_COMPILED: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


def token_values(
    model: nn.Module,
    data: Data,
    function: AtPlaces,
    *,
    beside: nn.Module | None = None,
    everywhere: bool = False,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """Return numbers about every place of a batch of texts, and which places predict a token of the answer.

    Args:
        model: A causal language model. It returns logits of shape (samples, places, words).
        data: A mapping with ``input_ids``, ``attention_mask`` and ``labels``.
        function: Takes logits of shape (places, words) and the tokens that come next, which are −100 outside of the
            answer. With ``beside``, it also takes that model's logits. Returns one number, or a row, for each place.
        beside: Another model, run without gradients.
        everywhere: Also return the last place, which predicts no token of the text, and count positions from the first
            column, padding included. Some published code averages over all of these.
        chunk: The most logits to hold at once.

    Returns:
        The numbers, of shape (samples, places − 1) or (samples, places − 1, row), and a mask of shape (samples,
        places − 1). With ``everywhere`` there is one more place.

    Raises:
        UsageError: The model does not return logits for every place.

    >>> model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    >>> data = (torch.tensor([[1, 2, 3]]), torch.tensor([[-100, 2, 3]]))
    >>> values, answer = token_values(model, data, lambda logits, targets: logits.argmax(dim=-1) == targets)
    >>> values.shape, answer.tolist()
    (torch.Size([1, 2]), [[True, True]])
    """
    hidden, head = _inside(model, data := _counted_from_the_first_column(data) if everywhere else data)
    others = _inside(beside, data, grad=False) if beside is not None else None
    labels = labels_of(data)[:, : hidden.shape[1]]
    if labels.shape != hidden.shape[:2]:
        raise UsageError(
            f"Texts have {labels.shape[1]} labels, but the model gives logits for {hidden.shape[1]} tokens: a text "
            "needs one label for each of its tokens (-100 outside of the answer)."
        )
    following = functional.pad(labels[:, 1:], (0, int(everywhere)), value=IGNORED)
    targets, count = following.reshape(-1), following.shape[1]
    both = [(hidden, head)] if others is None else [(hidden, head), others]
    sources = [(states[:, :count].reshape(-1, states.shape[-1]), run) for states, run in both]
    with torch.no_grad():
        width = sources[0][1](sources[0][0][:1]).shape[-1]
    size = max(1, chunk // max(1, width * len(sources)))

    def piece(targets: Tensor, *states: Tensor) -> Tensor:
        found = (run(some) for (_, run), some in zip(sources, states, strict=True))
        first, *rest = (logits.float() if logits.itemsize == 2 else logits for logits in found)
        return function(first, targets, *rest)

    parts = [targets.split(size), *(states.split(size) for states, _ in sources)]
    again = torch.is_grad_enabled() and len(parts[0]) > 1
    run = (lambda *some: checkpoint(piece, *some, use_reentrant=False, preserve_rng_state=False)) if again else piece
    values = torch.cat([run(*some) for some in zip(*parts, strict=True)])
    return values.reshape(*following.shape, *values.shape[1:]), following != IGNORED


def hidden_states(model: nn.Module, data: Data, *, layer: int) -> Tensor:
    """Return the output of one block of a causal language model, of shape (samples, places, features).

    Args:
        model: The model. Its blocks are the entries of its longest module list.
        data: A mapping with ``input_ids`` and ``attention_mask``.
        layer: The number of the block, from 0.

    Raises:
        UsageError: The model has no such block.
    """
    seen: list[Tensor] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        seen.append(output if isinstance(output, Tensor) else output[0])

    handle = block(model, layer).register_forward_hook(note)
    try:
        _inside(model, data)
    finally:
        handle.remove()
    return seen[-1]


def block(model: nn.Module, layer: int) -> nn.Module:
    """Return one block of a causal language model, or raise a `UsageError`.

    >>> block(nn.Sequential(nn.ModuleList([nn.Linear(2, 2)])), 1)
    Traceback (most recent call last):
    unweave.errors.UsageError: layer is 1, but the model has 1 blocks (0 to 0).
    """
    blocks = max((list(part) for part in model.modules() if isinstance(part, nn.ModuleList)), key=len, default=[])
    if not 0 <= layer < len(blocks):
        raise UsageError(f"layer is {layer}, but the model has {len(blocks)} blocks (0 to {len(blocks) - 1}).")
    return blocks[layer]


def _inside(model: nn.Module, data: Data, *, grad: bool = True) -> tuple[Tensor, Head]:
    """Return the last hidden states of a batch and the head; or logits and a head that returns them unchanged."""
    with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
        parts = None if _runs_whole(model, data) else _parts(model)
        if parts is None or not isinstance(data, Mapping):
            return _whole(model, data), _same
        decoder, head = parts
        inputs = _inputs(decoder, data)
        if any(is_cut(weight) for weight in model.parameters()):  # the hooks that gather weights are those of the model
            with _forward_of(model, lambda **inputs: decoder(**inputs).last_hidden_state):
                return model(**inputs), head
        if getattr(model, "_orig_mod", None) is not None:  # torch.compile
            decoder = _COMPILED.setdefault(decoder, torch.compile(decoder, dynamic=False))
        return decoder(**inputs).last_hidden_state, head


def _parts(model: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Return the part of a model below its head, and the head; None if it must run whole."""
    base: Any = getattr(model, "_orig_mod", model)
    prompts = [getattr(one, "is_prompt_learning", False) for one in getattr(base, "peft_config", {}).values()]
    base = base.get_base_model() if hasattr(base, "get_base_model") else base
    if any(prompts) or not hasattr(base, "get_decoder") or not hasattr(base, "get_output_embeddings"):
        return None
    config = base.config.get_text_config() if hasattr(base.config, "get_text_config") else base.config
    if any(getattr(config, name, None) not in (None, 1, 1.0) for name in AFTER_HEAD):
        return None
    decoder, head = base.get_decoder(), base.get_output_embeddings()
    return None if decoder is None or head is None or decoder is base else (decoder, head)


def _runs_whole(model: nn.Module, data: Data) -> bool:
    """Check once, on a few tokens, whether hidden states and head give a model's logits."""
    if model not in _WHOLE:
        parts = _parts(model)
        if parts is None or not isinstance(data, Mapping) or any(is_cut(weight) for weight in model.parameters()):
            _WHOLE[model] = parts is None or not isinstance(data, Mapping)
            return _WHOLE[model]
        few = {name: value[:1, :8] for name, value in data.items() if name in ("input_ids", "attention_mask", "labels")}
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        with torch.no_grad():
            said = _whole(model, few)
            again = parts[1](parts[0](**_inputs(parts[0], few)).last_hidden_state)
        for module, mode in modes:
            module.training = mode
        agree = said.shape == again.shape and bool((said - again).abs().max() <= ROUNDING * said.abs().max())
        _WHOLE[model] = not agree
    return _WHOLE[model]


def _whole(model: nn.Module, data: Data) -> Tensor:
    if isinstance(data, Mapping):
        data = {**_inputs(model, data), "labels": data["labels"]}
    logits = raw_outputs(model, data)
    if logits.ndim != 3:
        raise UsageError(
            "The task language needs logits of shape (samples, tokens, words), but the model returned shape "
            f"{tuple(logits.shape)}."
        )
    return logits


def _inputs(model: nn.Module, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model takes of a batch, with positions that count from a text's first token."""
    inputs = {name: value for name, value in data.items() if name != "labels"}
    base: Any = getattr(model, "_orig_mod", model)
    base = base.get_base_model() if hasattr(base, "get_base_model") else base
    takes = inspect.signature(base.forward).parameters
    mask = inputs.get("attention_mask")
    if "position_ids" not in takes:
        inputs.pop("position_ids", None)
    elif "position_ids" not in inputs and isinstance(mask, Tensor):
        inputs["position_ids"] = (mask.long().cumsum(dim=1) - 1).clamp(min=0)  # also with padding on the left
    return inputs | ({"use_cache": False} if "use_cache" in takes else {})


@contextmanager
def _forward_of(model: nn.Module, function: Callable[..., Tensor]) -> Iterator[None]:
    """Let a model run another function between the hooks of its forward pass."""
    model.forward = function
    try:
        yield
    finally:
        del model.forward


def _counted_from_the_first_column(data: Data) -> Data:
    """Return a batch with the positions that models take by themselves, whatever is padding."""
    if not isinstance(data, Mapping):
        return data
    ids = data["input_ids"]
    return {**data, "position_ids": torch.arange(ids.shape[1], device=ids.device).expand_as(ids)}


def _same(logits: Tensor) -> Tensor:
    return logits
