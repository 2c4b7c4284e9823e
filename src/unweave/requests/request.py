"""The request: what to forget, from which model and data, and how. Its fields are the flags and the keys of a file."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from unweave.errors import UsageError, as_path, require_type
from unweave.record import DeletionRequest
from unweave.requests.request_fields import option

if TYPE_CHECKING:  # what needs torch is imported when it is used, because the help of commands is made from this class
    from unweave.api import Result
    from unweave.engine import Callback
    from unweave.methods import Method
    from unweave.requests.models import ModelSource
    from unweave.requests.request_inspection import RequestInspection
    from unweave.requests.resolving import Prepared, Rows
    from unweave.requests.roles import NamedColumns

WHAT = str | Sequence[int | str]


@dataclass(frozen=True, kw_only=True)
class Request(DeletionRequest):
    """A request to forget: the model, the data, what is to be forgotten, and how.

    In a file, the keys are those of the command line: ``request-id`` for `id`, ``request`` for `text`, ``id`` for
    `id_column`, ``set`` for `settings` and ``limit`` for `limits`. With an id, the run gets a deletion record; that is
    all that `record.write` needs.

    Args:
        previous: The record that this request's record continues. Python only, like the next.
        content: A function that returns the content of the sample at a position as bytes, for instance its file.

    Raises:
        UsageError: A value cannot be used.

    >>> Request(id="2031-17", text="All photographs of the aquarium, by mail of 3 May.").id
    '2031-17'
    """

    id: str = option("", key="request-id", help="Id of the request. The run then gets a deletion record.")
    text: str = option("", key="request", help="Who or what is to be forgotten, in words, for the record.")
    key: str | os.PathLike[str] | None = option(
        None, path=True, help="Private key that signs the record (see `unweave record keygen`)."
    )
    after: str | os.PathLike[str] | None = option(
        None,
        path=True,
        help="Folder of the previous run. Start from its model; what it forgot stays forgotten. Keys that are missing "
        "come from its request.",
    )
    model: str | None = option(
        None, path=True, help="Checkpoint: a folder or Hub name, timm:NAME, or MODULE:FUNCTION with --weights."
    )
    weights: str | None = option(None, path=True, help="Safetensors file, for MODULE:FUNCTION and timm:NAME.")
    train: str | None = option(None, path=True, help="Training data: files, a folder, or a name on the Hub.")
    test: str | None = option(None, path=True, help="Test data. It is only measured.")
    test_split: str | None = option(
        None, path=True, help="Split file of the test data. Default: it is split like the training data."
    )
    input: str | Sequence[str] | None = option(None, help="Column of the inputs. Default: the only one that fits.")
    label: str | None = option(None, help="Column of the labels. Default: label or labels.")
    prompt: str | None = option(None, help="Column of the prompts, for a language model. Default: question or prompt.")
    answer: str | None = option(None, help="Column of the answers, for a language model. Default: answer.")
    template: str | None = option(
        None,
        help="How prompt and answer become a text: chat, or a text with {prompt} and {answer} (\\n is a line break). "
        "Default: the tokenizer's chat template or, without one, a plain text.",
    )
    id_column: str | None = option(None, key="id", help="Column of the ids that --forget names. Default: id, if any.")
    forget: WHAT | None = option(
        None, path=True, help="What to forget: a file of ids or row numbers, or a condition in SQL over the columns."
    )
    adjacent: WHAT | None = option(
        None,
        path=True,
        help="Kept data that is entangled with it: same-label, neighbours, a file or a condition. Default: same-label "
        "or, if that is more than a third of the data, neighbours.",
    )
    out: str | os.PathLike[str] | None = option(None, path=True, help="Folder to write. It must be new or empty.")
    method: str | None = option(None, help="Name of a method (see `unweave methods`).")
    profile: str | None = option(
        None, help="Profile of the method: a named set of settings. Default: its first; for two-stage, default."
    )
    goal: str | None = option(None, choices=("erase", "retrain"), help="Goal: erase, or retrain (as if never trained).")
    settings: Mapping[str, Any] = option({}, key="set", help="Setting of the method. Repeatable.")
    seed: int = option(0, help="Seed of everything random.")
    device: str | None = option(None, help="Device: cpu, cuda or cuda:1. Default: the best one available.")
    precision: str = option("auto", choices=("auto", "float32", "bfloat16"), help="Precision of the passes.")
    compile: str = option(
        "auto", choices=("auto", "on", "off"), help="Compile and record passes: auto (where it saves time)."
    )
    micro_batch: int | None = option(None, help="Most samples to differentiate at once. It saves memory.")
    max_memory: str | None = option(None, help="Most GPU memory to use, such as 8GB. Batches are split to fit.")
    keep_data: str = option(
        "auto", choices=("auto", "device", "host"), help="Keep the data on the device: auto (if it fits)."
    )
    shard: bool = option(False, help="Shard the weights over the processes that a launcher started (FSDP2).")
    limits: Mapping[str, Any] = option({}, key="limit", help="Limit of the guard against collapse. Repeatable.")
    skip_unreadable: bool = option(False, help="Leave out images that cannot be read.")
    no_guard: bool = option(False, help="Do not stop a run that destroys the model.")
    checkpoint_seconds: float | None = option(None, help="Seconds between checkpoints.")
    checkpoint_steps: int | None = option(None, help="Most steps between checkpoints.")
    recipe: Mapping[str, Any] = option(
        {},
        help="How the model was trained: settings of the method retrain, and `start`, the checkpoint it began with. "
        "Studies and audits train by it.",
    )
    show_samples: bool = option(False, help="Show samples whose prediction changed in report.html.")
    push_to_hub: str | None = option(None, help="Hub name (owner/name) that gets the folder model/, and nothing else.")

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or self.id:
            self.require_id()
        self._require_words()
        self.chosen()
        if (self.text or self.key) and not self.id and self.model:
            raise UsageError("A request's text and key are for its record, which needs an id (request-id).")

    @classmethod
    def load(cls, path: str | os.PathLike[str], **changes: Any) -> Self:
        r"""Read a request from a YAML file.

        Args:
            path: The file. Paths in it are relative to its folder.
            changes: Fields that replace those of the file.

        Returns:
            The request.

        Raises:
            UsageError: The file cannot be read, or has an unknown key.

        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "request.yaml")
        >>> file.write_text("model: owner/model\nforget: person_id = 17\nset: {epochs: 2}\nmethod: ga\n") > 0
        True
        >>> Request.load(file, seed=1).settings
        {'epochs': 2}
        """
        from unweave.requests.request_file import read_request

        return cls(**{**read_request(as_path("path", path), cls), **changes})

    @classmethod
    def draft(cls, model: str, train: str, *, weights: str | None = None, home: str | os.PathLike[str] = ".") -> str:
        """Return the text of a request file for a model and its data, with comments.

        Args:
            model: The checkpoint.
            train: The training data.
            weights: The safetensors file of a model of MODULE:FUNCTION.
            home: The folder of the file. Paths in it are relative to this folder.

        Returns:
            YAML. Columns, labels and groups are filled in; what to forget is not.

        Raises:
            UsageError: The model or the data cannot be opened.
        """
        from unweave.requests.drafting import draft_request

        return draft_request(model, train, weights=weights, home=Path(home), request=cls)

    def chosen(self) -> Method:
        """Return the method with its settings."""
        from unweave.api import unlearn
        from unweave.methods import all_methods, find_method

        require_type("settings", self.settings, Mapping, "names with values")
        for name in ("method", "goal", "profile"):
            require_type(name, getattr(self, name), (str, type(None)), "a name")
        names = [name for name, one in all_methods().items() if any(row["name"] == "goal" for row in one.describe())]
        name = self.method or (names[0] if self.goal else inspect.signature(unlearn).parameters["method"].default)
        if self.goal and name not in names:
            raise UsageError(f"A goal is for methods with a setting goal ({', '.join(names)}), not for {name}.")
        method = find_method(name)
        return method.configure(
            {**self.settings, **({"goal": self.goal} if self.goal else {})},
            profile=self.profile or method.on_own_models or None,
        )

    def completed(self) -> Self:
        """Return the request with the keys that the request of the run before fills in."""
        if self.after is None:
            return self
        from unweave.requests.own_models import has_name_of_function
        from unweave.requests.run_files import FROM_RUN, request_file

        before = type(self).load(request_file(Path(self.after)))
        if self.model is None and before.model is not None and has_name_of_function(before.model):
            raise UsageError(
                f"The request in {self.after} names code ({before.model}), and the folder may come from a stranger. If "
                f"you trust it, give it yourself: --model {before.model}"
            )
        missing = {name for name in FROM_RUN if getattr(self, name) in (None, {})}
        return dataclasses.replace(self, **{name: getattr(before, name) for name in missing})

    def checkpoint(self) -> ModelSource:
        """Open the checkpoint, without its weights: that of the run before, if the request continues one."""
        from unweave.requests.resolving import open_checkpoint, open_of_run

        if self.model is None:
            raise UsageError("The request has no model. Give it as --model, or as a key of the file.")
        if self.after is not None:
            return open_of_run(Path(self.after), self.model)
        return open_checkpoint(self.model, self.weights)

    def columns(self) -> NamedColumns:
        """Return the columns that the request names."""
        from unweave.requests.roles import NamedColumns

        return NamedColumns(_listed(self.input), self.label, self.prompt, self.answer, self.template, self.id_column)

    def find(self) -> Rows:
        """Find the columns and rows that the request means. No weights are loaded.

        Returns:
            The rows.

        Raises:
            UsageError: Something is missing, or does not fit.
        """
        from unweave.requests.resolving import find

        asked = self.completed()
        for name in ("model", "train", "forget"):
            if getattr(asked, name) is None:
                raise UsageError(f"The request has no {name}. Give it as --{name}, or as a key of the file.")
        found = find(
            asked.checkpoint(),
            train=str(asked.train),
            test=asked.test,
            columns=asked.columns(),
            forget=asked.forget or "",
            adjacent=asked.adjacent,
            after=None if asked.after is None else Path(asked.after),
        )
        return dataclasses.replace(found, test_split=None if asked.test_split is None else Path(asked.test_split))

    def prepare(self) -> Prepared:
        """Load what the request names: the model, and the splits of its data."""
        from unweave.requests.request_run import load_rows

        return load_rows(self, self.find())

    def inspect(self) -> RequestInspection:
        """Look at what the request means before anything runs: counts, rows, forecast, cost, and what is refused.

        Returns:
            What was found. It prints, and writes a page.
        """
        from unweave.requests.request_inspection import inspect_request

        return inspect_request(self)

    def run(self, *, resume: bool = False, callbacks: Sequence[Callback] = ()) -> Result:
        """Unlearn as the request says.

        Args:
            resume: Resume the unfinished run of the output folder. Without one, begin.
            callbacks: What observes the run.

        Returns:
            The unlearned model with history, cost, scores and verdict.

        Raises:
            UsageError: The request cannot be run. Nothing was written.
            RunError: The work failed.
        """
        from unweave.requests.request_run import run_request

        return run_request(self.completed(), resume=resume, callbacks=callbacks)


def _listed(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(columns, str):
        return tuple(word.strip() for word in columns.split(",") if word.strip())
    return tuple(columns or ())
