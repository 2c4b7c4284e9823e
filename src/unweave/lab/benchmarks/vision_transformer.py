"""The network, the recipe and the methods' settings of benchmarks with a vision transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from unweave.lab.benchmarks import networks
from unweave.lab.benchmarks.benchmark import Benchmark, BenchmarkTask, MethodSettings, Options
from unweave.lab.benchmarks.images import PixelClassifier
from unweave.lab.benchmarks.small import RECIPE, small_settings
from unweave.methods import DescentSettings
from unweave.settings import setting


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(Options):
    """The options of a benchmark with a vision transformer."""

    model: str = setting(
        networks.SCRATCH,
        help="scratch: a small one with random weights, at the images' own size. Or pretrained, at 224 px: a "
        "transformers folder or Hub name, timm:NAME, torchvision:NAME, or MODULE:FUNCTION.",
    )


def transformer_benchmark(
    name: str,
    options: TransformerOptions,
    data: str | None,
    *,
    load: Callable[[], BenchmarkTask],
    about_data: str,
    classes: int,
    size: int,
    patch: int,
    settings: MethodSettings,
) -> Benchmark:
    """Return a benchmark with a vision transformer over images of ``size`` px."""
    recipe = transformer_recipe(options.model)
    if options.small:
        make = partial(networks.vision_transformer, classes=classes, size=size, patch=size // 4, width=48, depth=2)
        network = networks.Network(lambda: PixelClassifier(make(), size=size), "random")
        model, recipe, settings = "vision transformer, 2 layers of 48", RECIPE, small_settings()
    elif options.model == networks.SCRATCH:
        make = partial(networks.vision_transformer, classes=classes, size=size, patch=patch)
        network = networks.Network(lambda: PixelClassifier(make(), size=size, augment=True), "random")
        model = f"vision transformer, 9 layers of 192, patches of {patch} px, images of {size} px"
    else:
        given = networks.image_network(options.model, classes=classes, data=data)
        network = networks.Network(lambda: PixelClassifier(given.make(), size=224), given.initialisation)
        model = f"{options.model}, images enlarged to 224 px"
    return Benchmark(
        name=name,
        load=load,
        model=network.make,
        recipe=recipe,
        settings=settings,
        notes={"data": about_data, "model": model, "initialisation": network.initialisation},
    )


def transformer_recipe(source: str) -> DescentSettings:
    """Return the training recipe: from scratch, or the paper's for pretrained weights."""
    if source == networks.SCRATCH:
        return DescentSettings(
            optimizer="adamw", learning_rate=1e-3, weight_decay=0.05, schedule="warm-up", epochs=60, batch_size=256
        )
    return DescentSettings(optimizer="adamw", learning_rate=2.5e-5, weight_decay=0.05, epochs=30, batch_size=128)


# The values that the paper prints and the release uses for its vision transformer (on Tiny-ImageNet).
STAGE1 = {"stage1_learning_rate": 5e-5, "stage1_forget_batch": 64}
RELEASED = {
    **STAGE1,
    "stage2_learning_rate": 2e-4,
    "stage2_epochs": 5,
    "stage2_adjacent_batch": 256,
    "stage2_forget_batches": 1,
    "stage2_remote_batches": 1,
}
PRINTED = {**RELEASED, "stage2_epochs": 6, "stage2_adjacent_batch": 128}


# The authors' algorithms. SCRUB's step size is for a convolutional network and too large for a transformer. To forget a
# part of a class with a transformer, SSD's authors select with 25.
FOR_TRANSFORMERS = {"scrub": {"learning_rate": 1e-4, "weight_decay": 0.0}, "ssd": {"selection": 25.0}}


def transformer_settings() -> MethodSettings:
    """Return the settings of every method."""
    return {
        "two-stage": {"released": RELEASED, "paper": PRINTED},
        "pgd": {"released": RELEASED, "paper": PRINTED},
        "ft": {"paper": {"learning_rate": 5e-5}, "released": {"learning_rate": 5e-5}},
        "ga": {
            profile: {"optimizer": "adam", "learning_rate": 1.5e-6, "epochs": 10} for profile in ("paper", "released")
        },
        "l1-sparse": {
            profile: {"optimizer": "adam", "learning_rate": 2e-5, "momentum": 0.0, "sparsity": 2e-4, "epochs": 10}
            for profile in ("paper", "released")
        },
        "scrub": {
            "official": FOR_TRANSFORMERS["scrub"],
            "paper": {"learning_rate": 1e-4},
            "released": {
                "learning_rate": 5e-5,
                "loss_weight": 0.5,
                "epoch_decay": 0.3,
                "epochs": 5,
                "forget_batch": 128,
            },
        },
        "ssd": {
            "official": FOR_TRANSFORMERS["ssd"],
            "released": {"selection": 1.0, "dampening": 10.0, "order": "dataset"},
        },
        "salun": {
            "paper": {"learning_rate": 2e-5, "epochs": 2},
            "released": {"learning_rate": 2e-5, "remote_weight": 1.0, "batch_size": 128, "forget_batch": 128},
        },
        "munba": {"released": {"learning_rate": 1e-3}},
    }
