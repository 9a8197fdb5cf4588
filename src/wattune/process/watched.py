"""Run a program and pass on what it reports meanwhile: steps, phases and metrics, in its output or in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from wattune.process.injected.relay import AWAITED, BESIDE, INSTEAD
from wattune.process.metric_file import MetricFile
from wattune.process.output import UNKNOWN, OneProcess, OutputRelay, PrintedLine, PrintedLines
from wattune.process.patterns import (
    AnyPattern,
    AnyReport,
    PatternSearch,
    PhasePattern,
    PhaseReport,
    StepCount,
    StepPattern,
    StepReport,
)
from wattune.process.program import Program, ProgramEnd, Running, Waits
from wattune.process.python_command import loads_hook
from wattune.process.step_file import NewSteps, StepFile

POLL_S, PHASES_S = 0.05, 0.01
"""The time between two looks at what it reports: lines have their own times, but a phase may need its clock soon."""
RARE_S = 0.1
"""The same after ten seconds, where a program counts its steps itself."""


def rarer_waits() -> Waits:
    """Return waits that become longer with the age of a program: a short one has few steps, which are needed early."""
    begun_s = time.monotonic()
    return lambda: min(max((time.monotonic() - begun_s) / 100, POLL_S), RARE_S)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a report: whether the program should end, and within what time."""

    stop: bool = False
    within_s: float = 0.0
    """Seconds to end by itself."""


GO_ON = Answer()


@dataclass(frozen=True, slots=True)
class Reported:
    """A report; several steps where one process has printed them at once, as one that buffers its output does."""

    reports: tuple[AnyReport, ...]
    age_s: float = 0.0
    """How long ago."""
    pid: int = UNKNOWN


