"""The experiments of `tools/tried.py`: variants of the method unweave, and estimates of a retrained model."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unweave import Compute, Result, Shortfall, Split, UsageError, evaluate, unlearn
from unweave.data import SUBSETS, Data
from unweave.engine import Phase, Workbench
from unweave.evaluation import predict
from unweave.lab.benchmarks import Benchmark, BenchmarkTask, find_benchmark
from unweave.maths import Gradient, remove_span, squared_wasserstein
from unweave.methods import Method, find_method
from unweave.methods.unseen import reference_losses
from unweave.methods.unweave import Constrained, Unweave
from unweave.runs import load_weights
from unweave.tasks import cross_entropy

CPU = torch.device("cpu")
SEEDS, HELD_OUT, DIALS = range(3), 0.2, (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SMALLER = 300  # images of each class of Fashion-MNIST, few enough for two cores
SMALLER_SETTINGS = {"batch_size": 64, "remote_batch": 256, "epochs": 12}
CIFAR = ("maple_tree", "lamp", "tiger", "road")  # classes that no reported result forgets
Row = dict[str, Any]
Trials = Iterator[tuple[Row, Callable[[], Row]]]


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of data and trained originals, and the device. Each table uses what it needs."""

    data: str | None = None
    originals: Path | None = None  # folder of a study with its originals
    device: str = "cpu"


class TwoDirections(Constrained):
    """Also keep the mean forget loss constant, to first order."""

    def _distance(self) -> tuple[Tensor, Gradient]:
        distance, uphill = super()._distance()
        count = len(self.forget.rows)
        mean = self.bench.gradient(self.bench.losses(batch).sum() / count for batch in self.forget.in_order())
        # Orthogonal to the first direction: removing that one later does not restore this one.
        self.velocity = remove_span(self.velocity, [remove_span(mean, [uphill])], in_place=True)
        return distance, uphill


class UnweaveInTwoDirections(Unweave):
    """Our own method with this phase."""

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [TwoDirections(self)]


class Experiment:
    """A benchmark with one seed and its original, and ways to unlearn from it."""

    def __init__(
        self, benchmark: Benchmark, task: BenchmarkTask, seed: int, original: nn.Module, device: str = "cpu"
    ) -> None:
        self.benchmark, self.task, self.seed, self.original = benchmark, task, seed, original
        self.common: dict[str, Any] = {"guard": None, "compute": Compute(device)}

    def retrain(self, seed: int, epochs: int | None = None) -> Result:
        """Train without the forget data, for all epochs or for some."""
        recipe = self.benchmark.recipe.to_dict() | ({"epochs": epochs} if epochs else {})
        begin = {"seed": seed, "initial": lambda: self.benchmark.initial(seed)}
        return unlearn(self.original, self.task.train, "retrain", **begin, **self.common, **recipe)

    def run(
        self,
        method: str | type[Method] = "unweave",
        *,
        split: Callable[[Split], Split] = lambda split: split,
        model: nn.Module | None = None,
        **values: Any,
    ) -> Result:
        """Unlearn with the benchmark's settings and ``values``; ``split`` changes the benchmark's split."""
        name = method if isinstance(method, str) else "unweave"
        own = self.benchmark.settings_for(find_method(name), None)
        plain = {"least_steps": 0} if name == "unweave" else {}  # so that few epochs mean few steps
        first = next(iter(find_method(method).profiles))
        arguments = {"seed": self.seed, "profile": first, **self.common, **plain, **own, **values}
        return unlearn(model or self.original, split(self.task.train), method, **arguments)

    def losses(self, model: nn.Module, split: Split, *subsets: str) -> Tensor:
        """Return the losses of a model."""
        return predict(model, split.samples, split.rows(*subsets), device=CPU).losses.double()

    def scores(self, result: Result, *, retrained: list[nn.Module] | None = None) -> Row:
        """Return a row of the table."""
        asked = {"reference": retrained, "questions": ("reference",), "resamples": 0, "compute": self.common["compute"]}
        found = evaluate(
            result.model, self.task.train, self.task.test, original=self.original, certificate=Shortfall(10.0), **asked
        )
        row: Row = {f"{part}_{s}": found[part][s]["accuracy"] for part in ("train", "test") for s in SUBSETS}
        row |= {"bound": found["train"]["forget"].get("forget_bound"), "gradients": result.cost.sample_gradients}
        if retrained:
            forget = found["train"]["forget"]
            row |= {"tow_split": found["model"]["tow_split"], "w2": forget["loss_wasserstein"]}
            row |= {"apart": forget["prediction_total_variation"]}
        return row


