"""Networks written out by hand in PyTorch, to hold a trace against the shapes that wattune counts by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images), inplace=True)


def resnet50() -> nn.Module:
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    layers: list[nn.Module] = [*stem]
    inputs = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            layers.append(Bottleneck(inputs, 64 * 2**stage, 2 if stage and not block else 1))
            inputs = 256 * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int, *, head_width: int, bias: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.key_heads, self.head_width, self.causal = heads, key_heads, head_width, causal
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * head_width, bias=bias)
        self.out = nn.Linear(heads * head_width, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        projected = self.qkv(hidden).view(batch, length, -1, self.head_width).transpose(1, 2)
        query, key, value = projected.split((self.heads, self.key_heads, self.key_heads), dim=1)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal, enable_gqa=self.heads != self.key_heads
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    """A layer of BERT (norms after the sums) or of GPT-2 (norms before)."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, heads, head_width=width // heads, bias=True, causal=causal)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.causal = causal

    def forward(self, hidden: Tensor) -> Tensor:
        if self.causal:
            hidden = hidden + self.attention(self.norm1(hidden))
            return hidden + self.inner(self.norm2(hidden))
        hidden = self.norm1(hidden + self.attention(hidden))
        return self.norm2(hidden + self.inner(hidden))


class LanguageModel(nn.Module):
    """BERT with its dense layer, or GPT-2; both project to the vocabulary with the embedding's weights."""

    def __init__(self, *, layers: int, width: int, heads: int, vocabulary: int, positions: int, causal: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.segments = None if causal else nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.dense = None if causal else nn.Linear(width, width)
        self.layers = nn.ModuleList(Layer(width, heads, causal=causal) for _ in range(layers))
        self.causal = causal

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        if self.segments is not None:
            hidden = self.norm(hidden + self.segments(torch.zeros_like(tokens)))
        for layer in self.layers:
            hidden = layer(hidden)
        hidden = self.norm(hidden) if self.dense is None else self.dense(hidden)
        scores = hidden @ self.tokens.weight.T
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


class RootMeanSquare(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, 8, head_width=128, bias=False, causal=True)
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)
        self.up, self.gate = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.norm1(hidden))
        normed = self.norm2(hidden)
        return hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """Without rotated positions, which have neither weights nor products."""

    def __init__(self, *, layers: int, width: int, heads: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, inner) for _ in range(layers))
        self.norm = RootMeanSquare(width)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        scores = self.norm(hidden) @ self.tokens.weight.T
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = channels
        layers.append(nn.MaxPool2d(2))
    dense = (nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))
    return nn.Sequential(*layers, nn.Flatten(), *dense)


class RecurrentModel(nn.Module):
    """The large LSTM language model."""

    def __init__(self, width: int = 1500, vocabulary: int = 10_000) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.head(self.lstm(self.tokens(tokens))[0])
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
