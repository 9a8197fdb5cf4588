"""One recurrence of a job: run its program with the chosen batch size, and again where the target was not reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wattune.cli.job.program import JobProgram
from wattune.cli.job.steps import ProgramSteps
from wattune.control.actuator import restored_if_slow
from wattune.core.errors import InputError
from wattune.core.job import JobRun, Outcome
from wattune.process.patterns import AnyReport, NoMemory, Report, StepCount, StepPattern, StepReport, Unreadable
from wattune.process.program import ProgramEnd
from wattune.process.watched import GO_ON, Answer, Reported, run_watched

if TYPE_CHECKING:
    from wattune.core.tariff import Tariff
    from wattune.levels.job.session import RecurringRun

_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|out_of_memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED", re.IGNORECASE
)
"""Messages of PyTorch, CUDA, HIP and XLA for a batch that does not fit."""


class ReportListener:
    """Takes the reports of one program, each once, and answers whether it should end."""

    def __init__(
        self, live: RecurringRun, steps: ProgramSteps, *, linger_s: float | None, warn: Callable[[str], None]
    ) -> None:
        """`linger_s` is the time to save the model once the target is reached; None never ends the program then."""
        self._live, self._steps = live, steps
        self._linger_s = linger_s
        self._warn = warn
        self._counted = StepCount()
        self._warned = False
        self._no_memory = False
        self.reports = 0

    def take(self, reported: Reported) -> Answer:
        """Take a report and answer it; once the run is over, reports change nothing."""
        for report in reported.reports:
            if self._live.verdict is None and not self._no_memory:
                self._count(report, reported.age_s)
        return self._answer()

    def outcome(self, ending: ProgramEnd) -> Outcome:
        """Return the outcome: that of the verdict or, without one, from how the program ended."""
        if self._live.verdict is not None:
            return self._live.verdict.outcome
        died = ending.exit_code != 0 and not ending.interrupted
        if self._no_memory or (died and _OUT_OF_MEMORY.search(ending.tail)):
            return Outcome.OUT_OF_MEMORY
        if died or ending.interrupted or not self.reports:
            return Outcome.CRASHED  # without a report, nothing is known of its batch size
        return Outcome.MISSED

    def _count(self, report: AnyReport, age_s: float) -> None:
        match report:
            case Report() if self._counted.is_new(report):
                self._steps.follow()
                self._counted = self._counted.reported(report)
                self.reports += 1
                self._live.report(report.metric)
            case StepReport():
                self._counted, count = self._counted.stepped(report)
                if count:
                    self._steps.reported(count, age_s=age_s)
            case NoMemory():
                self._no_memory = True
            case Unreadable(complaint) if not self._warned:
                self._warned = True  # once: a log that is no table would cause a warning per line
                self._warn(complaint)

    def _answer(self) -> Answer:
        verdict = self._live.verdict
        if verdict is not None and verdict.outcome is Outcome.REACHED:
            return GO_ON if self._linger_s is None else Answer(True, self._linger_s)
        if verdict is not None:
            return Answer(True)
        return Answer(True, self._linger_s or 0.0) if self._no_memory else GO_ON


AGAIN = (Outcome.STOPPED, Outcome.MISSED, Outcome.OUT_OF_MEMORY)
"""Outcomes after which another run replaces the one that ended."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that has ended, why, and how its program ended."""

    run: JobRun
    why: str
    ending: ProgramEnd

    @property
    def exit_code(self) -> int:
        """That of the program, but 0 where it was ended at its target, and never 0 where it missed that.

        A program that ended in good order after a signal gives 128 + n.
        """
        if self.run.outcome is Outcome.REACHED:
            return 0 if self.ending.asked else self.ending.exit_code
        if self.ending.interrupted:
            return self.ending.exit_code or 128 + (self.ending.signal or 0)
        return 1 if self.ending.asked else self.ending.exit_code or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Time that a program has to end, and number of attempts."""

    attempts: int
    linger_s: float | None
    """Time to save the model once the target is reached; None does not end the program then."""


def run_recurrence(
    program: JobProgram,
    new_run: Callable[[], RecurringRun],
    patience: Patience,
    *,
    tariff: Tariff,
    say: Say,
) -> tuple[Attempt, ...]:
    """Run the program until it reaches the target, an outcome forbids a repetition, or the attempts are used up."""
    from wattune.cli.job.output import end_line
    from wattune.cli.output import trust_lines

    attempts: list[Attempt] = []
    while len(attempts) < patience.attempts:
        replaces = attempts[-1].run.id if attempts else None
        attempts.append(_attempt(program, new_run(), patience, replaces=replaces, say=say))
        run = attempts[-1].run
        say(end_line(run, attempts[-1].why, tariff))
        for line in trust_lines(run.gpu.simulated and len(attempts) == 1, run.gpu.name):
            say(line)
        if attempts[-1].run.outcome not in AGAIN or attempts[-1].ending.interrupted:
            break
    return tuple(attempts)


def _attempt(program: JobProgram, live: RecurringRun, patience: Patience, *, replaces: str | None, say: Say) -> Attempt:
    try:
        run = live.start(replaces=replaces)
        program.play(run)
        say(f"run {run.id[:8]}: batch size {run.batch_size}: {run.why}")
        started, watch = program.for_run(run)
        has_pattern = any(isinstance(pattern, StepPattern) for pattern in watch.patterns)
        counted = ProgramSteps.of(live, injects=program.injects, has_pattern=has_pattern, uid=started.uid, warn=say)
        with counted as (steps, hooked):
            listener = ReportListener(live, steps, linger_s=patience.linger_s, warn=say)
            started = replace(started, environment=hooked(started.variables))
            ending = run_watched(
                started, watch, listener.take, warn=say, on_wait=steps.turn, wait_s=lambda: steps.wait_s
            )
        why = "" if live.verdict is None else live.verdict.why
        with restored_if_slow(program.gpus):
            run = live.end(listener.outcome(ending))
    except BaseException as error:
        with suppress(InputError):  # it may not have started
            live.end(error=error)
        raise
    return Attempt(run, why, ending)
