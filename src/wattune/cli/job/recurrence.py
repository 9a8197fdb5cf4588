"""One recurrence of a job: its program is run with the batch size that was chosen, and again where that was in vain."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wattune.cli.job.program import JobProgram
from wattune.cli.training_child import Ending, run_watched
from wattune.control.reports.http import Answer
from wattune.control.reports.report import NoMemory, Report, StepCount, StepReport, Told, Unreadable
from wattune.core.errors import InputError
from wattune.core.job import JobRun, Outcome

if TYPE_CHECKING:
    from wattune.levels.job.session import RunVerdict


GO_ON = Answer()

_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|out_of_memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED", re.IGNORECASE
)
"""How PyTorch, CUDA, HIP and XLA say that a batch does not fit."""


class LiveRun(Protocol):
    """A run that is tuned while it goes."""

    @property
    def verdict(self) -> RunVerdict | None:
        """How the run ended and why; None while it should go on."""
        ...

    def step(self, count: int = 1) -> None:
        """Nothing; so many more iterations are over."""
        ...

    def report(self, metric: float | None) -> RunVerdict | None:
        """How the run ended, after one more epoch; None where it should go on."""
        ...


class ReportListener:
    """Hears what one program tells, each thing once, and answers whether it should end."""

    def __init__(self, live: LiveRun, *, linger_s: float | None, warn: Callable[[str], None]) -> None:
        """`linger_s` is what it gets to save its model once the target is reached; None lets it go on as it likes."""
        self._live = live
        self._linger_s = linger_s
        self._warn = warn
        self._counted = StepCount()
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
            case StepReport():
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


AGAIN = (Outcome.STOPPED, Outcome.MISSED, Outcome.OUT_OF_MEMORY)
"""Endings after which another run takes the place of the one that ended."""

Say = Callable[[str], None]


class Session(LiveRun, Protocol):
    """A run that is tuned, and kept in the history, while its program goes."""

    @property
    def run(self) -> JobRun:
        """How it stands."""
        ...

    def start(self, *, replaces: str | None = None) -> JobRun:
        """The run that was chosen; it replaces the run of that id, if one is given."""
        ...

    def end(self, outcome: Outcome | None = None, *, error: BaseException | None = None) -> JobRun:
        """The run, ended; the GPUs are as they were found."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that is over, why it should end if that was said, and how its program ended."""

    run: JobRun
    why: str
    ending: Ending

    @property
    def exit_code(self) -> int:
        """The program's own, but 0 where we ended it at its target, and never 0 where it missed that."""
        if self.run.outcome is Outcome.REACHED:
            return 0 if self.ending.asked else self.ending.exit_code
        if self.ending.interrupted:
            return self.ending.exit_code
        return 1 if self.ending.asked else self.ending.exit_code or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a program may take to end, and how often it is run."""

    attempts: int
    linger_s: float | None
    """What it gets to save its model once the target is reached; None leaves it alone."""
    grace_s: float
    """From SIGTERM to SIGKILL."""


def run_recurrence(
    program: JobProgram, new_session: Callable[[], Session], patience: Patience, *, quiet: bool, say: Say
) -> tuple[Attempt, ...]:
    """The attempts of one recurrence, of which the last reached the target or is not to be repeated."""
    attempts: list[Attempt] = []
    while len(attempts) < patience.attempts:
        replaces = attempts[-1].run.id if attempts else None
        attempts.append(_attempt(program, new_session(), patience, replaces=replaces, quiet=quiet, say=say))
        if attempts[-1].run.outcome not in AGAIN or attempts[-1].ending.interrupted:
            break
    return tuple(attempts)


def _attempt(
    program: JobProgram, session: Session, patience: Patience, *, replaces: str | None, quiet: bool, say: Say
) -> Attempt:
    from wattune.cli.job.screen import end_line

    try:
        run = session.start(replaces=replaces)
        program.play(run)
        say(f"run {run.id[:8]}: batch size {run.batch_size}: {run.why}")
        command_line, watch, environment = program.for_run(run)
        listener = ReportListener(session, linger_s=patience.linger_s, warn=say)
        ending = run_watched(
            command_line, watch, listener.hear, environment=environment, quiet=quiet, grace_s=patience.grace_s
        )
        why = "" if session.verdict is None else session.verdict.why
        run = session.end(listener.outcome(ending))
        say(end_line(run, why))
    except BaseException as error:
        with suppress(InputError):  # it may not even have begun
            session.end(error=error)
        raise
    return Attempt(run, why, ending)
