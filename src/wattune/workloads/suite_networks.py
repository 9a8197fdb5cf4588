"""Networks of the tasks that AIBench Training asks for, beside those that have a name of their own.

Shapes follow the papers that the suite names, in round numbers: WGAN (Arjovsky et al. 2017) on images of 64×64,
CycleGAN (Zhu et al. 2017) on 256×256, Neural Image Caption (Vinyals et al. 2015), convolutional LSTMs for video (Shi et
al. 2015) and for image compression (Toderici et al. 2017), perspective transformer nets (Yan et al. 2016), spatial
transformers (Jaderberg et al. 2015), ranking distillation (Tang and Wang 2018), and the shared cells of ENAS (Pham et
al. 2018).
"""

from __future__ import annotations

from dataclasses import replace

from wattune.workloads.convolutional import resnet
from wattune.workloads.image_layers import Image, add, conv, linear, norm, relu
from wattune.workloads.operation import NetworkOp, first_layer
from wattune.workloads.recurrent import look_up, lstm_language_model, lstm_layer, vocabulary_head

_Plan = tuple[tuple[int, int, int], ...]
"""Channels, kernel and stride of each convolution."""


def wgan_critic() -> tuple[NetworkOp, ...]:
    """The critic of a WGAN for one image of 64×64."""
    operations, image = _stack("critic", Image.square(3, 64), ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 2)))
    return (first_layer(operations[0]), *operations[1:], linear("critic/score", image.elements, 1))


def wgan_generator() -> tuple[NetworkOp, ...]:
    """The generator of a WGAN for one image of 64×64."""
    operations = [linear("generator/seed", 100, 512 * 16)]
    made, _ = _rising("generator", Image.square(512, 4), (256, 128, 64, 3))
    return (*operations, *made)


def cyclegan() -> tuple[NetworkOp, ...]:
    """One direction of a CycleGAN for one image of 256×256: down, nine residual blocks, up, and a discriminator."""
    operations, image = _stack("down", Image.square(3, 256), ((64, 7, 1), (128, 3, 2), (256, 3, 2)))
    for block in range(9):
        made, image = _stack(f"block{block + 1}", image, ((256, 3, 1), (256, 3, 1)))
        operations += [*made, add(f"block{block + 1}/add", image)]
    made, image = _rising("up", image, (128, 64))
    judged, _ = _stack("judge", Image.square(3, 256), ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 1)))
    last, _ = conv("up/last", image, 3, kernel=7)
    return (first_layer(operations[0]), *operations[1:], *made, last, *judged)


def image_caption() -> tuple[NetworkOp, ...]:
    """A caption of 20 words for one image."""
    words = lstm_language_model(layers=1, width=512, vocabulary=10_000, steps=20)
    return (*resnet("resnet50"), *(replace(operation, name=f"caption/{operation.name}") for operation in words))


def video_prediction() -> tuple[NetworkOp, ...]:
    """Twenty frames of 64×64 through two convolutional LSTMs."""
    return _recurrent_images(Image.square(64, 64), kernel=5, layers=2, steps=20)


def image_compression() -> tuple[NetworkOp, ...]:
    """Eight rounds of encoding and decoding of one patch of 32×32."""
    return _recurrent_images(Image.square(256, 16), kernel=3, layers=4, steps=8)


def object_reconstruction() -> tuple[NetworkOp, ...]:
    """A solid of 32×32×32 from one picture of 64×64: three convolutions, dense layers, and convolutions in space."""
    operations, image = _stack("encoder", Image.square(3, 64), ((64, 5, 2), (128, 5, 2), (256, 5, 2)))
    dense = [linear("dense1", image.elements, 512), linear("dense2", 512, 512), linear("dense3", 512, 512 * 27)]
    # Rows of the solid stand in for its third dimension.
    solid, _ = _rising("decoder", Image(256, 24, 24), (96, 32))
    return (first_layer(operations[0]), *operations[1:], *dense, *solid)


def summarization() -> tuple[NetworkOp, ...]:
    """An article of 400 words read and a summary of 100 written, both by LSTMs."""
    read = [
        look_up("embedding", rows=50_000, width=128, count=500),
        *lstm_layer("reader", inputs=128, width=256, steps=400, directions=2),
    ]
    written = lstm_layer("writer", inputs=128, width=256, steps=100)
    return (*read, *written, *vocabulary_head("head", width=256, vocabulary=50_000, steps=100))


def spatial_transformer() -> tuple[NetworkOp, ...]:
    """A digit of 28×28, turned upright by one small network and read by another."""
    turned, _ = _stack("turn", Image.square(1, 28), ((8, 7, 2), (10, 5, 2)))
    read, image = _stack("read", Image.square(1, 28), ((10, 5, 2), (20, 5, 2)))
    dense = [linear("turn/dense", 90, 32), linear("turn/angles", 32, 6), linear("read/dense", image.elements, 50)]
    return (*turned, *dense, *read, linear("read/digit", 50, 10))


def ranking() -> tuple[NetworkOp, ...]:
    """One user and five places, all in tables, and a small dense network."""
    tables = [look_up("user", rows=200_000, width=50, count=1), look_up("place", rows=100_000, width=50, count=10)]
    return (*tables, linear("dense1", 300, 200), linear("dense2", 200, 100), linear("head", 100, 1))


def shared_cells() -> tuple[NetworkOp, ...]:
    """A recurrent cell of shared weights as an architecture search tries it: 35 steps of width 1000."""
    return lstm_language_model(layers=1, width=1000, vocabulary=10_000, steps=35)


def _stack(name: str, image: Image, plan: _Plan) -> tuple[list[NetworkOp], Image]:
    """Convolutions, each with norm and activation."""
    operations: list[NetworkOp] = []
    for index, (channels, kernel, stride) in enumerate(plan):
        layer, image = conv(f"{name}/conv{index + 1}", image, channels, kernel=kernel, stride=stride)
        operations += [layer, norm(f"{name}/norm{index + 1}", image), relu(f"{name}/relu{index + 1}", image)]
    return operations, image


def _rising(name: str, image: Image, channels: tuple[int, ...]) -> tuple[list[NetworkOp], Image]:
    """Convolutions that double the side: each is the backward pass of one that halves it."""
    operations: list[NetworkOp] = []
    for index, wide in enumerate(channels):
        larger = Image(wide, 2 * image.height, 2 * image.width)
        halving, _ = conv(f"{name}/rise{index + 1}", larger, image.channels, kernel=4, stride=2, padding=1)
        operations += [halving, norm(f"{name}/norm{index + 1}", larger), relu(f"{name}/relu{index + 1}", larger)]
        image = larger
    return operations, image


def _recurrent_images(image: Image, *, kernel: int, layers: int, steps: int) -> tuple[NetworkOp, ...]:
    """Convolutional LSTMs: at each step a convolution of input and state to four gates, and the cell."""
    operations: list[NetworkOp] = []
    both = Image(2 * image.channels, image.height, image.width)
    for layer in range(layers):
        gates, wide = conv(f"cell{layer + 1}/gates", both, 4 * image.channels, kernel=kernel)
        cell = relu(f"cell{layer + 1}/cell", wide)
        for operation in (gates, cell):
            operations.append(_repeated(operation, steps))
    return tuple(operations)


def _repeated(operation: NetworkOp, steps: int) -> NetworkOp:
    """The operation once a step, its weights read every time."""
    return replace(
        operation,
        flops=steps * operation.flops,
        reads=steps * operation.reads,
        writes=steps * operation.writes,
        weights_read=steps * operation.parameters,
        launches=steps * operation.launches,
    )
