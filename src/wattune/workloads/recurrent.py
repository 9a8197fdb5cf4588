"""Recurrent networks, and a recommender that shares their look-up tables.

LSTM language model: the large one of Zaremba et al. 2014 (two layers of 1500 units, 35 steps, a vocabulary of 10,000;
66 M parameters).
DeepSpeech2 (Amodei et al. 2016) in the form of the public PyTorch training code: two convolutions on a spectrogram of
161 frequencies, five LSTMs of 1024 units in both directions whose outputs are added, and 29 letters.
Neural collaborative filtering (He et al. 2017, NeuMF) on MovieLens-20M in the shape of MLPerf Training 0.5: factors of
64, dense layers of 256, 256, 128 and 64. The tables hold nearly all parameters, so their gradients and the optimizer
are much of the work.

In an LSTM the products with the inputs of all steps are one matrix product. Those with the state run step by step, in
separate kernels, and read their weights at every step: the weights of a wide layer do not stay in the cache.
"""

from __future__ import annotations

from itertools import pairwise

from wattune.workloads.image_layers import Image, ImageLayers
from wattune.workloads.operation import NetworkOp, dense, elementwise

_GATES = 4


def lstm_language_model(
    *, layers: int = 2, width: int = 1500, vocabulary: int = 10_000, steps: int = 35
) -> tuple[NetworkOp, ...]:
    """Make the operations of one sequence: look-up, LSTM layers, projection to the vocabulary and loss."""
    operations = [look_up("embedding", rows=vocabulary, width=width, count=steps)]
    for layer in range(layers):
        operations += lstm_layer(f"lstm{layer + 1}", inputs=width, width=width, steps=steps)
    return (*operations, *vocabulary_head("head", width=width, vocabulary=vocabulary, steps=steps))


def lstm_layer(
    name: str, *, inputs: int, width: int, steps: int, directions: int = 1, bias_rows: int = 1
) -> list[NetworkOp]:
    """Make an LSTM over a sequence; the outputs of two directions are added."""
    operations = []
    for direction in range(directions):
        where = name if directions == 1 else f"{name}/{'forward' if direction == 0 else 'reverse'}"
        operations += _one_direction(where, inputs=inputs, width=width, steps=steps, bias_rows=bias_rows)
    return operations


def _one_direction(name: str, *, inputs: int, width: int, steps: int, bias_rows: int) -> list[NetworkOp]:
    gates = _GATES * width
    from_inputs = dense(f"{name}/inputs", inputs, gates, rows=steps, parameters=inputs * gates + bias_rows * gates)
    from_state = NetworkOp(
        name=f"{name}/state",
        flops=2.0 * steps * width * gates,
        reads=steps * width,
        writes=steps * gates,
        parameters=width * gates,
        weights_read=steps * width * gates,
        multiplies=True,
        launches=steps,
    )
    # Gates in, cell in and out, hidden out; backward reads the stored gates as well.
    cell = NetworkOp(
        name=f"{name}/cell",
        flops=12.0 * steps * width,
        reads=steps * (gates + width),
        writes=2 * steps * width,
        backward_passes=2.0,
        launches=steps,
    )
    return [from_inputs, from_state, cell]


def vocabulary_head(name: str, *, width: int, vocabulary: int, steps: int) -> list[NetworkOp]:
    """Make the projection to the vocabulary at every step, and the loss."""
    outputs = steps * vocabulary
    projection = dense(f"{name}/vocabulary", width, vocabulary, rows=steps)
    return [projection, elementwise(f"{name}/loss", outputs, flops=5.0, backward_passes=1.0)]


def look_up(name: str, *, rows: int, width: int, count: float) -> NetworkOp:
    """Make a look-up of rows in a table, whose gradient is dense."""
    return NetworkOp(
        name=name,
        reads=count * width,
        writes=count * width,
        parameters=rows * width,
        weights_read=0.0,
        gradient_fill=rows * width,
        backward_passes=1.0,
    )


_USERS, _ITEMS = 138_493, 26_744
_FACTORS = 64
_DENSE = (256, 256, 128, 64)


def ncf() -> tuple[NetworkOp, ...]:
    """Make the operations of neural collaborative filtering for one pair of a user and an item."""
    half = _DENSE[0] // 2
    tables = [
        look_up(f"{kind}/{use}", rows=rows, width=width, count=1)
        for kind, rows in (("user", _USERS), ("item", _ITEMS))
        for use, width in (("factors", _FACTORS), ("dense", half))
    ]
    product = NetworkOp(name="product", flops=_FACTORS, reads=2 * _FACTORS, writes=_FACTORS, backward_passes=5 / 3)
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(_DENSE)):
        layers += [dense(f"dense{index + 1}", inputs, outputs), elementwise(f"dense{index + 1}/relu", outputs)]
    return (*tables, product, *layers, dense("head", _FACTORS + _DENSE[-1], 1))


_FREQUENCIES = 161
# Ten seconds of speech at a hundred windows a second.
_WINDOWS = 1001
_LAYERS = 5
_WIDTH = 1024
_LETTERS = 29


def deepspeech2() -> tuple[NetworkOp, ...]:
    """Make the operations of DeepSpeech2 for one utterance of ten seconds."""
    net = ImageLayers(Image(1, _FREQUENCIES, _WINDOWS))
    for name, kernel, stride in (("conv1", (41, 11), (2, 2)), ("conv2", (21, 11), (2, 1))):
        net.conv(name, 32, kernel=kernel, stride=stride, bias=True).norm(f"{name}/norm").relu(f"{name}/relu")
    steps, inputs = net.image.width, net.image.channels * net.image.height
    net.image = Image(_WIDTH, 1, steps)
    for layer in range(_LAYERS):
        name = f"lstm{layer + 1}"
        net.operations += lstm_layer(name, inputs=inputs, width=_WIDTH, steps=steps, directions=2, bias_rows=2)
        net.add(f"{name}/sum").norm(f"{name}/norm")
        inputs = _WIDTH
    letters = dense("head/letters", _WIDTH, _LETTERS, rows=steps, parameters=_WIDTH * _LETTERS)
    loss = elementwise("head/loss", steps * _LETTERS, flops=20.0, backward_passes=1.0, launches=2)
    return (*net.complete(), letters, loss)
