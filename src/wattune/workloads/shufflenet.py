"""ShuffleNetV2 at width 1× (Ma et al. 2018, table 5) on images of 224×224: little arithmetic, many small kernels."""

from __future__ import annotations

from wattune.workloads.image_layers import Image, conv, conv_norm_relu, copied, linear, mean, norm, pool
from wattune.workloads.operation import Operation, first_layer

IMAGE = 224
CLASSES = 1000
_STEM, _LAST = 24, 1024
_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet2() -> tuple[Operation, ...]:
    """The operations of ShuffleNetV2 1× for one image."""
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
        linear("head/linear", _LAST, CLASSES),
    )


def _keeping(name: str, image: Image) -> list[Operation]:
    """A block on half of the channels; the other half passes by, and all are shuffled."""
    half = Image(image.channels // 2, image.height, image.width)
    operations, _ = _right(name, half, half.channels, stride=1)
    return [*operations, copied(f"{name}/shuffle", image)]


def _halving(name: str, image: Image, channels: int) -> tuple[list[Operation], Image]:
    """A block that halves the side: both branches work, and together they make twice the channels."""
    operations, outgoing = _depthwise(f"{name}/left", image, stride=2)
    made, outgoing = conv_norm_relu(f"{name}/left", outgoing, channels, kernel=1)
    operations += made
    made, outgoing = _right(name, image, channels, stride=2)
    operations += made
    whole = Image(2 * channels, outgoing.height, outgoing.width)
    return [*operations, copied(f"{name}/shuffle", whole)], whole


def _right(name: str, image: Image, channels: int, *, stride: int) -> tuple[list[Operation], Image]:
    """1×1, then 3×3 on each channel alone, then 1×1."""
    first, image = conv_norm_relu(f"{name}/first", image, channels, kernel=1)
    middle, image = _depthwise(f"{name}/middle", image, stride=stride)
    second, image = conv_norm_relu(f"{name}/second", image, channels, kernel=1)
    return [*first, *middle, *second], image


def _depthwise(name: str, image: Image, *, stride: int) -> tuple[list[Operation], Image]:
    layer, outgoing = conv(f"{name}/depthwise", image, image.channels, kernel=3, stride=stride, groups=image.channels)
    return [layer, norm(f"{name}/depthwise-norm", outgoing)], outgoing
