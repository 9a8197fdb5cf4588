"""A command whose steps are counted while it runs, for `measure`, `hold` and `sweep`, as `wattune run` counts them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from wattune.cli.output import remark
from wattune.cli.program_options import ProgramOptions
from wattune.control.counted_work import CountedSpan, CountedWork, idle_before_s
from wattune.control.progress_estimator import HOOK, ONLY_OPTIMIZERS, OUTPUT, PATTERN, ProgressEstimator
from wattune.control.step_time import StepMarks
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Trace
from wattune.devices.gpu import Gpu, PlaysWorkloads, time_of
from wattune.devices.meter import spent_within
from wattune.process.output import PrintedLines
from wattune.process.patterns import StepPattern
from wattune.process.printed_steps import OutputFollower
from wattune.process.program import Program, ProgramEnd
from wattune.process.step_file import OPTIMIZER, UNFOLLOWED, StepFile, StepFollower, is_followed, is_unfollowed
from wattune.process.watched import rarer_waits, run_counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommand:
    """A command, and how its steps are counted."""

    program: Program
    pattern: StepPattern | None
    """What it prints after each step, where the user gave that."""
    injects: bool
    """Whether its Python loads the hook."""

    @classmethod
    def of(cls, command: Sequence[str], starting: ProgramOptions, *, to_stderr: bool) -> CountedCommand:
        """Return the command of a user; a pattern that is none raises."""
        pattern = None if starting.step_pattern is None else StepPattern.parse(starting.step_pattern)
        program = replace(starting.program(command), places=(2, 2) if to_stderr else None)
        return cls(program=program, pattern=pattern, injects=not starting.no_inject)

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which another command counts alike."""
        pattern = () if self.pattern is None else ("--step-pattern", self.pattern.regex.pattern)
        return (*pattern, *(() if self.injects else ("--no-inject",)))

    def run(self, gpus: Sequence[Gpu]) -> CountedRun:
        """Run it once on these GPUs and count its steps; it runs as well where steps cannot be counted."""
        with CountedRun.of(self, gpus) as run:
            run.wait(lambda _pid: run.begin(gpus))
        return run


def command_name(command: Sequence[str]) -> str:
    """Return the name of a command in the history: file names need not be text, and a name must be."""
    return shlex.join(command).encode("utf-8", "replace").decode()


def _step_file(stack: ExitStack, uid: int | None) -> StepFile | None:
    try:
        return stack.enter_context(StepFile.made(uid))
    except InputError as error:
        remark(f"warning: no steps are counted: {error.message}")
        return None


class _Counter:
    """The steps of one run of a program, by the time of its GPU."""

    def __init__(self, gpu: Gpu, *, is_fed: bool, since_s: float) -> None:
        """The program was started so long ago; steps count from now on."""
        self._time_s: Callable[[], float] = time_of(gpu)
        self.estimator = ProgressEstimator(gpu.spec.sensors)
        self._counts_from_s = self._time_s()
        self.began_s = self._counts_from_s - since_s
        self._is_unfollowed = gpu.spec.simulated and is_fed and is_unfollowed(os.environ)
        self.estimator.only_optimizers = gpu.spec.simulated and is_fed and is_followed(os.environ)

    def step(self, count: int, *, age_s: float) -> None:
        self.estimator.report(self._time_s() - age_s, count)

    def poll(self) -> None:
        """Take what the hook or the output shows; where the unit of steps has changed, counting begins again."""
        news = self.estimator.follow(self._time_s())
        if news is not None and news != ONLY_OPTIMIZERS:
            self.estimator.marks.restart()

    @property
    def excluded(self) -> str | None:
        """Why times of this program show nothing of the clock of its GPU, where that is known."""
        hook = self.estimator.hook
        if self._is_unfollowed:
            return UNFOLLOWED
        return ONLY_OPTIMIZERS if self.estimator.only_optimizers and hook and hook.source != OPTIMIZER else None

    def span(self, gpus: Sequence[Gpu]) -> CountedSpan | None:
        """Return the first and the last step; None where too few were seen, or they show nothing."""
        if self.excluded is not None:
            return None
        return CountedSpan.of(self._marks, self._source, [gpu.refresh for gpu in gpus])

    @property
    def _marks(self) -> StepMarks:
        """The steps since they count; earlier ones are known where the GPU was open late."""
        marks, before = StepMarks(), 0
        for time_s, count in zip(*self.estimator.marks.every, strict=True):
            if time_s >= self._counts_from_s:
                marks.add(time_s, count - before)
            before = count
        return marks

    @property
    def _source(self) -> str:
        source, hook, output = self.estimator.step_source, self.estimator.hook, self.estimator.output
        if source == HOOK and hook is not None and hook.source is not None:
            return hook.source
        return output.source if source == OUTPUT and output is not None else source


