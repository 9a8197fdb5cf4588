"""Layers on images, each as the operation it is and the image that comes out."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.workloads.operation import NetworkOp

Pair = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Image:
    """Channels, height and width of what flows through the network."""

    channels: int
    height: int
    width: int

    @classmethod
    def square(cls, channels: int, side: int) -> Image:
        """An image as high as it is wide."""
        return cls(channels, side, side)

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return self.channels * self.height * self.width

    def shrunk(self, channels: int, *, kernel: Pair, stride: Pair, padding: Pair | None) -> Image:
        """What a window leaves of it; no padding given keeps the size at stride 1."""
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
    """A convolution; tensor cores have no use for one whose groups are single channels."""
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
    """A convolution without bias, its batch norm and its activation."""
    first, outgoing = conv(f"{name}/conv", image, channels, kernel=kernel, stride=stride, padding=padding)
    return [first, norm(f"{name}/norm", outgoing), relu(f"{name}/relu", outgoing)], outgoing


def linear(name: str, inputs: int, outputs: int) -> NetworkOp:
    """A dense layer with bias."""
    return NetworkOp(
        name=name,
        flops=2.0 * inputs * outputs,
        reads=inputs,
        writes=outputs,
        parameters=inputs * outputs + outputs,
        multiplies=True,
    )


def norm(name: str, image: Image) -> NetworkOp:
    """Batch norm: read for the statistics, read again and written; backward reads four times and writes once."""
    return NetworkOp(
        name=name,
        flops=8.0 * image.elements,
        reads=2 * image.elements,
        writes=image.elements,
        parameters=2 * image.channels,
        backward_passes=5 / 3,
    )


def relu(name: str, image: Image) -> NetworkOp:
    """Backward reads the gradient and the output and writes the gradient: 3 transfers for 2."""
    return NetworkOp(name=name, flops=image.elements, reads=image.elements, writes=image.elements, backward_passes=1.5)


def add(name: str, image: Image) -> NetworkOp:
    """The sum of two images."""
    return NetworkOp(
        name=name,
        flops=image.elements,
        reads=2 * image.elements,
        writes=image.elements,
        backward_passes=1.0,
    )


def copied(name: str, image: Image) -> NetworkOp:
    """The image moved: concatenated with others, or its channels shuffled."""
    return NetworkOp(name=name, reads=image.elements, writes=image.elements, backward_passes=1.0)


def pool(
    name: str, image: Image, *, kernel: int, stride: int = 2, padding: Pair | None = None
) -> tuple[NetworkOp, Image]:
    """Maximum or mean over windows."""
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
    """The mean over all places, one number per channel."""
    return NetworkOp(name=name, flops=image.elements, reads=image.elements, writes=image.channels, backward_passes=1.0)


def _both(pair: Pair) -> tuple[int, int]:
    return (pair, pair) if isinstance(pair, int) else pair
