"""Plays a plan of layers while a program reports the layers that it runs. What fails never reaches the program."""

from __future__ import annotations

import logging
from enum import Enum

from wattune.control.actuator import Actuator
from wattune.control.stamps import Stamps
from wattune.levels.layer.costs import BACKWARD, FORWARD
from wattune.levels.layer.player import LayerPlayer, LayerProgram, MadeFor, RequestGate

CHECKED_PASSES = 2
"""Forward passes, with what follows each, in which every layer is compared with the plan. Hooks cost time."""


class _Step(Enum):
    """Whether a forward pass and what follows it are played."""

    NONE_YET = "none yet"
    PLAYED = "played"
    PASSED_OVER = "passed over"
    """Of another batch size, as the last one of an epoch often is."""


class LayerPlanListener:
    """Requests the settings of a plan, in the thread that trains, through an actuator that never blocks it."""

    def __init__(self, program: LayerProgram, clocks: Actuator, stamp: Stamps, *, made_for: MadeFor) -> None:
        self._player = LayerPlayer(program)
        self._clocks = clocks
        self._stamp = stamp
        self._made_for = made_for
        self._gate = RequestGate(program.dwell_s)
        self._passes = frozenset(name.partition("/")[0] for name in program.names)
        self._names = frozenset(program.names)
        self._followed = frozenset(FORWARD + name.removeprefix(BACKWARD) for name in program.names)
        """Layers of the forward pass whose backward pass the plan has."""
        self._step = _Step.NONE_YET
        self._checked = 0
        self._needed = self._names

    def start(self, batch_size: int | None) -> frozenset[str] | None:
        """Begin a forward pass; the plan ends if the first one has another batch size than it was made for.

        Once some passes ran as planned, return the only layers that have to be reported from then on.
        """
        self._check_clocks()
        if self._step is _Step.NONE_YET:
            self._made_for.check(batch_size=batch_size)
        is_other = None not in (batch_size, self._made_for.batch_size) and batch_size != self._made_for.batch_size
        self._step = _Step.PASSED_OVER if is_other else _Step.PLAYED
        self._checked += 1
        if self._checked != CHECKED_PASSES + 1:
            return None
        program = self._player.program.shortened()
        self._player = LayerPlayer(program, requested=self._player.requested)
        self._needed = frozenset(program.names)
        self._followed = frozenset(FORWARD + name.removeprefix(BACKWARD) for name in program.names)
        return self._needed

    def begin(self, name: str) -> None:
        """Request the settings that are due after the start of a layer."""
        if self._step is not _Step.PLAYED or self._clocks.disabled is not None:
            return
        if name not in self._needed and (name in self._names or name.partition("/")[0] not in self._passes):
            return  # nothing is due there, or the plan does not cover the pass
        self._player, requests = self._player.begin(name)
        for request in requests:
            self._clocks.put(request.setting, reached=self._gate.reached(self._stamp(), request.after_s))
        if requests:
            self._check_clocks()

    def end(self, name: str) -> bool:
        """Return whether the plan has the backward pass of a layer."""
        return name in self._followed and self._clocks.disabled is None

    def _check_clocks(self) -> None:
        refused = self._clocks.take_failure()
        if refused is not None:
            self.fail(refused)

    def fail(self, error: Exception) -> None:
        """Restore the GPU and set nothing any more."""
        if self._clocks.disabled is None:
            logging.getLogger("wattune").warning("the plan ends, training goes on: %s", error)
            self._clocks.disable(str(error))
