"""Convolutional networks from their shapes: ResNet (He et al. 2016, with the stride in the 3×3 convolution) and VGG
(Simonyan and Zisserman 2015), on images of 224×224."""

from __future__ import annotations

from wattune.workloads.image_layers import Image, add, conv, linear, mean, norm, pool, relu
from wattune.workloads.operation import Operation, first_layer

IMAGE = 224
CLASSES = 1000

_RESNET_BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
_VGG_STAGES = {
    "vgg16": ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)),
    "vgg19": ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)),
}


def resnet(name: str, *, image: Image | None = None) -> tuple[Operation, ...]:
    """The operations of a ResNet for one image, of 224×224 unless another is given."""
    blocks = _RESNET_BLOCKS[name]
    bottleneck = name != "resnet18"
    stem, image = conv("stem/conv", image or Image.square(3, IMAGE), 64, kernel=7, stride=2)
    operations = [first_layer(stem), norm("stem/norm", image), relu("stem/relu", image)]
    shrink, image = pool("stem/pool", image, kernel=3)
    operations.append(shrink)
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            made, image = _block(f"stage{stage + 1}/block{block + 1}", image, width, stride, bottleneck)
            operations += made
    return (*operations, mean("head/mean", image), linear("head/linear", image.channels, CLASSES))


def _block(name: str, image: Image, width: int, stride: int, bottleneck: bool) -> tuple[list[Operation], Image]:
    """A residual block: its convolutions with norm and activation, the shortcut, and the sum."""
    outgoing = 4 * width if bottleneck else width
    plan = [(width, 1, 1), (width, 3, stride), (outgoing, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
    operations, inside = [], image
    for index, (channels, kernel, step) in enumerate(plan):
        layer, inside = conv(f"{name}/conv{index + 1}", inside, channels, kernel=kernel, stride=step)
        operations += [layer, norm(f"{name}/norm{index + 1}", inside)]
        if index < len(plan) - 1:
            operations.append(relu(f"{name}/relu{index + 1}", inside))
    if image.channels != outgoing or stride != 1:
        shortcut, _ = conv(f"{name}/shortcut", image, outgoing, kernel=1, stride=stride)
        operations += [shortcut, norm(f"{name}/shortcut-norm", inside)]
    return [*operations, add(f"{name}/add", inside), relu(f"{name}/relu", inside)], inside


def vgg(name: str) -> tuple[Operation, ...]:
    """The operations of a VGG for one image; its convolutions carry biases and no norms."""
    operations: list[Operation] = []
    image = Image.square(3, IMAGE)
    for stage, (channels, count) in enumerate(_VGG_STAGES[name]):
        for index in range(count):
            where = f"stage{stage + 1}/conv{index + 1}"
            layer, image = conv(where, image, channels, kernel=3, bias=True)
            operations += [layer, relu(f"{where}-relu", image)]
        shrink, image = pool(f"stage{stage + 1}/pool", image, kernel=2)
        operations.append(shrink)
    for index, (inputs, outputs) in enumerate(((image.elements, 4096), (4096, 4096), (4096, CLASSES))):
        operations.append(linear(f"head/linear{index + 1}", inputs, outputs))
    return (first_layer(operations[0]), *operations[1:])
