"""Holds a setting per phase of a step: requests go out ahead of time while the program reports its phases.

The level that plans phases makes the player, which returns what to request at the beginning of each phase. Requests go
through an actuator of their own for as long as settings are held per phase; at the end it restores the GPUs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from wattune.control.actuator import Actuator, ActuatorThread, Reached, passes_by_itself
from wattune.control.stamps import HostStamp, Stamp
from wattune.core.setting import Setting
from wattune.core.window import PhaseSetting
from wattune.devices.gpu import Gpu, time_of


class PhasePlayer(Protocol):
    """Turns the beginnings of phases into requests."""

    def begin(self, name: str, stamp: Stamp) -> Sequence[tuple[Setting, Reached]]:
        """Return what to set, each with a function that is true once it is due; raise where the phase is unknown."""
        ...


Seconds = Callable[[], float]
PhasePlayers = Callable[[Sequence[PhaseSetting], Seconds], PhasePlayer]
"""Makes the player of settings per phase; the second argument is the clock by which requests are due."""


class PhaseHold:
    """Settings per phase on the GPUs of a program, while they are held."""

    def __init__(self, gpus: Sequence[Gpu], by_phase: tuple[PhaseSetting, ...], players: PhasePlayers) -> None:
        self.by_phase = by_phase
        passes = passes_by_itself(gpus[0])
        self._actuator = ActuatorThread(gpus) if passes else Actuator(gpus)
        self._due: deque[tuple[Setting, Reached]] | None = None if passes else deque()
        """Requests that wait for their time where time passes only when work is run, and no thread can wait."""
        self._now_s: Seconds = time.monotonic if passes else time_of(gpus[0])
        self._player = players(by_phase, self._now_s)
        self._failure: Exception | None = None
        self._actuator.__enter__()

    def begin(self, name: str, stamp: Stamp | None) -> None:
        """Request what is due in the phase that begins; never raises, and never waits for the driver."""
        try:
            self.poll()
            for setting, reached in self._player.begin(name, stamp or HostStamp(self._now_s())):
                if self._due is None:
                    self._actuator.put(setting, reached=reached)
                else:
                    self._due.append((setting, reached))
            self.poll()
        except Exception as error:  # whatever it is, the program must not see it
            self._failure = self._failure or error

    def poll(self) -> None:
        """Request what has become due, where no thread does."""
        while self._due and self._due[0][1]():
            self._actuator.put(self._due.popleft()[0])

    def take_failure(self) -> Exception | None:
        """Return what went wrong since the last call, once."""
        failure, self._failure = self._failure, None
        return failure or self._actuator.take_failure()

    @property
    def stuck(self) -> tuple[tuple[Gpu, Exception], ...]:
        """GPUs that could not be restored, and why."""
        return self._actuator.stuck

    def close(self) -> None:
        """Restore the GPUs; nothing is requested any more."""
        self._due = None if self._due is None else deque()
        self._actuator.disable("settings are not held per phase any more")
        self._actuator.__exit__(None, None, None)
