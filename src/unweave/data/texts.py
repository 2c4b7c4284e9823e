"""Questions with answers, and running text, as tokens for causal language models.

A sample has ``input_ids``, ``attention_mask`` and ``labels``. Labels are the tokens of the answer, −100 elsewhere.
Padding stands on the right, as wide as the longest sample. Batches are cut to their own longest sample later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from unweave.errors import UsageError, as_whole, require_type, short, unknown

if TYPE_CHECKING:
    from unweave.data.samples import Samples

NO_LABEL = -100
CHAT = "chat"
PLAIN = "Question: {prompt}\nAnswer: {answer}"
AT_ONCE = 4096  # samples that are checked at a time


def answers(
    rows: Iterable[Mapping[str, Any]],
    tokenizer: Any,
    *,
    prompt: str = "question",
    answer: str = "answer",
    template: str = CHAT,
    longest: int | None = None,
    model: nn.Module | None = None,
) -> dict[str, Tensor]:
    """Return prompts with answers as tokens. Only the answers, with their end token, are labelled.

    Args:
        rows: Mappings from column to text, such as the rows of a Hugging Face data set or of a JSON-lines file.
        tokenizer: The model's tokenizer, of transformers. It needs a pad token.
        prompt: The column of the prompts.
        answer: The column of the answers.
        template: ``"chat"`` for the tokenizer's chat template, or a text with ``{prompt}`` and ``{answer}``, after
            which the end token stands.
        longest: The most tokens of a sample. None: as many as the tokenizer says that the model takes.
        model: The model, to check that its vocabulary is the tokenizer's.

    Returns:
        A mapping of tensors ``input_ids``, ``attention_mask`` and ``labels``, one row per sample, for `Split`.

    Raises:
        UsageError: A column is missing, an answer is empty or cut off, or the tokenizer does not fit.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import PreTrainedTokenizerFast
    >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "[END]": 1, "where": 2, "is": 3, "ada": 4}))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", eos_token="[END]")
    >>> data = answers([{"question": "where is", "answer": "ada"}], tokenizer, template="{prompt} {answer}")
    >>> data["input_ids"].tolist(), data["labels"].tolist()
    ([[2, 3, 4, 1]], [[-100, -100, 4, 1]])
    """
    require_tokenizer(tokenizer, model)
    require_template(template, tokenizer)
    if not isinstance(rows, Iterable) or getattr(rows, "ndim", 1) == 0:
        raise UsageError(f"rows must be rows with a prompt and an answer, not {short(rows)}.")
    longest = None if longest is None else as_whole("longest", longest, at_least=1)
    samples = list(token_pairs(rows, tokenizer, prompt=prompt, answer=answer, template=template))
    if not samples:
        raise UsageError("There is no row. Give at least one with a prompt and an answer.")
    _require_length([len(asked) + len(said) for asked, said in samples], longest, tokenizer)
    collate = PaddingCollator(tokenizer.pad_token_id)
    return collate([{"input_ids": a + s, "labels": [NO_LABEL] * len(a) + s} for a, s in samples])


def token_pairs(
    rows: Iterable[Mapping[str, Any]], tokenizer: Any, *, prompt: str, answer: str, template: str, first: int = 0
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the tokens before every answer, and those of the answer with its end. ``first`` numbers the first row."""
    for number, row in enumerate(rows, start=first):
        before, after = _texts(row, number, prompt, answer, template, tokenizer)
        if not (_is_unicode(before) and _is_unicode(after)):
            raise UsageError(
                f"Row {number}, or the template, has text that is not valid Unicode (a lone surrogate). Write it again."
            )
        asked = tokenizer(before, add_special_tokens=template != CHAT)["input_ids"]
        said = tokenizer(after, add_special_tokens=False)["input_ids"]
        end = tokenizer.eos_token_id
        if template != CHAT:
            asked = asked[:-1] if asked and end is not None and asked[-1] == end else asked
            said = said if end is None else [*said, end]
        if not asked:
            raise UsageError(f"Row {number} has an empty {prompt!r}. Remove it: there is nothing to answer.")
        yield list(asked), list(said)


