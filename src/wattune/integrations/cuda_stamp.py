"""Stamps in the work of a GPU that PyTorch uses."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from wattune.control.stamps import HostStamp, Stamp, Stamps


class CudaStamp:
    """An event in the stream of a GPU."""

    __slots__ = ("event",)

    def __init__(self, event: Any) -> None:
        self.event = event

    @classmethod
    def now(cls, device: Any) -> CudaStamp:
        """Record an event in the current stream of the device."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return cls(event)

    def passed(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()

    def seconds_to(self, later: Stamp) -> float:
        if not isinstance(later, CudaStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return float(self.event.elapsed_time(later.event)) / 1000


def stamps_on(device: Any) -> Stamps:
    """Return the stamps for the work on a device: events of a GPU, or the clock of the host."""
    return partial(CudaStamp.now, device) if device.type == "cuda" else HostStamp.now
