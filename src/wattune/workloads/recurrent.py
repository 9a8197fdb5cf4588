"""Recurrent networks: the large LSTM language model of Zaremba et al. 2014 (two layers of 1500 units, 35 steps, a
vocabulary of 10,000; 66 M parameters), and the layer that it and others are made of.

The products with the inputs of all steps are one matrix product. Those with the state follow one another, step by step,
in kernels of their own, and read their weights at every step: the weights of a wide layer do not stay in the cache.
"""

from __future__ import annotations

from wattune.workloads.operation import Operation

_GATES = 4


def lstm_language_model(
    *, layers: int = 2, width: int = 1500, vocabulary: int = 10_000, steps: int = 35
) -> tuple[Operation, ...]:
    """The operations for one sequence: look-up, LSTM layers, and the projection to the vocabulary with its loss."""
    operations = [look_up("embedding", rows=vocabulary, width=width, count=steps)]
    for layer in range(layers):
        operations += lstm_layer(f"lstm{layer + 1}", inputs=width, width=width, steps=steps)
    return (*operations, *vocabulary_head("head", width=width, vocabulary=vocabulary, steps=steps))


def lstm_layer(
    name: str, *, inputs: int, width: int, steps: int, directions: int = 1, bias_rows: int = 1
) -> list[Operation]:
    """An LSTM over a sequence, in one direction or both, whose outputs are then one width (added or single)."""
    made = []
    for direction in range(directions):
        where = name if directions == 1 else f"{name}/{'forward' if direction == 0 else 'reverse'}"
        made += _one_direction(where, inputs=inputs, width=width, steps=steps, bias_rows=bias_rows)
    return made


def _one_direction(name: str, *, inputs: int, width: int, steps: int, bias_rows: int) -> list[Operation]:
    gates = _GATES * width
    from_inputs = Operation(
        name=f"{name}/inputs",
        flops=2.0 * steps * inputs * gates,
        reads=steps * inputs,
        writes=steps * gates,
        parameters=inputs * gates + bias_rows * gates,
        multiplies=True,
    )
    from_state = Operation(
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
    cell = Operation(
        name=f"{name}/cell",
        flops=12.0 * steps * width,
        reads=steps * (gates + width),
        writes=2 * steps * width,
        backward_passes=2.0,
        launches=steps,
    )
    return [from_inputs, from_state, cell]


def vocabulary_head(name: str, *, width: int, vocabulary: int, steps: int) -> list[Operation]:
    """The projection to the vocabulary at every step, and the loss."""
    outputs = steps * vocabulary
    projection = Operation(
        name=f"{name}/vocabulary",
        flops=2.0 * width * outputs,
        reads=steps * width,
        writes=outputs,
        parameters=(width + 1) * vocabulary,
        multiplies=True,
    )
    loss = Operation(name=f"{name}/loss", flops=5.0 * outputs, reads=outputs, writes=outputs, backward_passes=1.0)
    return [projection, loss]


def look_up(name: str, *, rows: int, width: int, count: float) -> Operation:
    """Rows taken from a table, whose gradient is dense."""
    return Operation(
        name=name,
        reads=count * width,
        writes=count * width,
        parameters=rows * width,
        weights_read=0.0,
        gradient_fill=rows * width,
        backward_passes=1.0,
    )
