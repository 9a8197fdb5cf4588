"""Somebody's training program, run and listened to: its output is passed on as it comes, and searched on the way."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from wattune.cli.child import Forwarding, shell_code, start_child
from wattune.control.reports.file import LineBuffer, MetricFile
from wattune.control.reports.http import Answer, Hear, MetricServer, ReportQueue
from wattune.control.reports.pattern import MetricPattern, StepPattern
from wattune.control.reports.report import Told

if TYPE_CHECKING:
    import psutil


POLL_S = 0.05
"""How often the metric file is looked at."""
TAIL = 1 << 14
"""Bytes of its output that are kept to see why it died."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWatch:
    """The ways in which a program tells its metric and its steps; at least one of the first three is there."""

    file: Path | None = None
    pattern: MetricPattern | None = None
    port: int | None = None
    """Where to listen for HTTP; 0 leaves the choice to the system, None does not listen."""
    steps: StepPattern | None = None

    @property
    def reads_output(self) -> bool:
        """Whether what the program prints is searched."""
        return self.pattern is not None or self.steps is not None

    def found(self, line: str) -> tuple[Told, ...]:
        """What a line of output tells: its step before its metric, since the step is part of the epoch."""
        patterns = (self.steps, self.pattern)
        found = (None if pattern is None else pattern.read(line) for pattern in patterns)
        return tuple(told for told in found if told is not None)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended."""

    exit_code: int
    interrupted: bool
    """Whether a signal meant to end us went to it."""
    asked: bool
    """Whether we ended it."""
    tail: str
    """The last of what it printed on standard error, and on standard output where that was searched."""


def run_watched(
    command: Sequence[str],
    watch: ReportWatch,
    hear: Hear,
    *,
    environment: Mapping[str, str],
    quiet: bool,
    grace_s: float,
    on_start: Callable[[int], None] | None = None,
) -> Ending:
    """How the program ended, after `hear` was told all it had to tell, in this thread.

    Where an answer says stop, the program gets so many seconds to end by itself, then SIGTERM, and `grace_s` later
    SIGKILL. With `quiet` its standard output goes to standard error. `on_start` is told its process number as soon as
    it has one.
    """
    with ExitStack() as stack:
        queue = stack.enter_context(ReportQueue())
        environment = dict(environment)
        if watch.port is not None:
            server = stack.enter_context(MetricServer(queue.tell, port=watch.port))
            environment |= {"WATTUNE_METRIC_URL": server.metric_url, "WATTUNE_STEP_URL": server.step_url}
        file = None if watch.file is None else MetricFile(watch.file)
        forwarding = stack.enter_context(Forwarding())
        process = start_child(
            command, environment=environment, stdout=_stdout(watch, quiet=quiet), stderr=subprocess.PIPE
        )
        forwarding.to(process)
        if on_start is not None:
            on_start(process.pid)
        child = _Child(process, watch, hear, file=file, quiet=quiet, grace_s=grace_s)
        try:
            child.follow(queue)
        finally:
            child.leave_none_behind()
        return Ending(shell_code(process.returncode), forwarding.came, child.asked, child.tail)


def _stdout(watch: ReportWatch, *, quiet: bool) -> int | None:
    """What to give it as standard output: a terminal stays a terminal where nothing needs to be searched."""
    if watch.reads_output:
        return subprocess.PIPE
    return sys.stderr.fileno() if quiet else None


class _Child:
    """A program that runs, and what it has printed lately."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        watch: ReportWatch,
        hear: Hear,
        *,
        file: MetricFile | None,
        quiet: bool,
        grace_s: float,
    ) -> None:
        self._process = process
        self._watch = watch
        self._answer = hear
        self._file = file
        self._grace_s = grace_s
        self._signal: tuple[float, signal.Signals] | None = None
        self.asked = False
        self._family: list[psutil.Process] = []
        self._tail = b""
        self._selector = selectors.DefaultSelector()
        self._streams: list[_Stream] = []
        for pipe, place in ((process.stdout, 2 if quiet else 1), (process.stderr, 2)):
            if pipe is not None:
                self._streams.append(_Stream(pipe, place))
                self._selector.register(pipe, selectors.EVENT_READ, self._streams[-1])

    @property
    def tail(self) -> str:
        """The last of what it printed."""
        return self._tail.decode("utf-8", "replace")

    def follow(self, queue: ReportQueue) -> None:
        """Nothing; the program has ended and all that it told was heard."""
        sys.stdout.flush()
        sys.stderr.flush()
        with self._selector:
            self._selector.register(queue.descriptor, selectors.EVENT_READ, None)
            while self._process.poll() is None:
                for key, _ in self._selector.select(POLL_S):
                    if key.data is not None:
                        self._pass_on(key.data)
                self._read_file(ended=False)
                queue.answer(self._hear)
                self._send_signal()
            self._drain()
        queue.answer(self._hear)

    def leave_none_behind(self) -> None:
        """Nothing; where the program was asked to end, or we fail, none of its processes is left."""
        for stream in self._streams:
            stream.pipe.close()
        if self._process.poll() is None:
            self._begin_end()
            try:
                self._process.wait(self._grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._family:
            _end_all(self._family, self._grace_s)

    def _drain(self) -> None:
        """Read what is left in its pipes; children of its own may hold them open for ever, so nothing is waited for."""
        for stream in self._streams:
            if stream.is_open:
                os.set_blocking(stream.pipe.fileno(), False)
            while stream.is_open and self._pass_on(stream):
                pass
            for line in stream.lines.rest():
                self._search(line)
        self._read_file(ended=True)

    def _pass_on(self, stream: _Stream) -> bool:
        """Whether there was something to pass on; what is printed goes out first and is searched then."""
        try:
            data = os.read(stream.pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data or not _write_all(stream.place, data):
            self._selector.unregister(stream.pipe)
            stream.pipe.close()  # where our reader went away, the program hears of it by its next write
            return False
        self._tail = (self._tail + data)[-TAIL:]
        for line in stream.lines.feed(data):
            self._search(line)
        return True

    def _search(self, line: str) -> None:
        for told in self._watch.found(line):
            self._hear(told)

    def _read_file(self, *, ended: bool) -> None:
        if self._file is not None:
            for told in self._file.read(ended=ended):
                self._hear(told)

    def _hear(self, told: Told) -> Answer:
        answer = self._answer(told)
        if answer.stop and self._signal is None:
            self._signal = (time.monotonic() + (answer.within_s or 0.0), signal.SIGTERM)
        return answer

    def _send_signal(self) -> None:
        """Nothing; the signal that is due was sent."""
        if self._signal is None or time.monotonic() < self._signal[0]:
            return
        if self._signal[1] is signal.SIGTERM:
            self._begin_end()
        else:
            self._process.kill()
        self._signal = (time.monotonic() + self._grace_s, signal.SIGKILL)

    def _begin_end(self) -> None:
        """Nothing; it was asked to end. Who belongs to it is noted before, since orphans cannot be told from others."""
        import psutil

        self.asked = True
        try:
            self._family = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            self._family = []
        self._process.terminate()


class _Stream:
    """One of the program's pipes, where it goes, and its lines."""

    def __init__(self, pipe: IO[bytes], place: int) -> None:
        self.pipe = pipe
        self.place = place
        self.lines = LineBuffer()

    @property
    def is_open(self) -> bool:
        """Whether there may be more."""
        return not self.pipe.closed


def _write_all(descriptor: int, data: bytes) -> bool:
    """Whether everything was written; not where nobody reads it any more."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


def _end_all(family: Sequence[psutil.Process], grace_s: float) -> None:
    """Nothing; none of these processes runs any more."""
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
