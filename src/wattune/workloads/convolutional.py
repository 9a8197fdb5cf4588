"""Convolutional networks from their shapes: ResNet (He et al. 2016, with the stride in the 3×3 convolution) and VGG
(Simonyan and Zisserman 2015), on images of 224×224."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.workloads.operation import Operation

IMAGE = 224
CLASSES = 1000

_RESNET_BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet50": (3, 4, 6, 3),
    "resnet152": (3, 8, 36, 3),
}
_VGG_STAGES = {
    "vgg16": ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)),
    "vgg19": ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)),
}


@dataclass(frozen=True, slots=True)
class _Image:
    """Channels and side length of what flows through the network."""

    channels: int
    side: int

    @property
    def elements(self) -> int:
        return self.channels * self.side * self.side


def resnet(name: str) -> tuple[Operation, ...]:
    """The operations of a ResNet for one image."""
    blocks = _RESNET_BLOCKS[name]
    bottleneck = name != "resnet18"
    stem, image = _conv("stem/conv", _Image(3, IMAGE), 64, kernel=7, stride=2)
    operations = [stem, _norm("stem/norm", image), _relu("stem/relu", image)]
    pool, image = _pool("stem/pool", image)
    operations.append(pool)
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            made, image = _block(f"stage{stage + 1}/block{block + 1}", image, width, stride, bottleneck)
            operations += made
    mean = Operation(name="head/mean", flops=image.elements, reads=image.elements, writes=image.channels)
    return (*operations, mean, _linear("head/linear", image.channels, CLASSES))


def _block(name: str, image: _Image, width: int, stride: int, bottleneck: bool) -> tuple[list[Operation], _Image]:
    """A residual block: its convolutions with norm and activation, the shortcut, and the sum."""
    outgoing = 4 * width if bottleneck else width
    plan = [(width, 1, 1), (width, 3, stride), (outgoing, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
    operations, inside = [], image
    for index, (channels, kernel, step) in enumerate(plan):
        conv, inside = _conv(f"{name}/conv{index + 1}", inside, channels, kernel=kernel, stride=step)
        operations += [conv, _norm(f"{name}/norm{index + 1}", inside)]
        if index < len(plan) - 1:
            operations.append(_relu(f"{name}/relu{index + 1}", inside))
    if image.channels != outgoing or stride != 1:
        shortcut, _ = _conv(f"{name}/shortcut", image, outgoing, kernel=1, stride=stride)
        operations += [shortcut, _norm(f"{name}/shortcut-norm", inside)]
    total = Operation(
        name=f"{name}/add",
        flops=inside.elements,
        reads=2 * inside.elements,
        writes=inside.elements,
        backward_passes=1.0,
    )
    return [*operations, total, _relu(f"{name}/relu", inside)], inside


def vgg(name: str) -> tuple[Operation, ...]:
    """The operations of a VGG for one image; its convolutions carry biases and no norms."""
    operations: list[Operation] = []
    image = _Image(3, IMAGE)
    for stage, (channels, count) in enumerate(_VGG_STAGES[name]):
        for index in range(count):
            where = f"stage{stage + 1}/conv{index + 1}"
            conv, image = _conv(where, image, channels, kernel=3, stride=1, bias=True)
            operations += [conv, _relu(f"{where}-relu", image)]
        pool, image = _pool(f"stage{stage + 1}/pool", image, kernel=2)
        operations.append(pool)
    for index, (inputs, outputs) in enumerate(((image.elements, 4096), (4096, 4096), (4096, CLASSES))):
        operations.append(_linear(f"head/linear{index + 1}", inputs, outputs))
    return tuple(operations)


def _conv(
    name: str, image: _Image, channels: int, *, kernel: int, stride: int, bias: bool = False
) -> tuple[Operation, _Image]:
    outgoing = _Image(channels, -(-image.side // stride))
    weights = kernel * kernel * image.channels * channels
    operation = Operation(
        name=name,
        flops=2.0 * weights * outgoing.side**2,
        reads=image.elements,
        writes=outgoing.elements,
        parameters=weights + (channels if bias else 0),
        multiplies=True,
    )
    return operation, outgoing


def _linear(name: str, inputs: int, outputs: int) -> Operation:
    return Operation(
        name=name,
        flops=2.0 * inputs * outputs,
        reads=inputs,
        writes=outputs,
        parameters=inputs * outputs + outputs,
        multiplies=True,
    )


def _norm(name: str, image: _Image) -> Operation:
    """Batch norm: read for the statistics, read again and written; backward reads four times and writes once."""
    return Operation(
        name=name,
        flops=8.0 * image.elements,
        reads=2 * image.elements,
        writes=image.elements,
        parameters=2 * image.channels,
        backward_passes=5 / 3,
    )


def _relu(name: str, image: _Image) -> Operation:
    """Backward reads the gradient and the output and writes the gradient: 3 transfers for 2."""
    return Operation(name=name, flops=image.elements, reads=image.elements, writes=image.elements, backward_passes=1.5)


def _pool(name: str, image: _Image, *, kernel: int = 3) -> tuple[Operation, _Image]:
    """Maximum over windows that halve the side."""
    outgoing = _Image(image.channels, image.side // 2)
    operation = Operation(
        name=name,
        flops=float(kernel * kernel * outgoing.elements),
        reads=image.elements,
        writes=outgoing.elements,
        backward_passes=1.0,
    )
    return operation, outgoing
