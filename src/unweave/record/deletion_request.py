"""The request that a record answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from unweave.errors import UsageError, as_path, require_type, require_words, short

if TYPE_CHECKING:
    from torch import nn

    from unweave.data import Partition

Content: TypeAlias = Callable[[int], bytes]
TEXT_LENGTH = 100_000


@dataclass(frozen=True, kw_only=True)
class DeletionRequest:
    """What a deletion record says of the request that it answers.

    Args:
        id: A name for the request, such as a file number.
        text: Who or what is to be forgotten, in words.
        key: File of the Ed25519 private key that signs the record. Without a key the record is not signed.
        previous: The record that this one continues, if the model has unlearned another request before.
        content: A function that returns the content of the sample at a position of the data set as bytes, for
            instance its file. The holder of that file can then check that it was in the request. By default the
            content is the sample's input tensors.

    Raises:
        UsageError: The id is empty, or the id or the text holds a line break or a control character.

    >>> DeletionRequest(id="2031-17", text="All photographs of the aquarium, by mail of 3 May.").id
    '2031-17'
    """

    id: str
    text: str = ""
    key: str | os.PathLike[str] | None = None
    previous: str | os.PathLike[str] | None = None
    content: Content | None = None

    def __post_init__(self) -> None:
        self.require_id()
        self._require_words()

    def require_id(self) -> None:
        """Raise a `UsageError` if the request has no id, which a record needs."""
        if not isinstance(self.id, str) or not self.id.strip():
            raise UsageError(f"The request's id is {self.id!r}, but must be a string that is not empty.")

    def _require_words(self) -> None:
        for name in ("key", "previous"):
            if getattr(self, name) is not None:
                as_path(name, getattr(self, name))
        if self.content is not None and not callable(self.content):
            raise UsageError(f"content must be a function of a position, not {short(self.content)}.")
        require_words("The request's id", self.id)
        require_words("The request's text", self.text)
        if (length := len(self.id) + len(self.text)) > TEXT_LENGTH:
            raise UsageError(f"The request's id and text have {length} characters, but may have at most {TEXT_LENGTH}.")

    @classmethod
    def of(cls, given: DeletionRequest | Mapping[str, Any]) -> DeletionRequest:
        """Return the request, which may be given as a mapping with its id and text."""
        require_type("request", given, (DeletionRequest, Mapping), "a Request, or a mapping with its id and text")
        try:
            found = given if isinstance(given, DeletionRequest) else cls(**given)
        except TypeError as error:
            raise UsageError(
                f"The request cannot be read: {error}. It needs an id; text, key, previous and content are optional."
            ) from error
        found.require_id()
        return found

    def check(self, original: nn.Module, split: Partition, test: Partition | None = None) -> None:
        """Raise a `UsageError` for what cannot go on record. Call it before the run to learn of it early.

        Args:
            original: The model that is unlearned from.
            split: The split that is unlearned with.
            test: The split of the test data, if there is one.

        Raises:
            UsageError: There is nothing to forget, the key cannot be read, or the record before does not fit.
        """
        from unweave.record import signing
        from unweave.record.forget_set import ForgetSet
        from unweave.record.forgotten import refuse_forgotten
        from unweave.record.sealing import read_record
        from unweave.storage import fingerprint

        if len(split.forget) == 0:
            raise UsageError("The split has no forget samples, but a request needs at least one.")
        if self.key is not None:
            signing.load_private(Path(self.key))
        if self.content is not None:
            ForgetSet.of(split, self.content)  # asks for every sample, so that one that is not there is missed now
        if self.previous is not None:
            before = read_record(Path(self.previous))
            if before["model"]["after"] != fingerprint(original.state_dict()):
                raise UsageError(
                    f"{self.previous} is about another model: its run did not produce the model given. Unlearn from "
                    "the model that it produced, or leave previous= out."
                )
            refuse_forgotten(Path(self.previous).parent, before, split, test)
