"""Run a training program and collect its reports; a relay passes its output on (`control.output_relay`)."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wattune.cli.calling_user import program_uid
from wattune.cli.child import Forwarding, start_child, wait_for
from wattune.cli.output import remark
from wattune.control.output_relay import DRAINED_S, OutputRelay, RelayedText
from wattune.control.reports.file import LineBuffer, MetricFile
from wattune.control.reports.pattern import PatternSearch
from wattune.control.reports.report import Answerer, AnyReport, MetricPattern, StepPattern, StepReport

if TYPE_CHECKING:
    import psutil


POLL_S = 0.05
"""The time between two reads of the metric file."""
TAIL = 1 << 14
"""Bytes of the output that are kept to find out why the program died."""
LATE_S = 1.0
"""After a signal, reports are answered for so long at most: the GPUs of a slow driver are to be restored soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWatch:
    """The channels of a program's metric and steps; one of the first two is given."""

    file: Path | None = None
    pattern: MetricPattern | None = None
    steps: StepPattern | None = None

    @property
    def reads_output(self) -> bool:
        return bool(self.patterns)

    @property
    def patterns(self) -> tuple[MetricPattern | StepPattern, ...]:
        """All that is searched in a line: the step before the metric, since the step is part of the epoch."""
        return tuple(pattern for pattern in (self.steps, self.pattern) if pattern is not None)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program."""

    exit_code: int
    signal: int | None
    """The signal that was meant to end wattune and was forwarded to it, if any."""
    asked: bool
    """True if wattune ended it."""
    tail: str
    """The end of its output."""

    @property
    def interrupted(self) -> bool:
        return self.signal is not None


def run_watched(
    command: Sequence[str],
    watch: ReportWatch,
    answer: Answerer,
    *,
    environment: Mapping[str, str],
    grace_s: float,
    quiet: bool = False,
    on_wait: Callable[[], None] = lambda: None,
    wait_s: Callable[[], float] = lambda: POLL_S,
) -> Ending:
    """Run the program, call `answer` with each report in this thread, and return how the program ended.

    `on_wait` is called after each `wait_s` at least, and before each report, until a signal asks wattune to end.

    Where an answer is to stop, the program has its time to end by itself, then gets SIGTERM, and `grace_s` later
    SIGKILL; so it does where wattune gets SIGTERM. With `quiet` its standard output goes to standard error.
    """
    with ExitStack() as stack:
        file = None if watch.file is None else MetricFile(watch.file)
        relay, output = stack.enter_context(OutputRelay.copied((2 if quiet else 1, 2), owner=program_uid()))
        forwarding = stack.enter_context(Forwarding(grace_s=grace_s))
        out, err = relay.places
        process = start_child(command, environment=environment, stdout=out, stderr=err)
        forwarding.to(process)
        relay.started()
        child = _Child(
            process=process,
            forwarding=forwarding,
            watch=watch,
            answer=answer,
            file=file,
            output=output,
            grace_s=grace_s,
            on_wait=on_wait,
            wait_s=wait_s,
        )
        try:
            child.follow()
        finally:
            child.leave_none_behind()
        end = forwarding.end()
        return Ending(end.exit_code, end.signal, child.asked, child.tail)


@dataclass(kw_only=True, eq=False)
class _Child:
    """A running program and the end of its output."""

    process: subprocess.Popen[bytes]
    forwarding: Forwarding
    watch: ReportWatch
    answer: Answerer
    file: MetricFile | None
    output: RelayedText
    grace_s: float
    on_wait: Callable[[], None]
    wait_s: Callable[[], float]
    asked: bool = False
    _end_at_s: float | None = None
    _answer_s: float = 0.0
    """The time that the last answer took; from a signal on, that and all that followed."""
    _family: list[psutil.Process] = field(default_factory=list)
    _patterns: PatternSearch = field(default_factory=lambda: PatternSearch(lambda line: remark(f"wattune: {line}")))
    _tail: bytes = b""
    _lines: dict[int, LineBuffer] = field(default_factory=lambda: defaultdict(LineBuffer))
    """By the number of the stream."""

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def follow(self) -> None:
        """Search the output and answer reports until the program has ended."""

        def meanwhile() -> None:
            if self.output.is_ready():
                self._read_output()
            self._wait_on()
            self._read_file(ended=False)
            self._end_in_time()

        def wakes() -> tuple[int, ...]:
            return (self.output.descriptor,) if self.output.is_open else ()

        wait_for(self.process, meanwhile=meanwhile, wait_s=self.wait_s, wakes=wakes)
        self._end_family()
        self._read_rest()

    def leave_none_behind(self) -> None:
        """End all its processes, where wattune fails; what they still print is passed on without a search."""
        self.output.close()
        if self.process.poll() is None:
            self._begin_end()
            wait_for(self.process, meanwhile=self.forwarding.kill_overdue)
            self._end_family()

    def _end_family(self) -> None:
        """End the processes that it had when it was asked to end."""
        family, self._family = self._family, []
        if family:
            _end_all(family, self.grace_s)

    def _read_output(self) -> None:
        for stream, data in self.output.read():
            self._tail = (self._tail + data)[-TAIL:]
            for line in self._lines[stream].feed(data):
                self._search(line)

    def _read_rest(self) -> None:
        """Read what is left of its output; its own children may hold that open, and are not waited for."""
        end_s = time.monotonic() + DRAINED_S
        while self.output.is_ready(max(end_s - time.monotonic(), 0.0)):
            self._read_output()
        for lines in self._lines.values():
            for line in lines.rest():
                self._search(line)
        self._read_file(ended=True)

    def _search(self, line: str) -> None:
        for pattern in self.watch.patterns:
            report = self._patterns.read(pattern, line)
            if report is not None:
                self._handle(report)

    def _read_file(self, *, ended: bool) -> None:
        if self.file is not None:
            for report in self.file.read(ended=ended):
                self._handle(report)

    def _wait_on(self) -> None:
        if self.forwarding.received is None:
            self.on_wait()

    def _handle(self, report: AnyReport) -> None:
        ends = self.forwarding.received is not None
        if ends and (isinstance(report, StepReport) or self._answer_s > LATE_S):
            return  # the run ends: its GPUs are restored before anything else is read from them
        self._wait_on()
        begun_s = time.monotonic()
        answer = self.answer(report)
        self._answer_s = time.monotonic() - begun_s + (self._answer_s if ends else 0.0)
        if answer.stop and self._end_at_s is None:
            self._end_at_s = time.monotonic() + answer.within_s

    def _end_in_time(self) -> None:
        """Ask it to end when that is due, and kill it once its grace period is over."""
        if not self.asked and self._end_at_s is not None and time.monotonic() >= self._end_at_s:
            self._begin_end()
        self.forwarding.kill_overdue()

    def _begin_end(self) -> None:
        """Ask it to end; note its children before, since orphans cannot be found later."""
        import psutil

        self.asked = True
        try:
            self._family = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            self._family = []
        self.forwarding.ask_to_end()


def _end_all(family: Sequence[psutil.Process], grace_s: float) -> None:
    """End these processes, at last with SIGKILL."""
    import psutil

    def each(act: Callable[[psutil.Process], None], processes: Sequence[psutil.Process]) -> None:
        for process in processes:
            try:
                act(process)
            except psutil.Error:
                continue

    alive = [process for process in family if process.is_running()]
    each(lambda process: process.terminate(), alive)
    _, alive = psutil.wait_procs(alive, timeout=grace_s)
    each(lambda process: process.kill(), alive)
