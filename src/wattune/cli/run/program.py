"""The program of `wattune run`: how it is started, and how what it prints is searched for patterns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wattune.cli.calling_user import program_uid
from wattune.cli.child import HANDLED_S, ChildEnd, run_child
from wattune.cli.output import remark
from wattune.control.output_relay import OutputRelay
from wattune.control.python_command import loads_hook
from wattune.control.reports.pattern import FoundPhase, PatternFollower, PatternSearch
from wattune.control.reports.printed import PrintedLines

if TYPE_CHECKING:
    from wattune.control.reports.report import PhasePattern, StepPattern
    from wattune.control.step_file import StepFile

STEPS_S, PHASES_S = 0.05, 0.01
"""Between two searches: lines have their own times, but a phase may need its clock soon."""
RARE_S = 0.1
"""Between two looks for steps after ten seconds: a short program needs them often, since it has few."""


class TakesSteps(Protocol):
    """Anything that gets the steps and phases of a program."""

    def step(self, count: int, *, age_s: float) -> None:
        """Count steps, the last of which ended so long ago."""

    def phase(self, name: str, *, age_s: float) -> None:
        """Note that a phase of a step began so long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run."""

    command: Sequence[str]
    environment: Mapping[str, str]
    places: tuple[int, int] | None
    """Descriptors for its standard output and standard error; None where it simply has ours, which may be closed."""
    grace_s: float
    on_start: Callable[[int], None]
    on_stop: Callable[[], None] | None = None
    """Called before Ctrl-Z stops wattune and the program."""
    on_wait: Callable[[], None] | None = None
    """Called often while it runs."""

    def run(self) -> ChildEnd:
        """Run it and return how it ended."""
        begun_s = time.monotonic()

        def wait_s() -> float:
            return HANDLED_S if self.on_wait is None else _rarer_s(time.monotonic() - begun_s)

        return run_child(
            self.command,
            environment=self.environment,
            places=self.places,
            on_start=self.on_start,
            on_stop=self.on_stop,
            on_wait=self.on_wait,
            wait_s=wait_s,
            grace_s=self.grace_s,
        )

    def run_searched(
        self,
        taker: TakesSteps,
        steps: StepPattern,
        phases: PhasePattern | None,
        *,
        file: StepFile,
        injects: bool,
    ) -> tuple[ChildEnd, str | None]:
        """Run it and pass on the steps and phases that it prints.

        Return how it ended, and a note where no step was found. A program whose Python copies what it prints writes
        to its own output; another one through a relay.
        """
        copies, places = injects and loads_hook(self.command), self.places or (1, 2)
        with ExitStack() as stack:
            lines = PrintedLines.beside(places, file)
            stack.callback(lines.close)
            found = PatternFollower(lines, PatternSearch(lambda line: remark(f"wattune: {line}")), steps, phases)
            with ExitStack() as relayed:
                made = OutputRelay.made(places, file, owner=program_uid())
                relay = None if copies else relayed.enter_context(made)
                end = self._run_read(found, taker, relay, often=phases is not None)
            _report(found, taker, ended=True)
        where = " that its Python printed (--no-inject searches all output)" if copies else ""
        note = f"--step-pattern {steps.regex.pattern!r} matched no line{where}"
        return end, None if found.matched else note

    def _run_read(
        self, found: PatternFollower, taker: TakesSteps, relay: OutputRelay | None, *, often: bool
    ) -> ChildEnd:
        def on_start(pid: int) -> None:
            if relay is not None:
                relay.started()
            self.on_start(pid)

        def on_wait() -> None:
            _report(found, taker)
            if self.on_wait is not None:
                self.on_wait()

        environment = dict(self.environment)
        if relay is not None:
            # Python buffers what goes into a pipe or a file; lines that come late would be useless.
            environment["PYTHONUNBUFFERED"] = environment.get("PYTHONUNBUFFERED") or "1"
        return run_child(
            self.command,
            environment=environment,
            places=self.places if relay is None else relay.places,
            on_start=on_start,
            on_stop=self.on_stop,
            on_wait=on_wait,
            wait_s=lambda: PHASES_S if often else STEPS_S,
            grace_s=self.grace_s,
        )


def _rarer_s(age_s: float) -> float:
    """Return the time until the next look for steps of a program that has run for so long."""
    return min(max(age_s / 100, STEPS_S), RARE_S)


def _report(found: PatternFollower, taker: TakesSteps, *, ended: bool = False) -> None:
    for one in found.take(ended=ended):
        if isinstance(one, FoundPhase):
            taker.phase(one.name, age_s=one.age_s)
        else:
            taker.step(one.count, age_s=one.age_s)
