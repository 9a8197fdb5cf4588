"""One recurrence of a job: its program is run with the batch size that was chosen, and again where that was in vain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from wattune.cli.job.child import Ending, run_watched
from wattune.cli.job.listener import Listener, LiveRun
from wattune.cli.job.program import Program
from wattune.core.errors import InputError
from wattune.core.job import JobRun, Outcome

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
    program: Program, new_session: Callable[[], Session], patience: Patience, *, quiet: bool, say: Say
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
    program: Program, session: Session, patience: Patience, *, replaces: str | None, quiet: bool, say: Say
) -> Attempt:
    from wattune.cli.job.screen import end_line

    try:
        run = session.start(replaces=replaces)
        program.play(run)
        say(f"run {run.id[:8]}: batch size {run.batch_size}: {run.why}")
        command_line, watch, environment = program.for_run(run)
        listener = Listener(session, linger_s=patience.linger_s, warn=say)
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
