"""Reports the phases of a training step to `tuned`: forward and backward pass of a model, and the optimizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from wattune.control.stamps import Stamp, Stamps
from wattune.integrations.cuda_stamp import stamps_on
from wattune.integrations.torch.layers.calls import WHOLE, heard
from wattune.levels.layer.costs import FORWARD


class HearsPhases(Protocol):
    """What phases are reported to: the handle of `tuned`."""

    def phase(self, name: str, *, stamp: Stamp | None = None) -> None: ...


@contextmanager
def mark_phases(tuning: HearsPhases, model: torch.nn.Module, optimizer: Any = None) -> Iterator[None]:
    """Report the phases `forward`, `backward` and `optimizer` while the model trains.

    Passes in evaluation mode and without gradients are not reported. The program itself calls `tuning.step()` at the
    end of each step, and `tuning.phase` for phases of its own, such as an all-reduce.
    """
    weight = next(iter(model.parameters()), None)
    stamps = None if weight is None or weight.device.type != "cuda" else stamps_on(weight.device)
    with heard(model, _PhaseListener(tuning, stamps), paths={WHOLE}, optimizer=optimizer):
        yield


class _PhaseListener:
    """A `CallListener` that reports the passes of the whole model."""

    def __init__(self, tuning: HearsPhases, stamps: Stamps | None) -> None:
        self._tuning = tuning
        self._stamps = stamps
        self._last: str | None = None
        """Passes that are heard again are part of the phase: a submodule may be called `model` too."""

    def start(self, batch_size: int | None) -> None:
        pass

    def begin(self, name: str) -> None:
        phase = name.partition("/")[0]
        if phase != self._last:
            self._last = phase
            self._tuning.phase(phase, stamp=None if self._stamps is None else self._stamps())

    def end(self, name: str) -> bool:
        return name.startswith(FORWARD)

    def fail(self, error: Exception) -> None:
        logging.getLogger("wattune").warning("a phase was not reported, training goes on: %s", error)
