"""Layers on images: each function returns the operation and, where it changes, the resulting image."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.workloads.operation import NetworkOp, elementwise

Pair = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Image:
    """Channels, height and width of an activation."""

    channels: int
    height: int
    width: int

    @classmethod
    def square(cls, channels: int, side: int) -> Image:
        return cls(channels, side, side)

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width

    def shrunk(self, channels: int, *, kernel: Pair, stride: Pair, padding: Pair | None) -> Image:
        """The result of a window; without a given padding the size stays the same at stride 1."""
        (high, wide), (down, right) = _both(kernel), _both(stride)
        above, beside = ((high - 1) // 2, (wide - 1) // 2) if padding is None else _both(padding)
        return Image(
            channels, (self.height + 2 * above - high) // down + 1, (self.width + 2 * beside - wide) // right + 1
        )


def conv(
    name: str,
    image: Image,
    channels: int,
    *,
    kernel: Pair,
    stride: Pair = 1,
    padding: Pair | None = None,
    groups: int = 1,
    bias: bool = False,
) -> tuple[NetworkOp, Image]:
    """Make a convolution; tensor cores are not used for one whose groups are single channels."""
    outgoing = image.shrunk(channels, kernel=kernel, stride=stride, padding=padding)
    high, wide = _both(kernel)
    weights = high * wide * image.channels // groups * channels
    operation = NetworkOp(
        name=name,
        flops=2.0 * weights * outgoing.height * outgoing.width,
        reads=image.elements,
        writes=outgoing.elements,
        parameters=weights + (channels if bias else 0),
        multiplies=groups == 1,
    )
    return operation, outgoing


def conv_norm_relu(
    name: str,
    image: Image,
    channels: int,
    *,
    kernel: Pair,
    stride: Pair = 1,
    padding: Pair | None = None,
) -> tuple[list[NetworkOp], Image]:
    """Make a convolution without bias, its batch norm and its activation."""
    first, outgoing = conv(f"{name}/conv", image, channels, kernel=kernel, stride=stride, padding=padding)
    return [first, norm(f"{name}/norm", outgoing), relu(f"{name}/relu", outgoing)], outgoing


def norm(name: str, image: Image) -> NetworkOp:
    """Make a batch norm: forward reads twice (statistics first) and writes; backward reads four times and writes."""
    return elementwise(name, image.elements, flops=8.0, inputs=2, parameters=2 * image.channels, backward_passes=5 / 3)


def relu(name: str, image: Image) -> NetworkOp:
    """Make an activation."""
    return elementwise(name, image.elements)


def add(name: str, image: Image) -> NetworkOp:
    """Make the sum of two images."""
    return elementwise(name, image.elements, inputs=2, backward_passes=1.0)


def copied(name: str, image: Image) -> NetworkOp:
    """Make a copy of the image: concatenated with others, or with its channels shuffled."""
    return elementwise(name, image.elements, flops=0.0, backward_passes=1.0)


def pool(
    name: str, image: Image, *, kernel: int, stride: int = 2, padding: Pair | None = None
) -> tuple[NetworkOp, Image]:
    """Make a maximum or mean over windows."""
    outgoing = image.shrunk(image.channels, kernel=kernel, stride=stride, padding=padding)
    operation = NetworkOp(
        name=name,
        flops=float(kernel * kernel * outgoing.elements),
        reads=image.elements,
        writes=outgoing.elements,
        backward_passes=1.0,
    )
    return operation, outgoing


def mean(name: str, image: Image) -> NetworkOp:
    """Make the mean over all positions, one number per channel."""
    return NetworkOp(name=name, flops=image.elements, reads=image.elements, writes=image.channels, backward_passes=1.0)


def _both(pair: Pair) -> tuple[int, int]:
    return (pair, pair) if isinstance(pair, int) else pair
