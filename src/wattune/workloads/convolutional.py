"""Convolutional networks from their shapes, on images of 224×224 unless another size is given.

ResNet (He et al. 2016, with the stride in the 3×3 convolution), VGG (Simonyan and Zisserman 2015), ShuffleNetV2 at
width 1× (Ma et al. 2018, table 5: little arithmetic, many small kernels), and Inception-v3 (Szegedy et al. 2016,
"Rethinking the Inception Architecture") on 299×299 with its auxiliary classifier, which is trained too.
"""

from __future__ import annotations

from dataclasses import replace

from wattune.workloads.image_layers import Image, ImageLayers, Pair
from wattune.workloads.operation import NetworkOp

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
    net = ImageLayers(image or Image.square(3, IMAGE))
    net.conv_norm_relu("stem", 64, kernel=7, stride=2).pool("stem/pool", kernel=3)
    for stage, count in enumerate(_RESNET_BLOCKS[name]):
        for block in range(count):
            where, stride = f"stage{stage + 1}/block{block + 1}", 2 if stage > 0 and block == 0 else 1
            _residual_block(net, where, 64 * 2**stage, stride, bottleneck=name != "resnet18")
    return net.mean("head/mean").dense("head/linear", CLASSES).complete()


def _residual_block(net: ImageLayers, name: str, width: int, stride: int, *, bottleneck: bool) -> None:
    """Append convolutions with norm and activation, the shortcut, and the sum."""
    incoming, outgoing = net.image, 4 * width if bottleneck else width
    plan = [(width, 1, 1), (width, 3, stride), (outgoing, 1, 1)] if bottleneck else [(width, 3, stride), (width, 3, 1)]
    for index, (channels, kernel, step) in enumerate(plan, 1):
        net.conv(f"{name}/conv{index}", channels, kernel=kernel, stride=step).norm(f"{name}/norm{index}")
        if index < len(plan):
            net.relu(f"{name}/relu{index}")
    if incoming.channels != outgoing or stride != 1:
        shortcut = net.beside(incoming).conv(f"{name}/shortcut", outgoing, kernel=1, stride=stride)
        shortcut.norm(f"{name}/shortcut-norm")
    net.add(f"{name}/add").relu(f"{name}/relu")


def vgg(name: str) -> tuple[NetworkOp, ...]:
    """Make the operations of a VGG for one image; its convolutions have biases and no norms."""
    net = ImageLayers(Image.square(3, IMAGE))
    for stage, (channels, count) in enumerate(_VGG_STAGES[name], 1):
        for index in range(1, count + 1):
            where = f"stage{stage}/conv{index}"
            net.conv(where, channels, kernel=3, bias=True).relu(f"{where}-relu")
        net.pool(f"stage{stage}/pool", kernel=2)
    for index, outputs in enumerate((4096, 4096, CLASSES), 1):
        net.dense(f"head/linear{index}", outputs)
    return net.complete()