def packed(texts: Iterable[str], tokenizer: Any, *, length: int, model: nn.Module | None = None) -> dict[str, Tensor]:
    """Return running text as blocks of one length: texts follow each other, with an end token after each.

    Every token but the first of a block is predicted. A last block that is not full is padded.

    Args:
        texts: The texts.
        tokenizer: The model's tokenizer, with pad and end token.
        length: Tokens of a block.
        model: The model, to check that its vocabulary is the tokenizer's.

    Returns:
        A mapping of tensors as `answers` returns it.

    Raises:
        UsageError: There is no text, or the tokenizer does not fit.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import PreTrainedTokenizerFast
    >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "[END]": 1, "where": 2, "is": 3, "ada": 4}))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", eos_token="[END]")
    >>> packed(["where is", "ada"], tokenizer, length=3)["labels"].tolist()
    [[2, 3, 1], [4, 1, -100]]
    """
    require_tokenizer(tokenizer, model)
    length, texts = as_whole("length", length), _listed(texts)
    if length < 2:
        raise UsageError(f"length is {length}, but a block needs 2 tokens at least.")
    if tokenizer.eos_token_id is None:
        raise UsageError("The tokenizer has no end token to put between texts. Set tokenizer.eos_token.")
    every = [
        token
        for text in texts
        for token in [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    ]
    blocks = [every[start : start + length] for start in range(0, len(every), length)]
    blocks = [block for block in blocks if len(block) > 1]  # one token alone predicts nothing
    if not blocks:
        raise UsageError("There is no text to pack.")
    return PaddingCollator(tokenizer.pad_token_id)([{"input_ids": block, "labels": block} for block in blocks])


class PaddingCollator:
    """Makes a batch of samples of different lengths: pads to the longest, for ``Split(data, collate=...)``.

    Args:
        pad: The number of the pad token (``tokenizer.pad_token_id``).
        side: Where padding stands.

    >>> batch = PaddingCollator(0)([{"input_ids": [5, 6], "labels": [-100, 6]}, {"input_ids": [7], "labels": [7]}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist(), batch["labels"].tolist()
    ([[5, 6], [7, 0]], [[1, 1], [1, 0]], [[-100, 6], [7, -100]])
    """

    def __init__(self, pad: int, *, side: Literal["right", "left"] = "right") -> None:
        pad = as_whole("pad", pad, at_least=0)
        require_type("side", side, str, "a text")
        if side not in ("right", "left"):
            raise unknown("side", side, ("right", "left"))
        self.pad, self.side = pad, side

    def __call__(self, samples: Sequence[Mapping[str, Any]], *, width: int = 0) -> dict[str, Tensor]:
        """Return the batch, padded to the longest sample, or to ``width`` if that is more."""
        width = max(width, *(len(sample["input_ids"]) for sample in samples))
        ids = torch.full((len(samples), width), self.pad)
        labels = torch.full((len(samples), width), NO_LABEL)
        mask = torch.zeros(len(samples), width, dtype=torch.long)
        for row, sample in enumerate(samples):
            count = len(sample["input_ids"])
            place = slice(0, count) if self.side == "right" else slice(width - count, width)
            ids[row, place] = torch.as_tensor(sample["input_ids"])
            labels[row, place] = torch.as_tensor(sample["labels"])
            mask[row, place] = torch.as_tensor(sample.get("attention_mask", 1))
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _listed(texts: Any) -> list[str]:
    """Return texts as a list, or raise a `UsageError` if they are something else; one text alone is no list."""
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) == 0:
        raise UsageError(f"texts must be a list of texts, not {short(texts)}.")
    found = list(texts)
    for text in found:
        require_type("a text", text, str, "text")
    return found


def require_tokenizer(tokenizer: Any, model: nn.Module | None = None) -> None:
    """Raise a `UsageError` for a tokenizer without a pad token, or of another model."""
    require_type("model", model, (nn.Module, type(None)), "a torch nn.Module")
    if getattr(tokenizer, "pad_token_id", None) is None:
        raise UsageError("The tokenizer has no pad token. Set one: tokenizer.pad_token = tokenizer.eos_token.")
    known = _vocabulary(model) if model is not None else None
    if known is not None and len(tokenizer) > known:
        raise UsageError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model's embedding has {known}: it is the tokenizer of "
            "another model. Load the model's own."
        )


def require_template(template: str, tokenizer: Any) -> None:
    """Raise a `UsageError` for a template without places for prompt and answer, or a chat template that is missing."""
    require_type("template", template, str, "a text")
    if template != CHAT:
        before, found, _ = template.partition("{answer}")
        if not found or "{prompt}" not in before:
            raise UsageError(f"template is {template!r}, but must have {{prompt}} and, after it, {{answer}}.")
    elif getattr(tokenizer, "chat_template", None) is None:
        raise UsageError(f"The tokenizer has no chat template. Give one as text: template={PLAIN!r}.")


