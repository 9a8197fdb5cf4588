"""DeepSpeech2 (Amodei et al. 2016) in the form of the public PyTorch training code: two convolutions on a spectrogram
of 161 frequencies, five LSTMs of 1024 units in both directions whose outputs are added, and 29 letters."""

from __future__ import annotations

from wattune.workloads.image_layers import Image, conv, norm, relu
from wattune.workloads.operation import Operation, first_layer
from wattune.workloads.recurrent import lstm_layer

_FREQUENCIES = 161
# Ten seconds of speech at a hundred windows a second.
_WINDOWS = 1001
_LAYERS = 5
_WIDTH = 1024
_LETTERS = 29


def deepspeech2() -> tuple[Operation, ...]:
    """The operations for one utterance of ten seconds."""
    image = Image(1, _FREQUENCIES, _WINDOWS)
    operations: list[Operation] = []
    for index, (kernel, stride) in enumerate((((41, 11), (2, 2)), ((21, 11), (2, 1)))):
        layer, image = conv(f"conv{index + 1}", image, 32, kernel=kernel, stride=stride, bias=True)
        operations += [layer, norm(f"conv{index + 1}/norm", image), relu(f"conv{index + 1}/relu", image)]
    steps, inputs = image.width, image.channels * image.height
    for layer_index in range(_LAYERS):
        operations += _recurrent(f"lstm{layer_index + 1}", inputs, steps)
        inputs = _WIDTH
    letters = Operation(
        name="head/letters",
        flops=2.0 * steps * _WIDTH * _LETTERS,
        reads=steps * _WIDTH,
        writes=steps * _LETTERS,
        parameters=_WIDTH * _LETTERS,
        multiplies=True,
    )
    # The loss walks along the utterance, one small kernel a step.
    loss = Operation(
        name="head/loss",
        flops=20.0 * steps * _LETTERS,
        reads=steps * _LETTERS,
        writes=steps * _LETTERS,
        backward_passes=1.0,
        launches=2,
    )
    return (first_layer(operations[0]), *operations[1:], letters, loss)


def _recurrent(name: str, inputs: int, steps: int) -> list[Operation]:
    """A layer in both directions, the sum of the two, and a norm over units."""
    made = lstm_layer(name, inputs=inputs, width=_WIDTH, steps=steps, directions=2, bias_rows=2)
    elements = steps * _WIDTH
    total = Operation(name=f"{name}/sum", flops=elements, reads=2 * elements, writes=elements, backward_passes=1.0)
    return [*made, total, norm(f"{name}/norm", Image(_WIDTH, 1, steps))]
