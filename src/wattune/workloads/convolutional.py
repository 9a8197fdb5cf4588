"""Convolutional networks from their shapes, on images of 224×224 unless another size is given.

ResNet (He et al. 2016, with the stride in the 3×3 convolution), VGG (Simonyan and Zisserman 2015), ShuffleNetV2 at
width 1× (Ma et al. 2018, table 5: little arithmetic, many small kernels), and Inception-v3 (Szegedy et al. 2016,
"Rethinking the Inception Architecture") on 299×299 with its auxiliary classifier, which is trained too.
"""

from __future__ import annotations

from wattune.workloads.image_layers import (
    Image,
    Pair,
    add,
    conv,
    conv_norm_relu,
    copied,
    mean,
    norm,
    pool,
    relu,
)
from wattune.workloads.operation import NetworkOp, dense, first_layer

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


def resnet(name: str, *, image: Image | None = None) -> tuple[NetworkOp, ...]:
    """Make the operations of a ResNet for one image."""
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
    return (*operations, mean("head/mean", image), dense("head/linear", image.channels, CLASSES))


def _block(name: str, image: Image, width: int, stride: int, bottleneck: bool) -> tuple[list[NetworkOp], Image]:
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


def vgg(name: str) -> tuple[NetworkOp, ...]:
    """Make the operations of a VGG for one image; its convolutions have biases and no norms."""
    operations: list[NetworkOp] = []
    image = Image.square(3, IMAGE)
    for stage, (channels, count) in enumerate(_VGG_STAGES[name]):
        for index in range(count):
            where = f"stage{stage + 1}/conv{index + 1}"
            layer, image = conv(where, image, channels, kernel=3, bias=True)
            operations += [layer, relu(f"{where}-relu", image)]
        shrink, image = pool(f"stage{stage + 1}/pool", image, kernel=2)
        operations.append(shrink)
    for index, (inputs, outputs) in enumerate(((image.elements, 4096), (4096, 4096), (4096, CLASSES))):
        operations.append(dense(f"head/linear{index + 1}", inputs, outputs))
    return (first_layer(operations[0]), *operations[1:])


