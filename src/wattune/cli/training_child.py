"""Run a training program, pass its output on, and collect its reports."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from wattune.cli.child import Forwarding, start_child, wait_for
from wattune.cli.output import remark
from wattune.control.reports.file import LineBuffer, MetricFile
from wattune.control.reports.http import Answer, Answerer, MetricServer, ReportQueue
from wattune.control.reports.pattern import PatternSearch
from wattune.control.reports.report import AnyReport, MetricPattern, StepPattern

if TYPE_CHECKING:
    import psutil


POLL_S = 0.05
"""The time between two reads of the metric file."""
TAIL = 1 << 14
"""Bytes of the output that are kept to find out why the program died."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWatch:
    """The channels of a program's metric and steps; at least one of the first three is given."""

    file: Path | None = None
    pattern: MetricPattern | None = None
    port: int | None = None
    """Port for HTTP; 0 lets the system choose, None does not listen."""
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
    """The end of its standard error, and of its standard output where that was searched."""

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
    wait_s: float = POLL_S,
) -> Ending:
    """Run the program, call `answer` with each report in this thread, and return how the program ended.

    `on_wait` is called every `wait_s` at least, and before each report.

    Where an answer is to stop, the program has its time to end by itself, then gets SIGTERM, and `grace_s` later
    SIGKILL; so it does where wattune gets SIGTERM. With `quiet` its standard output goes to standard error.
    """
    with ExitStack() as stack:
        queue = stack.enter_context(ReportQueue())
        environment = dict(environment)
        if watch.port is not None:
            server = stack.enter_context(MetricServer(queue.put, port=watch.port))
            environment |= {"WATTUNE_METRIC_URL": server.url("metric"), "WATTUNE_STEP_URL": server.url("step")}
        file = None if watch.file is None else MetricFile(watch.file)
        forwarding = stack.enter_context(Forwarding(grace_s=grace_s))
        process = start_child(
            command, environment=environment, stdout=_stdout(watch, quiet=quiet), stderr=subprocess.PIPE
        )
        forwarding.to(process)
        child = _Child(
            process=process,
            forwarding=forwarding,
            watch=watch,
            answer=answer,
            file=file,
            places=(2 if quiet else 1, 2),
            grace_s=grace_s,
            on_wait=on_wait,
            wait_s=wait_s,
        )
        try:
            child.follow(queue)
        finally:
            child.leave_none_behind()
        end = forwarding.end()
        return Ending(end.exit_code, end.signal, child.asked, child.tail)


def _stdout(watch: ReportWatch, *, quiet: bool) -> int | None:
    """Return its standard output: a terminal stays a terminal where nothing is searched."""
    if watch.reads_output:
        return subprocess.PIPE
    return sys.stderr.fileno() if quiet else None


@dataclass(kw_only=True, eq=False)
class _Child:
    """A running program and the end of its output."""

    process: subprocess.Popen[bytes]
    forwarding: Forwarding
    watch: ReportWatch
    answer: Answerer
    file: MetricFile | None
    places: tuple[int, int]
    grace_s: float
    on_wait: Callable[[], None]
    wait_s: float
    asked: bool = False
    _end_at_s: float | None = None
    _family: list[psutil.Process] = field(default_factory=list)
    _patterns: PatternSearch = field(default_factory=lambda: PatternSearch(lambda line: remark(f"wattune: {line}")))
    _tail: bytes = b""
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _streams: list[_Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pipe, place in zip((self.process.stdout, self.process.stderr), self.places, strict=True):
            if pipe is not None:
                self._streams.append(_Stream(pipe, place))
                self._selector.register(pipe, selectors.EVENT_READ, self._streams[-1])

    @property
    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def follow(self, queue: ReportQueue) -> None:
        """Pass on output and answer reports until the program has ended."""
        sys.stdout.flush()
        sys.stderr.flush()
        with self._selector:
            self._selector.register(queue.descriptor, selectors.EVENT_READ, None)
            while self.process.poll() is None:
                for key, _ in self._selector.select(self.wait_s):
                    if key.data is not None:
                        self._pass_on(key.data)
                self.on_wait()
                self._read_file(ended=False)
                queue.answer_all(self._handle)
                self._end_in_time()
            self._drain()
        queue.answer_all(self._handle)

    def leave_none_behind(self) -> None:
        """End all its processes, where it was asked to end or wattune fails."""
        for stream in self._streams:
            stream.pipe.close()
        if self.process.poll() is None:
            self._begin_end()
            wait_for(self.process, meanwhile=self.forwarding.kill_overdue)
        if self._family:
            _end_all(self._family, self.grace_s)

    def _drain(self) -> None:
        """Read what is left in its pipes without waiting, since its own children may hold them open."""
        for stream in self._streams:
            if not stream.pipe.closed:
                os.set_blocking(stream.pipe.fileno(), False)
            while not stream.pipe.closed and self._pass_on(stream):
                pass
            for line in stream.lines.rest():
                self._search(line)
        self._read_file(ended=True)

    def _pass_on(self, stream: _Stream) -> bool:
        """Pass on output, then search it; return whether there was any."""
        try:
            data = os.read(stream.pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data or not _write_all(stream.place, data):
            self._selector.unregister(stream.pipe)
            stream.pipe.close()  # if our own output was closed, the program notices at its next write
            return False
        self._tail = (self._tail + data)[-TAIL:]
        for line in stream.lines.feed(data):
            self._search(line)
        return True

    def _search(self, line: str) -> None:
        for pattern in self.watch.patterns:
            report = self._patterns.read(pattern, line)
            if report is not None:
                self._handle(report)

    def _read_file(self, *, ended: bool) -> None:
        if self.file is not None:
            for report in self.file.read(ended=ended):
                self._handle(report)

    def _handle(self, report: AnyReport) -> Answer:
        self.on_wait()
        answer = self.answer(report)
        if answer.stop and self._end_at_s is None:
            self._end_at_s = time.monotonic() + (answer.within_s or 0.0)
        return answer

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


@dataclass(frozen=True, slots=True)
class _Stream:
    """One of the program's pipes, where its output goes, and its lines."""

    pipe: IO[bytes]
    place: int
    lines: LineBuffer = field(default_factory=LineBuffer)


def _write_all(descriptor: int, data: bytes) -> bool:
    """Write everything; return False where the reader has closed."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


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
