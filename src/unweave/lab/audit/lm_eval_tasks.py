"""Tasks of lm-eval, the harness of EleutherAI, run on a saved language model: what it still can do, beside the scores.

The extra ``lm-eval`` installs it. Tasks read their data as the harness does, mostly from the Hugging Face Hub; tasks of
one's own are YAML files in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unweave.errors import UsageError
from unweave.evaluation import Metric
from unweave.lab.audit.subject import Subject
from unweave.lab.packages import require_package
from unweave.runtime import pick_device

SPLIT = "lm-eval"
NORMAL = 1.96  # half of an interval in standard errors
RESAMPLES = 1000  # for standard errors without a formula; with 0, lm-eval gives none at all


def lm_eval_scores(
    subject: Subject,
    tasks: Sequence[str],
    *,
    original: nn.Module | None = None,
    folder: Path | None = None,
    limit: int | None = None,
    device: str | None = None,
) -> list[Metric]:
    """Run tasks of lm-eval on a language model.

    Args:
        subject: The model. Its benchmark or request has the tokenizer.
        tasks: Names of tasks or groups, such as ``hellaswag``.
        original: The model before unlearning, to run them on too.
        folder: A folder with tasks of one's own.
        limit: The most questions of a task.
        device: Where to run.

    Returns:
        The numbers, with the task as the subset and intervals from lm-eval's standard errors.

    Raises:
        UsageError: lm-eval is not installed, a task is unknown or cannot be run, or the model is no language model.
    """
    harness = require_package("lm_eval", "--lm-eval", extra="lm-eval")
    tokenizer = _tokenizer(subject)
    known = require_package("lm_eval.tasks", "--lm-eval", extra="lm-eval").TaskManager(
        include_path=None if folder is None else str(folder)
    )
    for task in tasks:
        if not known.match_tasks([task]):
            raise UsageError(
                f"lm-eval has no task {task!r}. `lm-eval ls tasks` lists them; --lm-eval-folder names a folder with "
                "your own."
            )

    def run(model: nn.Module) -> Mapping[str, Any]:
        wrapper = require_package("lm_eval.models.huggingface", "--lm-eval", extra="lm-eval").HFLM
        where = pick_device(device)
        try:
            asked = wrapper(pretrained=model.to(where).eval(), tokenizer=tokenizer, device=str(where), batch_size=16)
            found: Mapping[str, Any] = harness.simple_evaluate(
                model=asked,
                tasks=list(tasks),
                task_manager=known,
                limit=limit,
                log_samples=False,
                bootstrap_iters=RESAMPLES,
            )
        except (OSError, ValueError, KeyError, ImportError) as error:  # data that cannot be fetched, an odd task file
            words = str(error).strip().partition("\n")[0][:300]
            raise UsageError(f"lm-eval cannot run {', '.join(tasks)}: {words}") from error
        return found

    before = _numbers(run(original)) if original is not None else {}
    return [
        one.beside(reference=None, before=before[place].value if place in before else None)
        for place, one in _numbers(run(subject.model)).items()
    ]


def lm_eval_table(metrics: Sequence[Metric]) -> str:
    """Return the numbers of lm-eval as lines of text.

    >>> print(lm_eval_table([Metric(metric="acc", value=0.5, better="higher", split=SPLIT, subset="arc_easy")]))
    lm-eval                       metric                 value        interval  before
    arc_easy                      acc                    0.500
    """
    lines = [f"{'lm-eval':<30}{'metric':<20}{'value':>8}{'interval':>16}{'before':>8}"]
    for one in metrics:
        interval = "" if one.low is None or one.high is None else f"{one.low:.3f}–{one.high:.3f}"
        value, before = ("" if number is None else f"{number:.3f}" for number in (one.value, one.before))
        lines.append(f"{one.subset:<30}{one.metric:<20}{value:>8}{interval:>16}{before:>8}".rstrip())
    return "\n".join(lines)


def _tokenizer(subject: Subject) -> Any:
    benchmark = subject.benchmark
    found = benchmark.given(benchmark.load()).get("tokenizer") if benchmark and benchmark.has_tokens else None
    if found is None:
        raise UsageError(
            "--lm-eval is for language models whose tokenizer is known: give the folder of a run of unweave unlearn, "
            "or of a benchmark with questions."
        )
    return found


def _numbers(found: Mapping[str, Any]) -> dict[tuple[str, str, str], Metric]:
    """Return the numbers of lm-eval's results, which are named ``metric,filter``."""
    metrics = []
    for task, row in found["results"].items():
        for name, value in row.items():
            metric, _, kind = name.partition(",")
            if metric.endswith("_stderr") or not isinstance(value, int | float) or not kind:
                continue
            error = row.get(f"{metric}_stderr,{kind}")
            half = NORMAL * error if isinstance(error, float) else None
            higher = found.get("higher_is_better", {}).get(task, {}).get(metric, True)
            metrics.append(
                Metric(
                    metric=metric if kind == "none" else f"{metric} ({kind})",
                    value=float(value),
                    better="lower" if higher is False else "higher",
                    split=SPLIT,
                    subset=task,
                    low=None if half is None else value - half,
                    high=None if half is None else value + half,
                )
            )
    return {one.place: one for one in metrics}
