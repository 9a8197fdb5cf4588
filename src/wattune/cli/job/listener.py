"""What a program tells, handed to the session that tunes it; and what its end means for the history."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from wattune.cli.job.child import Ending
from wattune.control.reports.http import Answer
from wattune.control.reports.report import Counted, NoMemory, Report, Step, Told, Unreadable
from wattune.core.job import Outcome

if TYPE_CHECKING:
    from wattune.levels.job.session import Verdict

GO_ON = Answer()

_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|out_of_memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED", re.IGNORECASE
)
"""How PyTorch, CUDA, HIP and XLA say that a batch does not fit."""


class LiveRun(Protocol):
    """A run that is tuned while it goes."""

    @property
    def verdict(self) -> Verdict | None:
        """How the run ended and why; None while it should go on."""
        ...

    def step(self, count: int = 1) -> None:
        """Nothing; so many more iterations are over."""
        ...

    def report(self, metric: float | None) -> Verdict | None:
        """How the run ended, after one more epoch; None where it should go on."""
        ...


class Listener:
    """Hears what one program tells, each thing once, and answers whether it should end."""

    def __init__(self, live: LiveRun, *, linger_s: float | None, warn: Callable[[str], None]) -> None:
        """`linger_s` is what it gets to save its model once the target is reached; None lets it go on as it likes."""
        self._live = live
        self._linger_s = linger_s
        self._warn = warn
        self._counted = Counted()
        self._warned = False
        self._no_memory = False
        self.reports = 0

    def hear(self, told: Told) -> Answer:
        """What to answer; once the run is over, nothing that is told changes anything."""
        if self._live.verdict is None and not self._no_memory:
            self._take(told)
        return self._answer()

    def outcome(self, ending: Ending) -> Outcome:
        """How the run ended: by its verdict or, where there is none, from how its program ended."""
        if self._live.verdict is not None:
            return self._live.verdict.outcome
        died = ending.exit_code != 0 and not ending.interrupted
        if self._no_memory or (died and _OUT_OF_MEMORY.search(ending.tail)):
            return Outcome.OUT_OF_MEMORY
        if died or ending.interrupted or not self.reports:
            return Outcome.CRASHED  # a program that never reported says nothing of its batch size either
        return Outcome.MISSED

    def _take(self, told: Told) -> None:
        match told:
            case Report() if self._counted.is_new(told):
                self._counted = self._counted.reported(told)
                self.reports += 1
                self._live.report(told.metric)
            case Step():
                self._counted, count = self._counted.stepped(told)
                if count:
                    self._live.step(count)
            case NoMemory():
                self._no_memory = True
            case Unreadable(complaint) if not self._warned:
                self._warned = True  # once: a log that is no table would complain line after line
                self._warn(complaint)

    def _answer(self) -> Answer:
        verdict = self._live.verdict
        if verdict is not None and verdict.outcome is Outcome.REACHED:
            return GO_ON if self._linger_s is None else Answer(True, verdict.why, self._linger_s)
        if verdict is not None:
            return Answer(True, verdict.why, 0.0)
        return Answer(True, "the batch size does not fit", self._linger_s or 0.0) if self._no_memory else GO_ON