def require_texts(model: nn.Module, samples: Samples, rows: Tensor) -> None:
    """Raise a `UsageError`, before the model runs, for texts that it cannot take."""
    told: Any = getattr(model, "can_generate", None)
    if told is not None and not told():
        raise UsageError(
            f"{type(model).__name__} does not predict the next token of a text. The task language needs a causal model "
            "(AutoModelForCausalLM)."
        )
    known, most = _vocabulary(model), _positions(model)
    for some in rows.cpu().split(AT_ONCE):
        data = samples.read(some)
        if not isinstance(data, Mapping) or not {"input_ids", "attention_mask", "labels"} <= set(data):
            found = sorted(data) if isinstance(data, Mapping) else type(data).__name__
            raise UsageError(
                f"A text needs input_ids, attention_mask and labels, but samples have {found}. uw.answers makes them."
            )
        _require_tokens(data, some, known, most)


def _require_tokens(data: Mapping[str, Any], rows: Tensor, known: int | None, most: int | None) -> None:
    """Raise for tokens that the model does not know, texts that are too long, and texts without an answer."""
    ids, labels, mask = (torch.as_tensor(data[name]) for name in ("input_ids", "labels", "attention_mask"))
    if labels.shape != ids.shape or labels.is_floating_point():
        raise UsageError(
            f"Texts of {ids.shape[1]} tokens have labels of shape {tuple(labels.shape[1:])}. Each token needs a label: "
            "the token itself in the answer, -100 elsewhere."
        )
    highest = torch.maximum(ids, labels).amax(dim=1)
    if known is not None and bool((highest >= known).any()):
        place = int((highest >= known).nonzero()[0])
        raise UsageError(
            f"Sample {int(rows[place])} has the token {int(highest[place])}, but the model knows {known} (0 to "
            f"{known - 1}): the texts were made by the tokenizer of another model. Use the model's own."
        )
    long = mask.sum(dim=1)
    if most is not None and bool((long > most).any()):
        place = int(long.argmax())
        raise UsageError(
            f"{int((long > most).sum())} texts are longer than the {most} tokens that the model takes (sample "
            f"{int(rows[place])} has {int(long[place])}). Shorten them, or split them with uw.packed."
        )
    empty = ((labels[:, 1:] != NO_LABEL).sum(dim=1) == 0).nonzero()
    if len(empty):
        raise UsageError(
            f"Sample {int(rows[int(empty[0])])} has no answer: all of its labels are -100. Label the tokens of the "
            "answer with their numbers."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(
    row: Mapping[str, Any], number: int, prompt: str, answer: str, template: str, tokenizer: Any
) -> tuple[str, str]:
    """Return what stands before the answer, and the answer."""
    require_type(f"row {number}", row, Mapping, "columns with values")
    for column in (prompt, answer):
        if column not in row:
            raise UsageError(f"Row {number} has no column {column!r}, but {', '.join(map(repr, row))}. Name it.")
        if not isinstance(row[column], str):
            raise UsageError(f"Row {number} has {type(row[column]).__name__} in {column!r}, but must have text.")
    if not row[answer].strip():
        raise UsageError(f"Row {number} has an empty {answer!r}. Remove it: there is nothing to learn or to forget.")
    if template != CHAT:
        before, _, after = template.partition("{answer}")
        gap = before[len(before.rstrip()) :]  # words carry the blank before them
        return before.rstrip().replace("{prompt}", row[prompt]), gap + row[answer] + after
    asked = [{"role": "user", "content": row[prompt]}]
    said = [*asked, {"role": "assistant", "content": row[answer]}]
    try:
        before = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(said, tokenize=False).rstrip()
    except Exception as error:  # whatever a template that comes with a model raises
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"The tokenizer's chat template fails: {reason}. Give a text: template={PLAIN!r}.") from error
    if not whole.startswith(before):
        raise UsageError(
            f"The chat template changes the prompt when an answer follows. Give a template as text: template={PLAIN!r}."
        )
    return before, whole[len(before) :]


def _require_length(lengths: Sequence[int], longest: int | None, tokenizer: Any) -> None:
    if longest is None:
        most = getattr(tokenizer, "model_max_length", None)
        longest = most if isinstance(most, int) and most < 10**6 else None
    if longest is None or not lengths or max(lengths) <= longest:
        return
    cut = sum(length > longest for length in lengths)
    raise UsageError(
        f"{cut} of {len(lengths)} answers would be cut off at {longest} tokens (row {lengths.index(max(lengths))} has "
        f"{max(lengths)}). Raise longest=, as far as the model goes, or remove these rows."
    )


def _vocabulary(model: nn.Module) -> int | None:
    """Return how many tokens a model's embedding knows; None if it cannot be told."""
    find: Any = getattr(model, "get_input_embeddings", None)
    embedding = find() if find is not None else None
    weight = getattr(embedding, "weight", None)
    return None if weight is None else len(weight)


def _positions(model: nn.Module) -> int | None:
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = getattr(config, "max_position_embeddings", None)
    return found if isinstance(found, int) else None
