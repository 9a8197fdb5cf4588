"""Inception-v3 (Szegedy et al. 2016, "Rethinking the Inception Architecture") on images of 299×299, with its auxiliary
classifier, which trains along."""

from __future__ import annotations

from wattune.workloads.image_layers import Image, Pair, conv_norm_relu, copied, linear, mean, pool
from wattune.workloads.operation import Operation, first_layer

IMAGE = 299
CLASSES = 1000

# A branch is a row of convolutions, each (channels, kernel, stride); stride 2 goes without padding.
_Step = tuple[int, Pair, int]
_Branch = tuple[_Step, ...]


def inception3() -> tuple[Operation, ...]:
    """The operations of Inception-v3 for one image."""
    operations, image = _stem()
    for name, branches, pooled in _BLOCKS:
        made, image = _block(name, image, branches, pooled)
        operations += made
        if name == "block6e":
            operations += _auxiliary(image)
    return (
        first_layer(operations[0]),
        *operations[1:],
        mean("head/mean", image),
        linear("head/linear", image.channels, CLASSES),
    )


def _stem() -> tuple[list[Operation], Image]:
    image = Image.square(3, IMAGE)
    operations: list[Operation] = []
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


def _block(name: str, image: Image, branches: tuple[_Branch, ...], pooled: int) -> tuple[list[Operation], Image]:
    """Branches side by side, one that pools, and their concatenation; `pooled` channels, or 0 where it halves."""
    operations: list[Operation] = []
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


def _branch(name: str, image: Image, branch: _Branch) -> tuple[list[Operation], Image]:
    """A row of convolutions; a pair of equal ones at its end (1×3 and 3×1) stands side by side."""
    operations: list[Operation] = []
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


def _auxiliary(image: Image) -> list[Operation]:
    """The second classifier, which looks at the 17×17 images."""
    shrink, inside = pool("auxiliary/pool", image, kernel=5, stride=3, padding=0)
    first, inside = conv_norm_relu("auxiliary/first", inside, 128, kernel=1)
    second, inside = conv_norm_relu("auxiliary/second", inside, 768, kernel=5, padding=0)
    return [shrink, *first, *second, linear("auxiliary/linear", inside.channels, CLASSES)]


def _wide(pooled: int) -> tuple[tuple[_Branch, ...], int]:
    """On 35×35: 1×1, 5×5 and twice 3×3."""
    return (((64, 1, 1),), ((48, 1, 1), (64, 5, 1)), ((64, 1, 1), (96, 3, 1), (96, 3, 1))), pooled


def _long(width: int) -> tuple[tuple[_Branch, ...], int]:
    """On 17×17: 1×1, and 7×7 taken apart into rows and columns, once and twice."""
    row, column = (1, 7), (7, 1)
    once: _Branch = ((width, 1, 1), (width, row, 1), (192, column, 1))
    twice: _Branch = ((width, 1, 1), (width, column, 1), (width, row, 1), (width, column, 1), (192, row, 1))
    return (((192, 1, 1),), once, twice), 192


def _broad() -> tuple[tuple[_Branch, ...], int]:
    """On 8×8: 1×1, and 3×3 spread into a row and a column side by side."""
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
