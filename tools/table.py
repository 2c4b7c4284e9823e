"""Print the main table of a published study, the paper's numbers in brackets: `python tools/table.py NAME`.

NAME/PART is a further study of the benchmark, such as one with tuned settings. ``--variants`` prints the variants of
two-stage, study by study; ``--membership`` the results of attacks on the forget data; ``--tuned`` the results of
tuning, from results/NAME/tuned and the settings in the package. `python tools/table.py --overview` prints a line for
every benchmark, `python tools/table.py --times` the time of every method with a GPU to itself, beside the paper's,
`python tools/table.py --kinds` the default method on models that nobody tuned for, by what is to be forgotten.
README.md, docs/results and docs/tuning.md hold the output word for word; a test compares them.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pandas as pd

from places import PAPER_COSTS, RESULTS, TUNED
from unweave.lab.report import Group, label, read_results
from unweave.lab.report.printed import counterpart, printed_rows
from unweave.lab.report.sections import sections
from unweave.lab.tuning import erase_score

TIMES = RESULTS / "speed/h200/methods.json"
STRANGERS = RESULTS / "strangers/judgement.jsonl"
KINDS = {  # of requests: the first word of their name in the protocol
    "class": "a class that shares its label with others",
    "label": "everything with one label",
    "group": "a group across labels",
    "random": "20, 200 or 1% random samples",
    "mislabelled": "samples with wrong labels",
}
ORDER = ("original", "retrain", "ft", "ga", "l1-sparse", "scrub", "ssd", "salun", "delete", "gdr", "munba")
CELLS = [(split, subset) for split in ("train", "test") for subset in ("forget", "adjacent", "remote")]
BENCHMARKS = {
    "cifar100-resnet18": "CIFAR-100, ResNet-18 at 224 px: aquarium fish",
    "cifar100-vit": "CIFAR-100, small transformer: aquarium fish",
    "tinyimagenet-vit": "Tiny-ImageNet (a fifth), small transformer: dogs",
    "celeba-vit": "CelebA (a thirteenth), small transformer: some faces of a class",
    "toxigen-roberta": "ToxiGen (annotated), MPNet: sentences with biased labels",
    "clinc150": "CLINC150, MiniLM: one intent",
    "fashion-mnist": "Fashion-MNIST, small CNN: sandals",
    "digits": "Digits, small CNN: nines",
}
ATTACKS = {  # by metric: a heading, and the format of numbers
    "mia_svc_confidence": ("confidence attack: called non-members", "{:.1%}"),
    "mia_population_auc": ("loss attack: AUC", "{:.3f}"),
    "mia_rmia_auc": ("RMIA: AUC", "{:.3f}"),
}
HEAD = " | ".join(f"{split} {subset} {'↓' if subset == 'forget' else '↑'}" for split, subset in CELLS)


def table(name: str) -> str:
    """Return the table as Markdown: a row per method, means ± deviation over its seeds, in percent.

    A method with several profiles has a row for each. If the study has named studies, the variants of two-stage belong
    to them and are left out here.
    """
    study = RESULTS / (name if "/" in name else f"{name}/all")
    frame = pd.read_parquet(study / "results.parquet")
    apart = json.loads((study / "study.json").read_text())["presets"]
    found = frame[frame.metric == "accuracy"]
    if apart:
        found = found[(found.variant == "") | (found.method != "two-stage")]
    grouped = found.groupby(["method", "profile", "variant", "split", "subset"]).value
    means, deviations, seeds = grouped.mean(), grouped.std(), grouped.count()
    paper = counterpart(name.partition("/")[0])
    printed = {row.method: row.values for row in reversed(printed_rows(paper)) if not row.settings} if paper else {}
    rows = {Group(row.method, row.profile, row.variant) for row in found.itertuples()}
    for path in (study / "failed").glob("*.json"):
        cell = json.loads(path.read_text())
        rows.add(Group(cell["method"], cell["profile"], cell["variant"]))
    lines = [f"| accuracy in % | seeds | {HEAD} |", "|---" * 8 + "|"]
    for row in sorted(rows, key=_place):
        count = seeds.get((*row, *CELLS[0]), 0)
        cells = []
        for cell in CELLS:
            ours = f"{100 * means[*row, *cell]:.1f}" if count else "failed"
            ours += f"±{100 * deviations[*row, *cell]:.1f}" if count > 1 else ""
            theirs = None if row.variant else printed.get(row.method, {}).get(cell)
            cells.append(ours + (f" ({100 * theirs.mean:.1f})" if theirs else ""))
        lines.append(f"| {label(row, rows)} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def variants_table(name: str) -> str:
    """Return the variants of two-stage as Markdown, for every named study with variants that the paper has too."""
    lines = [f"| accuracy in % | seeds | {HEAD} |", "|---" * 8 + "|"]
    results = read_results(RESULTS / name / "all")
    for study in sorted(sections(results, against_paper=True), key=lambda study: study.name):
        beside = next((grid for grid in study.grids if grid.name.endswith("-paper")), None)
        rows = [group for group in study.labels if group.method != "original"]
        if beside is None or not any(group.variant for group in rows):
            continue
        of = {(one["method"], one["variant"], one["split"], one["subset"]): one for one in beside.records}
        for group in rows:
            words = f"{study.name}: {group.method}{f', {group.variant}' if group.variant else ''}"
            cells = [_beside(of[group.method, group.variant, *cell]) for cell in CELLS]
            lines.append(f"| {words} | {len(results.seeds_of(group))} | {' | '.join(cells)} |")
    return "\n".join(lines)


def membership_table(name: str) -> str:
    """Return the results of membership attacks on the forget data as Markdown: means over the seeds."""
    frame = pd.read_parquet(RESULTS / name / "all" / "results.parquet")
    found = frame[(frame.variant == "") & (frame.split == "train") & (frame.subset == "forget")]
    means = found.groupby(["method", "profile", "variant", "metric"]).value.mean()
    rows = {Group(*row) for *row, _ in means.index}
    lines = [f"| | {' | '.join(words for words, _ in ATTACKS.values())} |", "|---" * (1 + len(ATTACKS)) + "|"]
    for row in sorted(rows, key=_place):
        cells = [shown.format(means[*row, metric]) for metric, (_, shown) in ATTACKS.items()]
        lines.append(f"| {label(row, rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _place(row: Group) -> tuple[int, Group]:
    return (ORDER.index(row.method) if row.method in ORDER else len(ORDER), row)


def _beside(of: dict[str, float | None]) -> str:
    mean, deviation, paper = (of[key] for key in ("ours_mean", "ours_std", "paper_mean"))
    ours = f"{100 * mean:.1f}" + ("" if deviation is None else f"±{100 * deviation:.1f}")
    return ours + ("" if paper is None else f" ({100 * paper:.1f})")


def tuned_table(name: str) -> str:
    """Return the results of tuning as Markdown: held-out and test scores before and after, and the cost."""
    chosen = json.loads((TUNED / f"{name}.json").read_text())["methods"]
    lines = [
        "| method | held-out: default → tuned | test: default | test: tuned | test: one seed | failed | s "
        "| million sample gradients |",
        "|---" * 8 + "|",
    ]
    studies = [scores(RESULTS / name / folder) for folder in ("all", "tuned", "tuned-one-seed")]
    for method, row in sorted(chosen.items()):
        cost = row["cost"]
        lines.append(
            f"| {method} | {row['default_score']:.3f} → {row['score']:.3f} | "
            + " | ".join(_spread(found[method]) for found in studies)
            + f" | {cost['failed']} | {cost['seconds']:.0f} | {cost['sample_gradients'] / 1e6:.2f} |"
        )
    return "\n".join(lines)


def scores(study: Path, profile: str = "") -> dict[str, list[float]]:
    """Return the score for the goal erase on test data, by method, for every seed, of all profiles or of one."""
    frame = pd.read_parquet(study / "results.parquet")
    plain = frame[(frame.metric == "accuracy") & (frame.variant == "") & (frame.split == "test")]
    if profile:
        plain = plain[(plain.profile == profile) | (plain.method == "original")]
    of = {run: dict(zip(rows.subset, rows.value, strict=True)) for run, rows in plain.groupby(["method", "seed"])}
    found: dict[str, list[float]] = {}
    for (method, seed), accuracy in of.items():
        found.setdefault(method, []).append(erase_score(accuracy, of["original", seed]))
    return found


def overview() -> str:
    """Return a line for every benchmark: test accuracies of the original, and of methods with their best settings."""
    columns = ("before", "the best of the ten other methods", "two-stage", "`unweave`, its defaults")
    lines = [f"| forget (trained) · adjacent · remote | {' | '.join(columns)} |", "|---" * 5 + "|"]
    for name, words in BENCHMARKS.items():
        best: dict[str, tuple[float, str, str]] = {}
        for folder in ("all", "tuned"):  # tuned cells may be in a study of their own
            study = RESULTS / name / folder
            if not (study / "results.parquet").exists():
                continue
            frame = pd.read_parquet(study / "results.parquet")
            found = frame[(frame.metric == "accuracy") & (frame.variant == "")]
            for (method, profile), rows in found.groupby(["method", "profile"]):
                column = method if method in ("original", "two-stage", "unweave", "retrain") else "others"
                if (column == "unweave" and profile != "default") or (column == "original" and folder != "all"):
                    continue
                mean = 100 * rows.groupby(["split", "subset"]).value.mean()
                own = statistics.fmean(scores(study, profile)[method])
                cell = f"{mean['test', 'forget']:.0f} ({mean['train', 'forget']:.0f})"
                cell += "".join(f" · {mean['test', subset]:.0f}" for subset in ("adjacent", "remote"))
                best[column] = max(best.get(column, (-1.0, "", "")), (own, method, cell))
        before, others, stages, ours = (best[key] for key in ("original", "others", "two-stage", "unweave"))
        lines.append(f"| {words} | {before[2]} | {others[2]} {others[1]} | {stages[2]} | {ours[2]} |")
    return "\n".join(lines)


def times() -> str:
    """Return the time of every method as Markdown, and its share of retraining, beside the paper's."""
    measured = json.loads(TIMES.read_text())["compile"]["off"]
    costs = json.loads(PAPER_COSTS.read_text())
    minutes, megabytes = (
        {name.replace("_", "-"): value for name, value in costs[key].items()}
        for key in ("run_time_minutes_rtx3090_cifar100_resnet18", "gpu_memory_mb_batch128")
    )
    lines = ["| | seconds | of retraining | peak memory (GB) | paper: minutes | of retraining | GB |", "|---" * 7 + "|"]
    for name, row in sorted(measured.items(), key=lambda item: -item[1]["seconds"]):
        cells = [f"{row['seconds']:.1f}", f"{row['seconds'] / measured['retrain']['seconds']:.1%}"]
        cells += [f"{row['peak_bytes'] / 1e9:.1f}"]
        cells += [f"{minutes[name]:.1f}", f"{minutes[name] / minutes['retrain']:.1%}"] if name in minutes else ["", ""]
        cells += [f"{megabytes[name] / 1e3:.1f}" if name in megabytes else ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kinds() -> str:
    """Return what the default method did on models that nobody tuned for, as Markdown: a row per kind of request."""
    cells = [json.loads(line) for line in STRANGERS.read_text(encoding="utf-8").splitlines()]
    shown = (("train forget", "forget data"), ("test adjacent", "look-alikes, unseen"), ("test remote", "rest, unseen"))
    lines = [
        f"| recognised, in %, before → after | tasks | {' | '.join(words for _, words in shown)} |",
        "|---" * 5 + "|",
    ]
    for kind, words in KINDS.items():
        rows = [cell for cell in cells if cell["request"].partition(" ")[0] == kind]
        means = [
            " → ".join(f"{100 * statistics.fmean(row[when][part] for row in rows):.0f}" for when in ("before", "after"))
            for part, _ in shown
        ]
        lines.append(f"| {words} | {len({row['task'] for row in rows})} | {' | '.join(means)} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def printed(name: str, *more: str) -> str:
    """Return the table that the words of a command line name."""
    alone = {"--overview": overview, "--times": times, "--kinds": kinds}
    of_one = {"--tuned": tuned_table, "--variants": variants_table, "--membership": membership_table}
    return alone[name]() if name in alone else of_one.get(more[-1] if more else "", table)(name)


if __name__ == "__main__":
    print(printed(*sys.argv[1:]))