Answerer = Callable[[Reported], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The channels on which a program reports."""

    patterns: tuple[AnyPattern, ...] = ()
    """What is searched in its lines: the step first, since it is part of an epoch and ends before a phase begins."""
    file: Path | None = None
    """The file into which it writes its metric."""
    copied: StepFile | None = None
    """Where the hook in its Python copies what it prints."""
    late_s: float | None = None
    """None where the program is only observed, and goes on where wattune fails. A program that wattune itself ends has
    this limit: after a signal, its steps are left out and other reports are answered for so long at most."""

    @property
    def mode(self) -> str:
        """How its output is relayed: a report decides about a program that wattune ends, so that none may be lost."""
        return BESIDE if self.late_s is None else AWAITED

    def relays(self, command: Sequence[str]) -> bool:
        """Return whether a relay reads the output; a program whose Python copies it writes to its own output."""
        return self.copied is None or not loads_hook(command)


class PrintedReports:
    """What patterns find in the lines of a program. One process stands for all, since ranks print the same."""

    def __init__(self, lines: PrintedLines, patterns: Sequence[AnyPattern], *, warn: Callable[[str], object]) -> None:
        self._lines, self._patterns = lines, patterns
        self._search, self._process = PatternSearch(warn), OneProcess()

    def take(self, *, ended: bool = False) -> tuple[Reported, ...]:
        """Return what is new, in order; of a program that has ended also that in lines without an end."""
        new = self._lines.new(ended=ended)
        found = {pid: reports for pid, lines in new.items() if (reports := tuple(self._found(pid, lines)))}
        followed = self._process.among(tuple(found))
        return () if followed is None else _together(found[followed])

    def _found(self, pid: int, lines: list[PrintedLine]) -> Iterator[Reported]:
        for line in lines:
            for pattern in self._patterns:
                report = self._search.read(pattern, line.text)
                if report is not None:
                    yield Reported((report,), line.age_s, pid)


def _together(reported: Sequence[Reported]) -> tuple[Reported, ...]:
    """Join steps that were printed at once."""
    found: list[Reported] = []
    for one in reported:
        before = found[-1] if found else None
        if before is not None and before.age_s == one.age_s and _are_steps(before) and _are_steps(one):
            found[-1] = replace(before, reports=before.reports + one.reports)
        else:
            found.append(one)
    return tuple(found)


def _are_steps(reported: Reported) -> bool:
    return all(isinstance(report, StepReport) for report in reported.reports)


@dataclass(frozen=True, slots=True)
class FoundPhase:
    """A phase, and how long ago it began."""

    name: str
    age_s: float


@dataclass(slots=True)
class ReportedSteps:
    """The steps and phases in what a program reports."""

    matched: bool = False
    """Whether a step was found."""
    _counts: dict[int, StepCount] = field(default_factory=dict)

    def of(self, reported: Reported) -> NewSteps | FoundPhase | None:
        """Return the new steps or the phase of a report; None where there are none.

        The first step of a process counts as one, since a program may go on from the number of a checkpoint.
        """
        count = 0
        for report in reported.reports:
            if isinstance(report, PhaseReport):
                return FoundPhase(report.name, reported.age_s)
            if isinstance(report, StepReport):
                self.matched = True
                before = self._counts.get(reported.pid)
                self._counts[reported.pid], more = (before or StepCount()).stepped(report)
                count += 1 if before is None else more
        return NewSteps(count, reported.age_s) if count else None


class TakesSteps(Protocol):
    """Anything that gets the steps and phases of a program."""

    def step(self, count: int, *, age_s: float) -> None:
        """Count steps, the last of which ended so long ago."""

    def phase(self, name: str, *, age_s: float) -> None:
        """Note that a phase of a step began so long ago."""


def run_counted(
    program: Program,
    taker: TakesSteps,
    patterns: tuple[StepPattern] | tuple[StepPattern, PhasePattern],
    *,
    copied: StepFile | None,
    warn: Callable[[str], object],
    on_wait: Callable[[], None] = lambda: None,
) -> tuple[ProgramEnd, str | None]:
    """Run a program and pass on the steps and phases that it prints.

    Return how it ended, and a note where no step was found. `copied` is where the hook in its Python copies what it
    prints, if it has one.
    """
    steps, watch = ReportedSteps(), Watch(patterns=patterns, copied=copied)

    def take(reported: Reported) -> Answer:
        match steps.of(reported):
            case NewSteps(count, age_s):
                taker.step(count, age_s=age_s)
            case FoundPhase(name, age_s):
                taker.phase(name, age_s=age_s)
        return GO_ON

    wait_s = POLL_S if len(patterns) == 1 else PHASES_S
    end = run_watched(program, watch, take, warn=warn, on_wait=on_wait, wait_s=lambda: wait_s)
    if steps.matched:
        return end, None
    where = "" if watch.relays(program.command) else " that its Python printed (--no-inject searches all output)"
    return end, f"--step-pattern {patterns[0].regex.pattern!r} matched no line{where}"


def run_watched(
    program: Program,
    watch: Watch,
    answer: Answerer,
    *,
    warn: Callable[[str], object],
    on_wait: Callable[[], None] = lambda: None,
    wait_s: Waits = lambda: POLL_S,
) -> ProgramEnd:
    """Run a program, call `answer` with each report in this thread, and return how the program ended.

    `on_wait` is called after each `wait_s` at least, and before each report, until a signal asks wattune to end. Where
    an answer is to stop, the program has its time to end by itself, then gets SIGTERM, and later SIGKILL; so it does
    where wattune fails.
    """
    with ExitStack() as stack:
        file, relay = None if watch.file is None else MetricFile(watch.file), None
        places = program.places or (1, 2)
        if watch.relays(program.command):
            relay = stack.enter_context(OutputRelay.made(places, owner=program.uid, mode=watch.mode))
            program = _relayed(program, relay, searched=bool(watch.patterns))
            lines = PrintedLines((), watch.copied, relay.text)
        else:
            lines = PrintedLines.beside(places, watch.copied)
        stack.callback(lines.close)
        running = stack.enter_context(program.started())
        reports = PrintedReports(lines, watch.patterns, warn=warn)
        watched = _Watched(running, watch, answer, reports, file, on_wait)
        try:
            watched.follow(wait_s)
        except BaseException:
            if relay is not None:
                relay.text.close()  # what it still prints is passed on without a search
            if watch.late_s is not None:
                watched.leave_none_behind()
            raise
        tail = b"" if relay is None else relay.text.tail
        return replace(running.end(), tail=tail.decode("utf-8", "replace"))


def _relayed(program: Program, relay: OutputRelay, *, searched: bool) -> Program:
    """Return the program that prints to a relay."""

    def on_start(pid: int) -> None:
        relay.started()
        if program.on_start is not None:
            program.on_start(pid)

    return replace(program.unbuffered() if searched else program, places=relay.places, on_start=on_start)


@dataclass(slots=True)
class _Watched:
    """A running program and its reports."""

    running: Running
    watch: Watch
    answer: Answerer
    reports: PrintedReports
    file: MetricFile | None
    on_wait: Callable[[], None]
    _end_at_s: float | None = None
    _answer_s: float = 0.0
    """The time that the last answer took; from a signal on, that and all that followed."""

    def follow(self, wait_s: Waits) -> None:
        """Answer reports until the program has ended, and then what is left of them."""

        def meanwhile() -> None:
            self._wait_on()
            self._answer_new(ended=False)
            self._end_in_time()

        self.running.wait(meanwhile, wait_s=wait_s)
        self._answer_new(ended=True)

    def leave_none_behind(self) -> None:
        """End all its processes, where wattune fails."""
        if not self.running.has_ended:
            self.running.ask_to_end()
            self.running.wait()

    def _answer_new(self, *, ended: bool) -> None:
        for reported in self.reports.take(ended=ended):
            self._handle(reported)
        if self.file is not None:
            for report in self.file.read(ended=ended):
                self._handle(Reported((report,)))

    @property
    def _ends(self) -> bool:
        """True once a signal has ended the run: its GPUs are restored before anything else is read from them."""
        return self.watch.late_s is not None and self.running.received is not None

    def _wait_on(self) -> None:
        if not self._ends:
            self.on_wait()

    def _handle(self, reported: Reported) -> None:
        ends = self._ends
        if ends and (_are_steps(reported) or self._answer_s > (self.watch.late_s or 0.0)):
            return
        self._wait_on()
        begun_s = time.monotonic()
        answer = self.answer(reported)
        self._answer_s = time.monotonic() - begun_s + (self._answer_s if ends else 0.0)
        if answer.stop and self._end_at_s is None:
            self._end_at_s = time.monotonic() + answer.within_s

    def _end_in_time(self) -> None:
        """Ask it to end when that is due."""
        if not self.running.asked and self._end_at_s is not None and time.monotonic() >= self._end_at_s:
            self.running.ask_to_end()


def run_printed(program: Program, say: Callable[[str], object]) -> ProgramEnd:
    """Run a program whose lines `say` prints instead of it, where they would go to a terminal."""
    with OutputRelay.made(program.places or (1, 2), owner=program.uid, mode=INSTEAD) as relay:
        lines = PrintedLines((), None, relay.text)

        def print_new(*, ended: bool = False) -> None:
            for line in (line for found in lines.new(ended=ended).values() for line in found):
                say(line.text)

        end = _relayed(program, relay, searched=False).run(print_new, wait_s=lambda: POLL_S)
        print_new(ended=True)
        return end