def plain_losses(model: nn.Module, data: Data) -> Tensor:
    """Return cross-entropies. As a loss of the user's own, the method uses its values instead of log-odds."""
    return cross_entropy(model, data)


def shifted(split: Split) -> Split:
    """Return the split with shifted copies of the forget images, one pixel to each side: images never trained on."""
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))
    return with_views(split, [lambda images, move=move: images.roll(move, dims=(-2, -1)) for move in moves])


def mirrored(split: Split) -> Split:
    """Return the split with mirrored copies of the forget images."""
    return with_views(split, [lambda images: images.flip(-1)])


def with_views(split: Split, views: Sequence[Callable[[Tensor], Tensor]]) -> Split:
    """Return the split with more forget images: those that each function makes of the given ones."""
    images, labels = split.samples.dataset.data
    gone = torch.from_numpy(split.forget)
    more = [view(images[gone]) for view in views]
    data = torch.cat([images, *more]), torch.cat([labels, *[labels[gone]] * len(more)])
    extra = np.arange(len(images), len(data[0]))
    return Split(data, np.concatenate([split.forget, extra]), split.adjacent, split.remote)


def erase_variants(e: Experiment) -> dict[str, Callable[[], Any]]:
    """Return the experiments for the goal erase."""

    def after_stage1(**values: Any) -> Any:
        first = e.run("two-stage", stage2_epochs=0)
        result = e.run(
            model=first.model,
            goal="retrain",
            reference=e.losses(first.model, e.task.train, "forget"),
            **values,
        )
        result.cost.sample_gradients += first.cost.sample_gradients
        return result

    tried: dict[str, Callable[[], Any]] = {
        "original": lambda: e.run("original"),
        "two-stage, as released": lambda: e.run("two-stage"),
        "stage 1, then tangent steps only": lambda: after_stage1(restore=1e-9),
        "stage 1, then W2 to the losses after it, restored": after_stage1,
        "unweave": e.run,
        "unweave, losses instead of log-odds": lambda: e.run(loss=plain_losses),
        "unweave, two directions": lambda: e.run(UnweaveInTwoDirections),
        "unweave, shifted forget images too": lambda: e.run(split=shifted),
    }
    axes = {
        "restore": (0.1, 0.25, 1.0),
        "reach": (0.002, 0.01, 0.02, 0.05),
        "stride": (0.0005, 0.001, 0.005),
        "patience": (0.02, 0.5, 1e9),
        "learning_rate": (1e-3, 1e-2, 3e-2, 1e-1),
        "remote_weight": (0.0, 1.0, 10.0),
        "remote_batches": (2, 4),
        "momentum": (0.0,),
        "epochs": (10, 40),
    }
    for name, values in axes.items():
        for value in values:
            tried[f"unweave, {name} {value:g}"] = lambda name=name, value=value: e.run(**{name: value})
    return tried


def erase(place: Place) -> Trials:
    """Settings and variants, with the 9 forgotten."""
    benchmark = find_benchmark("digits")
    task = benchmark.load()
    for seed in SEEDS:
        e = Experiment(benchmark, task, seed, benchmark.train(task, seed=seed, device="cpu", progress=False))
        for variant, run in erase_variants(e).items():
            yield {"variant": variant, "forget": 9, "seed": seed}, lambda e=e, run=run: e.scores(run())


