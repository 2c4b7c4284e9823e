"""The nine network families: plain torch modules, small enough for one core."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.strangers.data import LONGEST, WORDS


def mlp(inputs: int, classes: int, width: int = 128) -> nn.Module:
    """Return a perceptron with two hidden layers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


def cnn(channels: int, size: int, classes: int, width: int = 12, *, norm: bool = False) -> nn.Module:
    """Return a convolutional network of three layers, with BatchNorm or without."""
    layers: list[nn.Module] = []
    for number in range(3):
        wider = width * 2**number
        layers.append(nn.Conv2d(channels, wider, 3, padding=1))
        layers += [nn.BatchNorm2d(wider)] if norm else []
        layers += [nn.ReLU(), *([nn.MaxPool2d(2)] if number < 2 else [])]
        channels = wider
    side = size // 4
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(channels * side * side, 64), nn.ReLU(), nn.Linear(64, classes)
    )


class ResidualBlock(nn.Module):
    """Two convolutions with BatchNorm, and a way around them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wider),
        )
        same = stride == 1 and channels == wider
        self.around = nn.Identity() if same else nn.Conv2d(channels, wider, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features."""
        return functional.relu(self.body(images) + self.around(images))


def resnet(channels: int, classes: int, width: int = 12) -> nn.Module:
    """Return a small residual network, with a stem that halves the images."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        ResidualBlock(width, width, 1),
        ResidualBlock(width, 2 * width, 2),
        ResidualBlock(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


class Attention(nn.Module):
    """A transformer's layer: attention, then a perceptron, both around a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the tokens after the layer."""
        normed = self.before(tokens)
        parts = (layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self._projections)
        seen = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        tokens = tokens + self.out(seen.transpose(1, 2).flatten(2))
        more: Tensor = self.down(functional.gelu(self.up(self.between(tokens))))
        return tokens + more

    @property
    def _projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.queries, self.keys, self.values


class VisionTransformer(nn.Module):
    """A vision transformer: patches, attention, the mean of all tokens."""

    def __init__(self, channels: int, size: int, classes: int, *, patch: int, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.layers = nn.ModuleList(Attention(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            tokens = layer(tokens)
        scores: Tensor = self.head(self.norm(tokens).mean(1))
        return scores


class Bag(nn.Module):
    """The mean of the words' embeddings, and a perceptron."""

    def __init__(self, classes: int, width: int = 48) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, classes))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        scores: Tensor = self.layers(mean_of_words(self.words(ids), ids))
        return scores


class Recurrent(nn.Module):
    """A gated recurrent network over the words; the mean of its states is classified."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.states = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        scores: Tensor = self.head(mean_of_words(self.states(self.words(ids))[0], ids))
        return scores


class Encoder(nn.Module):
    """A small transformer encoder over the words."""

    def __init__(self, classes: int, width: int = 48, depth: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        self.layers = nn.ModuleList(Attention(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        tokens = self.words(ids) + self.places[: ids.shape[1]]
        mask = (ids > 0)[:, None, None, :]
        for layer in self.layers:
            tokens = layer(tokens, mask)
        scores: Tensor = self.head(mean_of_words(self.norm(tokens), ids))
        return scores


def adapted(base: Encoder, classes: int, rank: int = 8) -> nn.Module:
    """Return a trained encoder with LoRA adapters and a new head; its own weights stay."""
    import peft

    base.head = nn.Linear(base.head.in_features, classes)
    linear = ["queries", "keys", "values", "out", "up", "down"]
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear, modules_to_save=["head"])
    model: nn.Module = peft.get_peft_model(base, config)  # type: ignore[arg-type]
    return model


def mean_of_words(tokens: Tensor, ids: Tensor) -> Tensor:
    """Return the mean of the tokens that are words, not padding."""
    real = (ids > 0).unsqueeze(-1)
    return (tokens * real).sum(1) / real.sum(1).clamp(min=1)
