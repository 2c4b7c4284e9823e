"""The plain way: Hugging Face's Trainer on the same batches. It fine-tunes, or has NPO's loss as in open-unlearning."""

from __future__ import annotations

import copy
import tempfile
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.measure import wait

if TYPE_CHECKING:
    from bench.language import Side

BETA = 0.1
STILL = 1e-12


def measure(name: str, model: nn.Module, data: dict[str, Tensor], side: Side, *, warm_up: int) -> dict[str, Any]:
    """Time the steps of a Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        """Notes when the warm-up and the timed steps end."""

        begun = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == warm_up:
                wait(side.device)
                self.begun = time.perf_counter()
            elif state.global_step == warm_up + side.steps:
                wait(side.device)
                self.ended = time.perf_counter()

    class WithPreferences(Trainer):
        """NPO with a retain term; the reference is asked in every step."""

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            before = _summed(reference, inputs["forget"], grad=False)
            sums = _summed(model, inputs["forget"])
            forget = -2 / BETA * functional.logsigmoid(BETA * (sums - before)).mean()
            return forget + model(**inputs["retain"]).loss

    npo = name == "trainer-npo"
    reference: nn.Module = copy.deepcopy(model).requires_grad_(False) if npo else nn.Identity()
    is_cuda, clock, started = side.device.type == "cuda", Clock(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=side.batch,
            max_steps=warm_up + side.steps,
            learning_rate=STILL,
            bf16=is_cuda,
            use_cpu=not is_cuda,
            optim="adamw_torch_fused" if is_cuda else "adamw_torch",
            lr_scheduler_type="constant",
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        rows = Pairs(data, 4 * side.batch) if npo else Rows(data)
        kind = WithPreferences if npo else Trainer
        kind(model=model, args=arguments, train_dataset=rows, data_collator=_batch, callbacks=[clock]).train()
    return {
        "step_seconds": (clock.ended - clock.begun) / side.steps,
        "tokens": (2 if npo else 1) * side.batch * side.tokens,
        "warm_up_seconds": clock.begun - started,
    }


class Rows(torch.utils.data.Dataset[Any]):
    """Texts one by one."""

    def __init__(self, data: dict[str, Tensor]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data["input_ids"])

    def __getitem__(self, row: int) -> Any:
        return {name: tensor[row] for name, tensor in self.data.items()}


class Pairs(Rows):
    """Each forget text with a retained one."""

    def __init__(self, data: dict[str, Tensor], forget: int) -> None:
        super().__init__(data)
        self.forget = forget

    def __len__(self) -> int:
        return self.forget

    def __getitem__(self, row: int) -> Any:
        return {"forget": super().__getitem__(row), "retain": super().__getitem__(self.forget + row)}


def _batch(rows: list[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Tensor):
        return torch.stack(rows)
    return {name: _batch([row[name] for row in rows]) for name in first}


def _summed(model: Any, inputs: dict[str, Tensor], *, grad: bool = True) -> Tensor:
    """Return the log-likelihood of every answer."""
    with torch.set_grad_enabled(grad):
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        losses = functional.cross_entropy(
            logits[:, :-1].float().transpose(1, 2), inputs["labels"][:, 1:], reduction="none", ignore_index=-100
        )
        return -losses.sum(dim=1)