_STEM, _LAST = 24, 1024
_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet2() -> tuple[NetworkOp, ...]:
    """Make the operations of ShuffleNetV2 1× for one image."""
    net = ImageLayers(Image.square(3, IMAGE))
    net.conv_norm_relu("stem", _STEM, kernel=3, stride=2).pool("stem/pool", kernel=3)
    for stage, (channels, blocks) in enumerate(_STAGES, 2):
        _halving(net, f"stage{stage}/block1", channels // 2)
        for block in range(2, blocks + 1):
            # A block on half of the channels; the other half is passed through, and all are shuffled.
            half = replace(net.image, channels=channels // 2)
            _right(net.beside(half), f"stage{stage}/block{block}", channels // 2, stride=1)
            net.copied(f"stage{stage}/block{block}/shuffle")
    return net.conv_norm_relu("last", _LAST, kernel=1).mean("head/mean").dense("head/linear", CLASSES).complete()


def _halving(net: ImageLayers, name: str, channels: int) -> None:
    """Append a block that halves the side: two branches that together make twice the channels."""
    incoming = net.image
    _depthwise(net, f"{name}/left", stride=2).conv_norm_relu(f"{name}/left", channels, kernel=1)
    _right(net.beside(incoming), name, channels, stride=2)
    net.copied(f"{name}/shuffle", 2 * channels)


def _right(net: ImageLayers, name: str, channels: int, *, stride: int) -> None:
    """Append 1×1, then 3×3 on each channel separately, then 1×1."""
    net.conv_norm_relu(f"{name}/first", channels, kernel=1)
    _depthwise(net, f"{name}/middle", stride=stride).conv_norm_relu(f"{name}/second", channels, kernel=1)


def _depthwise(net: ImageLayers, name: str, *, stride: int) -> ImageLayers:
    channels = net.image.channels
    net.conv(f"{name}/depthwise", channels, kernel=3, stride=stride, groups=channels)
    return net.norm(f"{name}/depthwise-norm")


INCEPTION_IMAGE = 299

# A branch is a sequence of convolutions, each (channels, kernel, stride); stride 2 goes without padding.
_Step = tuple[int, Pair, int]
_Branch = tuple[_Step, ...]


def inception3() -> tuple[NetworkOp, ...]:
    """Make the operations of Inception-v3 for one image."""
    net = ImageLayers(Image.square(3, INCEPTION_IMAGE))
    net.conv_norm_relu("stem1", 32, kernel=3, stride=2, padding=0)
    net.conv_norm_relu("stem2", 32, kernel=3, padding=0)
    net.conv_norm_relu("stem3", 64, kernel=3)
    net.pool("stem4", kernel=3, padding=0)
    net.conv_norm_relu("stem5", 80, kernel=1)
    net.conv_norm_relu("stem6", 192, kernel=3, padding=0)
    net.pool("stem7", kernel=3, padding=0)
    for name, branches, pooled in _BLOCKS:
        _inception_block(net, name, branches, pooled)
        if name == "block6e":
            # The second classifier, on the 17×17 images.
            second = net.beside(net.image).pool("auxiliary/pool", kernel=5, stride=3, padding=0)
            second.conv_norm_relu("auxiliary/first", 128, kernel=1)
            second.conv_norm_relu("auxiliary/second", 768, kernel=5, padding=0).dense("auxiliary/linear", CLASSES)
    return net.mean("head/mean").dense("head/linear", CLASSES).complete()


def _inception_block(net: ImageLayers, name: str, branches: tuple[_Branch, ...], pooled: int) -> None:
    """Append branches, one of them pooling to `pooled` channels (0: it halves the side), and their concatenation."""
    incoming, channels = net.image, 0
    for index, branch in enumerate(branches, 1):
        net.image = incoming
        _branch(net, f"{name}/branch{index}", branch)
        channels += net.image.channels
    stride, padding = (2, 0) if net.image.height < incoming.height else (1, None)
    net.image = incoming
    net.pool(f"{name}/pool", kernel=3, stride=stride, padding=padding)
    if pooled:
        net.conv_norm_relu(f"{name}/pooled", pooled, kernel=1)
    net.copied(f"{name}/join", channels + net.image.channels)


def _branch(net: ImageLayers, name: str, branch: _Branch) -> None:
    """Append a sequence of convolutions; a 1×3 and a 3×1 at its end run in parallel."""
    for index, (channels, kernel, stride) in enumerate(branch, 1):
        padding = 0 if stride == 2 else None
        net.conv_norm_relu(f"{name}/{index}", channels, kernel=kernel, stride=stride, padding=padding)
        if kernel == (1, 3):
            net.beside(net.image).conv_norm_relu(f"{name}/{index}b", channels, kernel=(3, 1))
            net.image = replace(net.image, channels=2 * channels)


def _wide(pooled: int) -> tuple[tuple[_Branch, ...], int]:
    """Make the block on 35×35: 1×1, 5×5 and twice 3×3."""
    return (((64, 1, 1),), ((48, 1, 1), (64, 5, 1)), ((64, 1, 1), (96, 3, 1), (96, 3, 1))), pooled


def _long(width: int) -> tuple[tuple[_Branch, ...], int]:
    """Make the block on 17×17: 1×1, and 7×7 split into rows and columns, once and twice."""
    row, column = (1, 7), (7, 1)
    once: _Branch = ((width, 1, 1), (width, row, 1), (192, column, 1))
    twice: _Branch = ((width, 1, 1), (width, column, 1), (width, row, 1), (width, column, 1), (192, row, 1))
    return (((192, 1, 1),), once, twice), 192


def _broad() -> tuple[tuple[_Branch, ...], int]:
    """Make the block on 8×8: 1×1, and 3×3 split into a row and a column in parallel."""
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