def targets(place: Place) -> Trials:
    """How high the forget losses must be, with each digit forgotten."""
    for seed in SEEDS:
        original = None
        for kind in range(10):
            benchmark = find_benchmark("digits", options={"forget": kind})
            task = benchmark.load()
            original = original or benchmark.train(task, seed=seed, device="cpu", progress=False)
            e = Experiment(benchmark, task, seed, original)
            tried = {"original": lambda e=e: e.run("original"), "two-stage": lambda e=e: e.run("two-stage")}
            for target in (10.0, 15.0, 20.0):
                tried[f"unweave, target {target:g}"] = lambda e=e, target=target: e.run(target=target)
            for variant, run in tried.items():
                yield {"variant": variant, "forget": kind, "seed": seed}, lambda e=e, run=run: e.scores(run())


def cifar(place: Place) -> Trials:
    """Settings for the goal erase on CIFAR-100 at 64 px, with classes of four superclasses forgotten; for a GPU."""
    short = {"stride": 0.001, "reach": 0.0025}
    tried: dict[str, dict[str, Any]] = {
        "original": {"method": "original"},
        "unweave": {},
        "unweave, losses instead of log-odds": {"loss": plain_losses},
        "unweave, stride 0.001, reach 0.0025": short,
        "the same, losses instead of log-odds": {**short, "loss": plain_losses},
        "the same, learning_rate 0.001": {**short, "learning_rate": 1e-3},
        "the same, remote_weight 6": {**short, "remote_weight": 6.0},
        "unweave, stride 0.001": {"stride": 0.001},
        "unweave, stride 0.0005": {"stride": 0.0005},
        "unweave, stride 0.00025, reach 0.001": {"stride": 0.00025, "reach": 0.001},
        "unweave, learning_rate 0.001": {"learning_rate": 1e-3},
        "unweave, patience 1e+09": {"patience": 1e9},
        "unweave, target 15": {"target": 15.0},
        "unweave, target 20": {"target": 20.0},
        "unweave, learning_rate 0.0015": {"learning_rate": 1.5e-3},
        "unweave, mirrored forget images too": {"split": mirrored},
        "mirrored too, learning_rate 0.0015": {"split": mirrored, "learning_rate": 1.5e-3},
        "mirrored too, learning_rate 0.001": {"split": mirrored, "learning_rate": 1e-3},
        # Several batches: only samples below the target are differentiated, so more steps cost no more.
        "unweave, epochs 10, forget_batch 250": {"epochs": 10, "forget_batch": 250},
        "the same, learning_rate 0.001, epochs 10": {"epochs": 10, "forget_batch": 250, "learning_rate": 1e-3},
        "mirrored too, learning_rate 0.001, epochs 10": {"split": mirrored, "learning_rate": 1e-3, "epochs": 10},
    }
    experiments = dict(_cifar_experiments(place))
    for (variant, values), (kind, e) in itertools.product(tried.items(), experiments.items()):
        run = partial(e.run, **values)
        yield {"variant": variant, "forget": kind, "seed": 0}, lambda e=e, run=run: e.scores(run())


def cifar_retrain(place: Place) -> Trials:
    """Settings for the goal retrain on the same classes; the retrained models are trained here."""
    aimed: dict[str, dict[str, Any]] = {
        "unweave, goal retrain": {},
        "the same, reach 0.0025": {"reach": 0.0025},
        "the same, reach 0.00125": {"reach": 0.00125},
        "the same, epochs 12": {"epochs": 12},
        "the same, epochs 12, reach 0.0025": {"epochs": 12, "reach": 0.0025},
        "the same, budget 0.02": {"budget": 0.02},
        "the same, by rank": {"pairing": "rank"},
        # Mirrored images were never trained on. They stand for unseen images, which should stay as well known.
        "the same, mirrored forget images too": {"split": mirrored},
        "the same, mirrored forget images too, epochs 12": {"split": mirrored, "epochs": 12},
    }
    for kind, e in _cifar_experiments(place):
        begin = {"seed": e.seed, "compute": Compute(place.device)}
        retrained = cache(lambda e=e: [e.retrain(e.seed).model])
        brief = cache(lambda e=e, begin=begin: e.benchmark.train_briefly(e.original, e.task.train, **begin))
        tried: dict[str, Callable[[], Any]] = {"original": partial(e.run, "original"), "unweave, erase": e.run}
        for variant, values in aimed.items():
            tried[variant] = partial(e.run, goal="retrain", reference=brief, **values)
        for variant, run in tried.items():
            cell = {"variant": variant, "forget": kind, "seed": e.seed}
            yield cell, lambda e=e, run=run, retrained=retrained: e.scores(run(), retrained=retrained())


