"""The request that a record answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unweave.data import Partition
from unweave.errors import UsageError, require_type
from unweave.record import signing
from unweave.record.forget_set import Content, ForgetSet
from unweave.record.forgotten import refuse_forgotten
from unweave.record.sealing import read_record
from unweave.storage import fingerprint

TEXT_LENGTH = 100_000


@dataclass(frozen=True, kw_only=True)
class Request:
    """Who or what is to be forgotten, in words, and how that goes on record.

    ``key`` is the file of an Ed25519 private key that signs the record; ``previous`` the record of the request before,
    which this one continues. ``content`` returns, for a position in the data set, the bytes that stand for the sample
    (for instance those of its file), so that their holder can check that it was in the request; without it the
    sample's input tensors are taken.
    """

    id: str
    text: str = ""
    key: str | os.PathLike[str] | None = None
    previous: str | os.PathLike[str] | None = None
    content: Content | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id.strip():
            raise UsageError(f"The request's id is {self.id!r}, but must be a text that is not empty.")
        if not isinstance(self.text, str) or len(self.id) + len(self.text) > TEXT_LENGTH:
            raise UsageError(f"The request's text must be a text, with its id of at most {TEXT_LENGTH} characters.")
        try:
            (self.id + self.text).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"The request's id and text must be Unicode: {error}") from error

    @classmethod
    def of(
        cls,
        given: Request | Mapping[str, Any] | None,
        model: nn.Module,
        split: Partition,
        test: Partition | None,
        out: str | os.PathLike[str] | None,
    ) -> Request | None:
        """Return the request, which may be given as a mapping, and refuse what cannot go on record before any work."""
        if given is None:
            return None
        if out is None:
            raise UsageError("A deletion record needs a folder to be written to. Give out=.")
        require_type("request", given, (Request, Mapping), "a Request, or a mapping with its id and text")
        try:
            request = given if isinstance(given, Request) else cls(**given)
        except TypeError as error:
            raise UsageError(f"The request cannot be read: {error}. It needs an id.") from error
        request.check(model, split, test)
        return request

    def check(self, model: nn.Module, split: Partition, test: Partition | None) -> None:
        """Refuse what cannot go on record. ``model`` is the one before unlearning."""
        if len(split.forget) == 0:
            raise UsageError("The split has no forget samples, so there is nothing to answer a request with.")
        if self.key is not None:
            signing.load_private(Path(self.key))
        if self.content is not None:
            ForgetSet.of(split, self.content)  # asks for every sample, so that one that is not there is missed now
        if self.previous is not None:
            before = read_record(Path(self.previous))
            if before["model"]["after"] != fingerprint(model.state_dict()):
                raise UsageError(
                    f"{self.previous} ends with another model than the one given. Unlearn from the model that the "
                    "request before left, or start a new chain."
                )
            refuse_forgotten(Path(self.previous).parent, before, split, test)
