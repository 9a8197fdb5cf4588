"""Recurrent networks: the large LSTM language model of Zaremba et al. 2014 (two layers of 1500 units, 35 steps, a
vocabulary of 10,000; 66 M parameters), and the layer that it and others are made of.

The products with the inputs of all steps are one matrix product. Those with the state follow one another, step by step,
in kernels of their own, and read their weights at every step: the weights of a wide layer do not stay in the cache.
"""

from __future__ import annotations

from itertools import pairwise

from wattune.workloads.image_layers import Image, conv, linear, norm, relu
from wattune.workloads.operation import NetworkOp, first_layer

_GATES = 4


def lstm_language_model(
    *, layers: int = 2, width: int = 1500, vocabulary: int = 10_000, steps: int = 35
) -> tuple[NetworkOp, ...]:
    """The operations for one sequence: look-up, LSTM layers, and the projection to the vocabulary with its loss."""
    operations = [look_up("embedding", rows=vocabulary, width=width, count=steps)]
    for layer in range(layers):
        operations += lstm_layer(f"lstm{layer + 1}", inputs=width, width=width, steps=steps)
    return (*operations, *vocabulary_head("head", width=width, vocabulary=vocabulary, steps=steps))


def lstm_layer(
    name: str, *, inputs: int, width: int, steps: int, directions: int = 1, bias_rows: int = 1
) -> list[NetworkOp]:
    """An LSTM over a sequence, in one direction or both, whose outputs are then one width (added or single)."""
    made = []
    for direction in range(directions):
        where = name if directions == 1 else f"{name}/{'forward' if direction == 0 else 'reverse'}"
        made += _one_direction(where, inputs=inputs, width=width, steps=steps, bias_rows=bias_rows)
    return made


def _one_direction(name: str, *, inputs: int, width: int, steps: int, bias_rows: int) -> list[NetworkOp]:
    gates = _GATES * width
    from_inputs = NetworkOp(
        name=f"{name}/inputs",
        flops=2.0 * steps * inputs * gates,
        reads=steps * inputs,
        writes=steps * gates,
        parameters=inputs * gates + bias_rows * gates,
        multiplies=True,
    )
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
    # Gates in, cell in and out, hidden out; backward reads the kept gates as well.
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
    """The projection to the vocabulary at every step, and the loss."""
    outputs = steps * vocabulary
    projection = NetworkOp(
        name=f"{name}/vocabulary",
        flops=2.0 * width * outputs,
        reads=steps * width,
        writes=outputs,
        parameters=(width + 1) * vocabulary,
        multiplies=True,
    )
    loss = NetworkOp(name=f"{name}/loss", flops=5.0 * outputs, reads=outputs, writes=outputs, backward_passes=1.0)
    return [projection, loss]


def look_up(name: str, *, rows: int, width: int, count: float) -> NetworkOp:
    """Rows taken from a table, whose gradient is dense."""
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
    """The operations for one pair of a user and an item."""
    half = _DENSE[0] // 2
    tables = [
        look_up(f"{kind}/{use}", rows=rows, width=width, count=1)
        for kind, rows in (("user", _USERS), ("item", _ITEMS))
        for use, width in (("factors", _FACTORS), ("dense", half))
    ]
    product = NetworkOp(name="product", flops=_FACTORS, reads=2 * _FACTORS, writes=_FACTORS, backward_passes=5 / 3)
    dense = []
    for index, (inputs, outputs) in enumerate(pairwise(_DENSE)):
        dense.append(linear(f"dense{index + 1}", inputs, outputs))
        dense.append(
            NetworkOp(name=f"dense{index + 1}/relu", flops=outputs, reads=outputs, writes=outputs, backward_passes=1.5)
        )
    return (*tables, product, *dense, linear("head", _FACTORS + _DENSE[-1], 1))


_FREQUENCIES = 161
# Ten seconds of speech at a hundred windows a second.
_WINDOWS = 1001
_LAYERS = 5
_WIDTH = 1024
_LETTERS = 29


def deepspeech2() -> tuple[NetworkOp, ...]:
    """The operations for one utterance of ten seconds."""
    image = Image(1, _FREQUENCIES, _WINDOWS)
    operations: list[NetworkOp] = []
    for index, (kernel, stride) in enumerate((((41, 11), (2, 2)), ((21, 11), (2, 1)))):
        layer, image = conv(f"conv{index + 1}", image, 32, kernel=kernel, stride=stride, bias=True)
        operations += [layer, norm(f"conv{index + 1}/norm", image), relu(f"conv{index + 1}/relu", image)]
    steps, inputs = image.width, image.channels * image.height
    for layer_index in range(_LAYERS):
        operations += _recurrent(f"lstm{layer_index + 1}", inputs, steps)
        inputs = _WIDTH
    letters = NetworkOp(
        name="head/letters",
        flops=2.0 * steps * _WIDTH * _LETTERS,
        reads=steps * _WIDTH,
        writes=steps * _LETTERS,
        parameters=_WIDTH * _LETTERS,
        multiplies=True,
    )
    # The loss walks along the utterance, one small kernel a step.
    loss = NetworkOp(
        name="head/loss",
        flops=20.0 * steps * _LETTERS,
        reads=steps * _LETTERS,
        writes=steps * _LETTERS,
        backward_passes=1.0,
        launches=2,
    )
    return (first_layer(operations[0]), *operations[1:], letters, loss)


def _recurrent(name: str, inputs: int, steps: int) -> list[NetworkOp]:
    """A layer in both directions, the sum of the two, and a norm over units."""
    made = lstm_layer(name, inputs=inputs, width=_WIDTH, steps=steps, directions=2, bias_rows=2)
    elements = steps * _WIDTH
    total = NetworkOp(name=f"{name}/sum", flops=elements, reads=2 * elements, writes=elements, backward_passes=1.0)
    return [*made, total, norm(f"{name}/norm", Image(_WIDTH, 1, steps))]