_STEM, _LAST = 24, 1024
_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet2() -> tuple[NetworkOp, ...]:
    """Make the operations of ShuffleNetV2 1× for one image."""
    operations, image = conv_norm_relu("stem", Image.square(3, IMAGE), _STEM, kernel=3, stride=2)
    shrink, image = pool("stem/pool", image, kernel=3)
    operations.append(shrink)
    for stage, (channels, blocks) in enumerate(_STAGES):
        made, image = _halving(f"stage{stage + 2}/block1", image, channels // 2)
        operations += made
        for block in range(1, blocks):
            operations += _keeping(f"stage{stage + 2}/block{block + 1}", image)
    last, image = conv_norm_relu("last", image, _LAST, kernel=1)
    return (
        first_layer(operations[0]),
        *operations[1:],
        *last,
        mean("head/mean", image),
        dense("head/linear", _LAST, CLASSES),
    )


def _keeping(name: str, image: Image) -> list[NetworkOp]:
    """A block on half of the channels; the other half is passed through, and all are shuffled."""
    half = Image(image.channels // 2, image.height, image.width)
    operations, _ = _right(name, half, half.channels, stride=1)
    return [*operations, copied(f"{name}/shuffle", image)]


def _halving(name: str, image: Image, channels: int) -> tuple[list[NetworkOp], Image]:
    """A block that halves the side: two branches that together make twice the channels."""
    operations, outgoing = _depthwise(f"{name}/left", image, stride=2)
    made, outgoing = conv_norm_relu(f"{name}/left", outgoing, channels, kernel=1)
    operations += made
    made, outgoing = _right(name, image, channels, stride=2)
    operations += made
    whole = Image(2 * channels, outgoing.height, outgoing.width)
    return [*operations, copied(f"{name}/shuffle", whole)], whole


def _right(name: str, image: Image, channels: int, *, stride: int) -> tuple[list[NetworkOp], Image]:
    """1×1, then 3×3 on each channel separately, then 1×1."""
    first, image = conv_norm_relu(f"{name}/first", image, channels, kernel=1)
    middle, image = _depthwise(f"{name}/middle", image, stride=stride)
    second, image = conv_norm_relu(f"{name}/second", image, channels, kernel=1)
    return [*first, *middle, *second], image


def _depthwise(name: str, image: Image, *, stride: int) -> tuple[list[NetworkOp], Image]:
    layer, outgoing = conv(f"{name}/depthwise", image, image.channels, kernel=3, stride=stride, groups=image.channels)
    return [layer, norm(f"{name}/depthwise-norm", outgoing)], outgoing


INCEPTION_IMAGE = 299

# A branch is a sequence of convolutions, each (channels, kernel, stride); stride 2 goes without padding.
_Step = tuple[int, Pair, int]
_Branch = tuple[_Step, ...]


def inception3() -> tuple[NetworkOp, ...]:
    """Make the operations of Inception-v3 for one image."""
    operations, image = _stem()
    for name, branches, pooled in _BLOCKS:
        made, image = _inception_block(name, image, branches, pooled)
        operations += made
        if name == "block6e":
            operations += _auxiliary(image)
    return (
        first_layer(operations[0]),
        *operations[1:],
        mean("head/mean", image),
        dense("head/linear", image.channels, CLASSES),
    )


def _stem() -> tuple[list[NetworkOp], Image]:
    image = Image.square(3, INCEPTION_IMAGE)
    operations: list[NetworkOp] = []
    plan: tuple[tuple[int, int, int, Pair | None], ...] = (
        (32, 3, 2, 0),
        (32, 3, 1, 0),
        (64, 3, 1, None),
        (0, 3, 2, 0),
        (80, 1, 1, None),
        (192, 3, 1, 0),
        (0, 3, 2, 0),
    )
    for index, (channels, kernel, stride, padding) in enumerate(plan):
        name = f"stem{index + 1}"
        if channels:
            made, image = conv_norm_relu(name, image, channels, kernel=kernel, stride=stride, padding=padding)
            operations += made
        else:
            shrink, image = pool(name, image, kernel=kernel, stride=stride, padding=padding)
            operations.append(shrink)
    return operations, image


def _inception_block(
    name: str, image: Image, branches: tuple[_Branch, ...], pooled: int
) -> tuple[list[NetworkOp], Image]:
    """Parallel branches, one of them pooling to `pooled` channels (0: it halves the side), and their concatenation."""
    operations: list[NetworkOp] = []
    channels = 0
    outgoing = image
    for index, branch in enumerate(branches):
        made, outgoing = _branch(f"{name}/branch{index + 1}", image, branch)
        operations += made
        channels += outgoing.channels
    smaller = outgoing.height < image.height
    shrink, inside = pool(f"{name}/pool", image, kernel=3, stride=2 if smaller else 1, padding=0 if smaller else None)
    operations.append(shrink)
    if pooled:
        made, inside = conv_norm_relu(f"{name}/pooled", inside, pooled, kernel=1)
        operations += made
    whole = Image(channels + inside.channels, outgoing.height, outgoing.width)
    return [*operations, copied(f"{name}/join", whole)], whole


def _branch(name: str, image: Image, branch: _Branch) -> tuple[list[NetworkOp], Image]:
    """A sequence of convolutions; a 1×3 and a 3×1 at its end run in parallel."""
    operations: list[NetworkOp] = []
    outgoing = image
    for index, (channels, kernel, stride) in enumerate(branch):
        padding = 0 if stride == 2 else None
        made, image = conv_norm_relu(
            f"{name}/{index + 1}", image, channels, kernel=kernel, stride=stride, padding=padding
        )
        operations += made
        outgoing = image
        if kernel == (1, 3):
            made, beside = conv_norm_relu(f"{name}/{index + 1}b", image, channels, kernel=(3, 1))
            operations += made
            outgoing = Image(image.channels + beside.channels, image.height, image.width)
    return operations, outgoing


def _auxiliary(image: Image) -> list[NetworkOp]:
    """The second classifier, on the 17×17 images."""
    shrink, inside = pool("auxiliary/pool", image, kernel=5, stride=3, padding=0)
    first, inside = conv_norm_relu("auxiliary/first", inside, 128, kernel=1)
    second, inside = conv_norm_relu("auxiliary/second", inside, 768, kernel=5, padding=0)
    return [shrink, *first, *second, dense("auxiliary/linear", inside.channels, CLASSES)]


def _wide(pooled: int) -> tuple[tuple[_Branch, ...], int]:
    """On 35×35: 1×1, 5×5 and twice 3×3."""
    return (((64, 1, 1),), ((48, 1, 1), (64, 5, 1)), ((64, 1, 1), (96, 3, 1), (96, 3, 1))), pooled


def _long(width: int) -> tuple[tuple[_Branch, ...], int]:
    """On 17×17: 1×1, and 7×7 split into rows and columns, once and twice."""
    row, column = (1, 7), (7, 1)
    once: _Branch = ((width, 1, 1), (width, row, 1), (192, column, 1))
    twice: _Branch = ((width, 1, 1), (width, column, 1), (width, row, 1), (width, column, 1), (192, row, 1))
    return (((192, 1, 1),), once, twice), 192


def _broad() -> tuple[tuple[_Branch, ...], int]:
    """On 8×8: 1×1, and 3×3 split into a row and a column in parallel."""
    return (((320, 1, 1),), ((384, 1, 1), (384, (1, 3), 1)), ((448, 1, 1), (384, 3, 1), (384, (1, 3), 1))), 192


_BLOCKS: tuple[tuple[str, tuple[_Branch, ...], int], ...] = (
    ("block5b", *_wide(32)),
    ("block5c", *_wide(64)),
    ("block5d", *_wide(64)),
    ("block6a", (((384, 3, 2),), ((64, 1, 1), (96, 3, 1), (96, 3, 2))), 0),
    ("block6b", *_long(128)),
    ("block6c", *_long(160)),
    ("block6d", *_long(160)),
    ("block6e", *_long(192)),
    ("block7a", (((192, 1, 1), (320, 3, 2)), ((192, 1, 1), (192, (1, 7), 1), (192, (7, 1), 1), (192, 3, 2))), 0),
    ("block7b", *_broad()),
    ("block7c", *_broad()),
)
