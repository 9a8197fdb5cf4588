"""Networks on images, built layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.workloads.operation import NetworkOp, dense, elementwise

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
        """Return the result of a window; without a given padding the size stays the same at stride 1."""
        (high, wide), (down, right) = _both(kernel), _both(stride)
        above, beside = ((high - 1) // 2, (wide - 1) // 2) if padding is None else _both(padding)
        return Image(
            channels, (self.height + 2 * above - high) // down + 1, (self.width + 2 * beside - wide) // right + 1
        )


class ImageLayers:
    """The operations of a network so far, and the image that they result in; methods append one layer each."""

    def __init__(self, image: Image, operations: list[NetworkOp] | None = None) -> None:
        self.image = image
        self.operations: list[NetworkOp] = [] if operations is None else operations

    def beside(self, image: Image) -> ImageLayers:
        """Begin a parallel branch of the same network on an image."""
        return ImageLayers(image, self.operations)

    def complete(self) -> tuple[NetworkOp, ...]:
        """Return all operations; the first has half the backward pass, since the data needs no gradient."""
        first, *others = self.operations
        return (replace(first, backward_passes=1.0), *others)

    def conv(
        self,
        name: str,
        channels: int,
        *,
        kernel: Pair,
        stride: Pair = 1,
        padding: Pair | None = None,
        groups: int = 1,
        bias: bool = False,
    ) -> ImageLayers:
        """Append a convolution; tensor cores are not used for one whose groups are single channels."""
        outgoing = self.image.shrunk(channels, kernel=kernel, stride=stride, padding=padding)
        high, wide = _both(kernel)
        weights = high * wide * self.image.channels // groups * channels
        operation = NetworkOp(
            name=name,
            flops=2.0 * weights * outgoing.height * outgoing.width,
            reads=self.image.elements,
            writes=outgoing.elements,
            parameters=weights + (channels if bias else 0),
            multiplies=groups == 1,
        )
        return self._append(operation, outgoing)

    def conv_norm_relu(
        self,
        name: str,
        channels: int,
        *,
        kernel: Pair,
        stride: Pair = 1,
        padding: Pair | None = None,
        number: int | str = "",
    ) -> ImageLayers:
        """Append a convolution without bias, its batch norm and its activation."""
        self.conv(f"{name}/conv{number}", channels, kernel=kernel, stride=stride, padding=padding)
        return self.norm(f"{name}/norm{number}").relu(f"{name}/relu{number}")

    def norm(self, name: str) -> ImageLayers:
        """Append a batch norm: forward reads twice (statistics first) and writes; backward reads 4 times and writes."""
        elements, channels = self.image.elements, self.image.channels
        return self._append(
            elementwise(name, elements, flops=8.0, inputs=2, parameters=2 * channels, backward_passes=5 / 3)
        )

    def relu(self, name: str) -> ImageLayers:
        """Append an activation."""
        return self._append(elementwise(name, self.image.elements))

    def add(self, name: str) -> ImageLayers:
        """Append the sum with another image."""
        return self._append(elementwise(name, self.image.elements, inputs=2, backward_passes=1.0))

    def copied(self, name: str, channels: int | None = None) -> ImageLayers:
        """Append a copy: concatenated with others to so many channels, or with its channels shuffled."""
        image = self.image if channels is None else replace(self.image, channels=channels)
        return self._append(elementwise(name, image.elements, flops=0.0, backward_passes=1.0), image)

    def pool(self, name: str, *, kernel: int, stride: int = 2, padding: Pair | None = None) -> ImageLayers:
        """Append a maximum or mean over windows."""
        outgoing = self.image.shrunk(self.image.channels, kernel=kernel, stride=stride, padding=padding)
        operation = NetworkOp(
            name=name,
            flops=float(kernel * kernel * outgoing.elements),
            reads=self.image.elements,
            writes=outgoing.elements,
            backward_passes=1.0,
        )
        return self._append(operation, outgoing)

    def mean(self, name: str) -> ImageLayers:
        """Append the mean over all positions, one number per channel."""
        elements, channels = self.image.elements, self.image.channels
        operation = NetworkOp(name=name, flops=elements, reads=elements, writes=channels, backward_passes=1.0)
        return self._append(operation, Image.square(channels, 1))

    def dense(self, name: str, outputs: int) -> ImageLayers:
        """Append a dense layer with bias on all elements."""
        return self._append(dense(name, self.image.elements, outputs), Image.square(outputs, 1))

    def _append(self, operation: NetworkOp, image: Image | None = None) -> ImageLayers:
        self.operations.append(operation)
        self.image = image or self.image
        return self


def _both(pair: Pair) -> tuple[int, int]:
    return (pair, pair) if isinstance(pair, int) else pair
