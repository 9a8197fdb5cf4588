"""Stamps in the work of an NVIDIA GPU that PyTorch drives: events of its stream."""

from __future__ import annotations

from typing import Any

import torch

from wattune.levels.kernel.stamps import Stamp


class CudaStamp:
    """An event in the stream of a GPU."""

    __slots__ = ("event",)

    def __init__(self, event: Any) -> None:
        self.event = event

    def passed(self) -> bool:
        """Whether the GPU has got there."""
        return bool(self.event.query())

    def wait(self) -> None:
        """Nothing; the GPU has got there when this returns."""
        self.event.synchronize()

    def seconds_to(self, later: Stamp) -> float:
        """Seconds from one event to the other, by the GPU's clock."""
        if not isinstance(later, CudaStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return float(self.event.elapsed_time(later.event)) / 1000


class CudaStamps:
    """Stamps in the current stream of a GPU."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def stamp(self) -> CudaStamp:
        """A stamp behind all work that was given to the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return CudaStamp(event)
