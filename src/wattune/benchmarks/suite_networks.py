"""Networks of the tasks of AIBench Training that the catalogue of workloads does not have.

Shapes follow the papers that the suite names, in round numbers: WGAN (Arjovsky et al. 2017) on images of 64×64,
CycleGAN (Zhu et al. 2017) on 256×256, Neural Image Caption (Vinyals et al. 2015), convolutional LSTMs for video (Shi et
al. 2015) and for image compression (Toderici et al. 2017), perspective transformer nets (Yan et al. 2016), spatial
transformers (Jaderberg et al. 2015), ranking distillation (Tang and Wang 2018), and the shared cells of ENAS (Pham et
al. 2018).
"""

from __future__ import annotations

from dataclasses import replace

from wattune.workloads.convolutional import resnet
from wattune.workloads.image_layers import Image, ImageLayers
from wattune.workloads.operation import NetworkOp, dense
from wattune.workloads.recurrent import look_up, lstm_language_model, lstm_layer, vocabulary_head

_Plan = tuple[tuple[int, int, int], ...]
"""Channels, kernel and stride of each convolution."""


def wgan_critic() -> tuple[NetworkOp, ...]:
    """Make the critic of a WGAN for one image of 64×64."""
    net = ImageLayers(Image.square(3, 64))
    return (
        _stack(net, "critic", ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 2))).dense("critic/score", 1).complete()
    )


def wgan_generator() -> tuple[NetworkOp, ...]:
    """Make the generator of a WGAN for one image of 64×64."""
    seed = dense("generator/seed", 100, 512 * 16)
    return (seed, *_rising(ImageLayers(Image.square(512, 4)), "generator", (256, 128, 64, 3)).operations)


def cyclegan() -> tuple[NetworkOp, ...]:
    """Make one direction of a CycleGAN for 256×256: down, nine residual blocks, up, and a discriminator."""
    net = _stack(ImageLayers(Image.square(3, 256)), "down", ((64, 7, 1), (128, 3, 2), (256, 3, 2)))
    for block in range(1, 10):
        _stack(net, f"block{block}", ((256, 3, 1), (256, 3, 1))).add(f"block{block}/add")
    _rising(net, "up", (128, 64)).conv("up/last", 3, kernel=7)
    _stack(net.beside(Image.square(3, 256)), "judge", ((64, 4, 2), (128, 4, 2), (256, 4, 2), (512, 4, 1)))
    return net.complete()


def image_caption() -> tuple[NetworkOp, ...]:
    """Make Neural Image Caption: a caption of 20 words for one image."""
    words = lstm_language_model(layers=1, width=512, vocabulary=10_000, steps=20)
    return (*resnet("resnet50"), *(replace(operation, name=f"caption/{operation.name}") for operation in words))


def video_prediction() -> tuple[NetworkOp, ...]:
    """Make two convolutional LSTMs over twenty frames of 64×64."""
    return _recurrent_images(Image.square(64, 64), kernel=5, layers=2, steps=20)


def image_compression() -> tuple[NetworkOp, ...]:
    """Make eight rounds of encoding and decoding of one patch of 32×32."""
    return _recurrent_images(Image.square(256, 16), kernel=3, layers=4, steps=8)


def object_reconstruction() -> tuple[NetworkOp, ...]:
    """Make a solid of 32×32×32 from one picture of 64×64: convolutions, dense layers, convolutions in space."""
    net = _stack(ImageLayers(Image.square(3, 64)), "encoder", ((64, 5, 2), (128, 5, 2), (256, 5, 2)))
    net.dense("dense1", 512).dense("dense2", 512).dense("dense3", 512 * 27)
    # Rows of the solid represent its third dimension.
    _rising(net.beside(Image(256, 24, 24)), "decoder", (96, 32))
    return net.complete()


def summarization() -> tuple[NetworkOp, ...]:
    """Make LSTMs that read an article of 400 words and write a summary of 100."""
    read = [
        look_up("embedding", rows=50_000, width=128, count=500),
        *lstm_layer("reader", inputs=128, width=256, steps=400, directions=2),
    ]
    written = lstm_layer("writer", inputs=128, width=256, steps=100)
    return (*read, *written, *vocabulary_head("head", width=256, vocabulary=50_000, steps=100))


def spatial_transformer() -> tuple[NetworkOp, ...]:
    """Make two small networks: one turns a digit of 28×28 upright, one reads it."""
    turn = _stack(ImageLayers(Image.square(1, 28)), "turn", ((8, 7, 2), (10, 5, 2)))
    read = _stack(ImageLayers(Image.square(1, 28)), "read", ((10, 5, 2), (20, 5, 2)))
    layers = [dense("turn/dense", 90, 32), dense("turn/angles", 32, 6), dense("read/dense", read.image.elements, 50)]
    return (*turn.operations, *layers, *read.operations, dense("read/digit", 50, 10))


def ranking() -> tuple[NetworkOp, ...]:
    """Make look-ups of one user and five places, and a small dense network."""
    tables = [look_up("user", rows=200_000, width=50, count=1), look_up("place", rows=100_000, width=50, count=10)]
    return (*tables, dense("dense1", 300, 200), dense("dense2", 200, 100), dense("head", 100, 1))


def shared_cells() -> tuple[NetworkOp, ...]:
    """Make a recurrent cell of shared weights, as in ENAS: 35 steps of width 1000."""
    return lstm_language_model(layers=1, width=1000, vocabulary=10_000, steps=35)


def _stack(net: ImageLayers, name: str, plan: _Plan) -> ImageLayers:
    """Append convolutions, each with norm and activation."""
    for index, (channels, kernel, stride) in enumerate(plan, 1):
        net.conv_norm_relu(name, channels, kernel=kernel, stride=stride, number=index)
    return net


def _rising(net: ImageLayers, name: str, channels: tuple[int, ...]) -> ImageLayers:
    """Append convolutions that double the side: each is the backward pass of one that halves it."""
    for index, wide in enumerate(channels, 1):
        larger = Image(wide, 2 * net.image.height, 2 * net.image.width)
        halving = net.beside(larger)
        halving.conv(f"{name}/rise{index}", net.image.channels, kernel=4, stride=2, padding=1)
        net.image = larger
        net.norm(f"{name}/norm{index}").relu(f"{name}/relu{index}")
    return net


def _recurrent_images(image: Image, *, kernel: int, layers: int, steps: int) -> tuple[NetworkOp, ...]:
    """Make convolutional LSTMs: at each step a convolution of input and state to four gates, and the cell."""
    net = ImageLayers(image)
    for layer in range(1, layers + 1):
        both = net.beside(replace(image, channels=2 * image.channels))
        both.conv(f"cell{layer}/gates", 4 * image.channels, kernel=kernel).relu(f"cell{layer}/cell")
    return tuple(_repeated(operation, steps) for operation in net.operations)


def _repeated(operation: NetworkOp, steps: int) -> NetworkOp:
    """Repeat the operation at every step; its weights are read every time."""
    return replace(
        operation,
        flops=steps * operation.flops,
        reads=steps * operation.reads,
        writes=steps * operation.writes,
        weights_read=steps * operation.parameters,
        launches=steps * operation.launches,
    )
