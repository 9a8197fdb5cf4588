"""Plays a plan of layers while a program reports the layers that it runs. What fails never reaches the program."""

from __future__ import annotations

import logging
from enum import Enum

from wattune.control.actuator import Actuator
from wattune.control.stamps import Stamps
from wattune.levels.layer.costs import BACKWARD, FORWARD
from wattune.levels.layer.player import LayerPlayer, MadeFor, RequestGate


class _Step(Enum):
    """Whether a forward pass and what follows it are played."""

    NONE_YET = "none yet"
    PLAYED = "played"
    PASSED_OVER = "passed over"
    """Of another batch size, as the last one of an epoch often is."""


class LayerPlanListener:
    """Requests the settings of a plan, in the thread that trains, through an actuator that never blocks it."""

    def __init__(self, player: LayerPlayer, clocks: Actuator, stamp: Stamps, *, made_for: MadeFor) -> None:
        self._player = player
        self._clocks = clocks
        self._stamp = stamp
        self._made_for = made_for
        self._gate = RequestGate(player.dwell_s)
        self._names = frozenset(player.names)
        self._passes = frozenset(name.partition("/")[0] for name in player.names)
        self._step = _Step.NONE_YET

    def start(self, batch_size: int | None) -> None:
        """Begin a forward pass; the plan ends if the first one has another batch size than it was made for."""
        if self._step is _Step.NONE_YET:
            self._made_for.check(batch_size=batch_size)
        is_other = None not in (batch_size, self._made_for.batch_size) and batch_size != self._made_for.batch_size
        self._step = _Step.PASSED_OVER if is_other else _Step.PLAYED

    def begin(self, name: str) -> None:
        """Request the settings that are due after the start of a layer."""
        if self._clocks.disabled is not None or self._step is not _Step.PLAYED:
            return
        if name.partition("/")[0] not in self._passes:
            return  # a pass that the plan does not cover
        self._player, requests = self._player.begin(name)
        for request in requests:
            self._clocks.put(request.setting, reached=self._gate.reached(self._stamp(), request.after_s))
        refused = self._clocks.take_failure()
        if refused is not None:
            self.fail(refused)

    def end(self, name: str) -> bool:
        """Return whether the plan has the backward pass of a layer."""
        return self._clocks.disabled is None and BACKWARD + name.removeprefix(FORWARD) in self._names

    def fail(self, error: Exception) -> None:
        """Restore the GPU and set nothing any more."""
        if self._clocks.disabled is None:
            logging.getLogger("wattune").warning("the plan ends, training goes on: %s", error)
            self._clocks.disable(str(error))