class CountedRun:
    """One run of a command, and its steps, which count once its GPU is open."""

    end: ProgramEnd

    def __init__(self, command: CountedCommand, file: StepFile | None, output: OutputFollower | None) -> None:
        """Without a file no steps are counted."""
        self._command, self._file, self._output = command, file, output
        self._counter: _Counter | None = None

    @classmethod
    @contextmanager
    def of(cls, command: CountedCommand, gpus: Sequence[Gpu]) -> Iterator[CountedRun]:
        """Prepare a run on these GPUs; none stand for those that are not open yet."""
        with ExitStack() as stack:
            file, output = None if _are_played(gpus) else _step_file(stack, command.program.uid), None
            if file is not None and command.pattern is None:
                output = OutputFollower(PrintedLines.beside(command.program.places or (1, 2), file))
                stack.callback(output.close)
            yield cls(command, file, output)

    def begin(self, gpus: Sequence[Gpu], *, since_s: float = 0.0) -> None:
        """Count the steps from now on, by the time of the first GPU; the program was started so long ago."""
        is_played = _are_played(gpus)
        counter = _Counter(gpus[0], is_fed=not is_played, since_s=since_s)
        if self._file is not None and not is_played:
            if self._command.injects:
                counter.estimator.hook = StepFollower(self._file)
            if self._command.pattern is not None:
                counter.estimator.reported_by = PATTERN
            counter.estimator.output = self._output
        self._counter = counter

    def wait(self, on_start: Callable[[int], None]) -> None:
        """Run the program to its end."""
        program, file, pattern = self._command.program, self._file, self._command.pattern
        program = replace(program, on_start=on_start)
        if file is not None and self._command.injects:
            program = replace(program, environment=file.environment(program.variables))
        if file is None or pattern is None:
            self.end = program.run(self._poll, wait_s=rarer_waits())
        else:
            file.want_all_text()
            copied = file if self._command.injects else None
            self.end, note = run_counted(program, self, (pattern,), copied=copied, warn=_warn, on_wait=self._poll)
            if note is not None:
                remark(f"warning: {note}")
        self._poll()

    def step(self, count: int, *, age_s: float) -> None:
        if self._counter is not None:
            self._counter.step(count, age_s=age_s)

    def phase(self, name: str, *, age_s: float) -> None:
        """Leave phases out."""

    def _poll(self) -> None:
        if self._counter is not None:
            self._counter.poll()

    @property
    def excluded(self) -> str | None:
        """Why times of this program show nothing of the clock of its GPU, where that is known."""
        return None if self._counter is None else self._counter.excluded

    def work(self, gpus: Sequence[Gpu], traces: Sequence[Trace]) -> CountedWork | None:
        """Return the work between its first and last step, by the traces of its GPUs; None where none was counted."""
        counter, span = self._counter, self._span(gpus)
        if counter is None or span is None:
            return None
        spent = [_spent(gpu, trace, span) for gpu, trace in zip(gpus, traces, strict=True)]
        return span.work(spent, began_s=counter.began_s)

    def within(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """Return the readings between the first and the last step, or all where none were counted."""
        span = self._span(())
        return readings if span is None else [one for one in readings if span.start_s <= one.time_s <= span.end_s]

    def idle_s(self, traces: Sequence[Trace]) -> float | None:
        """Return for how long no GPU had worked yet; None where one of them does not report that."""
        if self._counter is None:
            return None
        each = [idle_before_s(trace.readings, self._counter.began_s) for trace in traces]
        known = [one for one in each if one is not None]
        return min(known) if len(known) == len(each) else None

    def _span(self, gpus: Sequence[Gpu]) -> CountedSpan | None:
        return None if self._counter is None else self._counter.span(gpus)


def _are_played(gpus: Sequence[Gpu]) -> bool:
    """Return whether GPUs are simulated in this process: what they play is none of the program."""
    return any(isinstance(gpu, PlaysWorkloads) for gpu in gpus)


def _warn(line: str) -> None:
    remark(f"wattune: {line}")


def _spent(gpu: Gpu, trace: Trace, span: CountedSpan) -> Measurement | None:
    """Return what a GPU spent in the parts of a span; None where that is unknown of one."""
    each = [spent_within(gpu, trace, start_s, end_s) for start_s, end_s in span.parts]
    known = [one for one in each if one is not None]
    return reduce(add, known) if len(known) == len(each) else None