def _cifar_experiments(place: Place) -> Iterator[tuple[str, Experiment]]:
    if place.originals is None:
        raise UsageError(
            "This table needs --originals, the folder of a study of cifar100-resnet18 with --option size=64."
        )
    weights = place.originals / "models" / "original.seed-0.safetensors"
    for kind in CIFAR:
        benchmark = find_benchmark("cifar100-resnet18", data=place.data, options={"size": 64, "forget": kind})
        original = load_weights(benchmark.initial(0), weights).eval()
        yield kind, Experiment(benchmark, benchmark.load(), 0, original, place.device)


def few(place: Place) -> Trials:
    """Few adjacent samples: they make few batches, and so few steps unless there is a minimum."""
    for seed in SEEDS:
        benchmark = find_benchmark("digits")
        task = benchmark.load()
        e = Experiment(benchmark, task, seed, benchmark.train(task, seed=seed, device="cpu", progress=False))
        for count, least in itertools.product((20, 60, 150, len(task.train.adjacent)), (0, 50, 90)):
            run = partial(e.run, split=partial(with_few, count), epochs=6, least_steps=least)
            cell = {"variant": f"{count} adjacent samples, {least} steps at least", "forget": 9, "seed": seed}
            yield cell, lambda e=e, run=run: e.scores(run())


def with_few(count: int, split: Split) -> Split:
    """Return the split with the first ``count`` adjacent samples only."""
    return Split(split.samples, split.forget, split.adjacent[:count], split.remote)


def references(place: Place) -> Trials:
    """Estimates of a retrained model's forget losses; a fifth of the training part is held out."""
    yield from _references("digits", list(range(10)), place.data)


def fashion(place: Place) -> Trials:
    """Some of these estimates on a small part of Fashion-MNIST."""
    short = ("retrained with another seed", "original", "unweave, erase", "aim at held-out adjacent data")
    longer = tuple(f"aim at a training of {n} of 8 epochs" for n in (1, 2))
    yield from _references("fashion-mnist", ["sandal", "coat"], place.data, only=(*short, *longer))


def _references(name: str, forget: Sequence[Any], data: str | None, *, only: Sequence[str] = ()) -> Trials:
    for seed in SEEDS:
        original = None
        for kind in forget:
            benchmark = find_benchmark(name, data=data, options={"forget": kind})
            if name == "fashion-mnist":
                benchmark = dataclasses.replace(benchmark, settings={"unweave": {"default": SMALLER_SETTINGS}})
            task, held = carve(benchmark.load(), most=None if name == "digits" else SMALLER)
            original = original or benchmark.train(task, seed=seed, device="cpu", progress=False)
            for variant, run in reference_variants(Experiment(benchmark, task, seed, original), held).items():
                if not only or variant in only:
                    yield {"variant": variant, "forget": kind, "seed": seed}, run


