"""What the optimizer's step asks of a GPU.

In FP32 a step reads the gradient and reads and writes the weight and each value of its state. In half precision the
weight and the state stay in FP32, the gradient is read in two bytes and a copy of the weight is written in two bytes:
as many bytes in all.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.workload import Phase

_BYTES = 4
# A kernel that handles many tensors at a time takes on about 2.5 million parameters (the chunked lists of
# multi-tensor optimizers).
_PARAMETERS_PER_KERNEL = 2.5e6


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A rule of descent: how many values of state it keeps per parameter, and how much arithmetic that takes."""

    name: str
    state: int
    flops: float

    @property
    def bytes_per_parameter(self) -> int:
        """Bytes to and from memory for one parameter: gradient in; weight and state in and out."""
        return _BYTES * (3 + 2 * self.state)


SGD = Optimizer("sgd", state=1, flops=4.0)
"""With momentum."""
ADAM = Optimizer("adam", state=2, flops=12.0)


def optimizer_phase(parameters: float, optimizer: Optimizer) -> Phase:
    """One step over so many parameters."""
    return Phase(
        name="optimizer",
        flops=optimizer.flops * parameters,
        dram_bytes=optimizer.bytes_per_parameter * parameters,
        launches=max(1.0, parameters / _PARAMETERS_PER_KERNEL),
    )