def reference_variants(e: Experiment, held: Split) -> dict[str, Callable[[], Row]]:
    """Return runs that aim at every estimate, and the references to compare them with."""
    train, whole = e.task.train, e.benchmark.recipe.epochs
    retrained = cache(lambda: [e.retrain(e.seed).model, e.retrain(e.seed + 100).model])
    brief = cache(lambda epochs: e.retrain(e.seed + 200, epochs))

    def aim(guess: Any, *, cost: int = 0, **values: Any) -> Row:
        bench = Workbench(e.original, train, device=CPU)
        losses = reference_losses(guess, bench, bench.batches("forget", size=512))
        row = e.scores(e.run(goal="retrain", reference=guess, **values), retrained=retrained())
        apart = [squared_wasserstein(losses, e.losses(model, train, "forget")).sqrt() for model in retrained()]
        return row | {"guess_w2": float(torch.stack(apart).mean()), "gradients": row["gradients"] + cost}

    def relapse() -> Row:
        back = e.run("ft", model=e.run().model, optimizer="adam", learning_rate=1e-3, momentum=0.0, epochs=3)
        return aim(e.losses(back.model, train, "forget"))

    def briefly(epochs: int, **values: Any) -> Row:
        return aim(brief(epochs).model, cost=brief(epochs).cost.sample_gradients, **values)

    def scores(run: Callable[[], Any]) -> Row:
        return e.scores(run(), retrained=retrained())

    return {
        "retrained with another seed": lambda: scores(lambda: e.retrain(e.seed + 300)),
        "original": lambda: scores(lambda: e.run("original")),
        "two-stage": lambda: scores(lambda: e.run("two-stage")),
        "fine-tuning": lambda: scores(lambda: e.run("ft")),
        "unweave, erase": lambda: scores(e.run),
        "aim at held-out adjacent data": lambda: aim(held),
        "aim at held-out forget data": lambda: aim(e.losses(e.original, held, "forget")),
        "aim at both of these": lambda: aim(e.losses(e.original, held, "forget", "adjacent")),
        "aim at what comes back after erase and fine-tuning": relapse,
        **{f"aim at a training of {n} of {whole} epochs": partial(briefly, n) for n in (1, 2, 3, 5)},
        "the same, 3 epochs, by rank": lambda: briefly(3, pairing="rank"),
        "the same, 3 epochs, by rank, its sureness left as it is": lambda: aim(
            e.losses(brief(3).model, train, "forget"), cost=brief(3).cost.sample_gradients
        ),
        "aim at a retrained model": lambda: aim(e.retrain(e.seed + 300).model),
    }


def dial(place: Place) -> Trials:
    """Between the goals, for a digit that a retrained model hardly recognises and one that it mostly does."""
    for digit, seed in itertools.product((9, 3), SEEDS):
        benchmark = find_benchmark("digits", options={"forget": digit})
        task = benchmark.load()
        e = Experiment(benchmark, task, seed, benchmark.train(task, seed=seed, device="cpu", progress=False))
        retrained = [e.retrain(seed).model]
        brief = benchmark.train_briefly(e.original, task.train, seed=seed, device="cpu")
        for value in DIALS:
            run = partial(e.run, goal="retrain", dial=value, reference=lambda brief=brief: brief)
            cell = {"variant": f"forget {digit}, dial {value:g}", "forget": digit, "seed": seed}
            yield cell, lambda e=e, run=run, retrained=retrained: e.scores(run(), retrained=retrained)


def carve(task: BenchmarkTask, *, most: int | None) -> tuple[BenchmarkTask, Split]:
    """Return the task without a fifth of each fine class of the training part, and a split with that fifth.

    At most ``most`` samples of each class are used.
    """
    fine, generator = np.array(task.fine), np.random.default_rng(0)
    side = np.full(len(fine), -1)
    for kind in np.unique(fine):
        rows = generator.permutation(np.flatnonzero(fine == kind))[:most]
        side[rows] = 0
        side[rows[: round(HELD_OUT * len(rows))]] = 1
    kept, held = (
        Split(task.train.samples, *(task.train[subset][side[task.train[subset]] == part] for subset in SUBSETS))
        for part in (0, 1)
    )
    return dataclasses.replace(task, train=kept), held
