"""A command whose steps are counted while it runs, for `measure`, `hold` and `sweep`, as `wattune run` counts them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from operator import add

from wattune.cli.calling_user import program_uid
from wattune.cli.child import ChildEnd
from wattune.cli.output import remark
from wattune.cli.run.program import Program
from wattune.control.counted_work import CountedSpan, CountedWork, idle_before_s
from wattune.control.progress_estimator import HOOK, ONLY_OPTIMIZERS, OUTPUT, PATTERN, ProgressEstimator
from wattune.control.reports.output import OutputFollower
from wattune.control.reports.printed import PrintedLines
from wattune.control.reports.report import StepPattern
from wattune.control.step_file import OPTIMIZER, UNFOLLOWED, StepFile, StepFollower, is_followed, is_unfollowed
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Trace
from wattune.devices.gpu import Gpu, PlaysWorkloads, time_of
from wattune.devices.meter import spent_within


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommand:
    """A command, and how its steps are counted."""

    command: Sequence[str]
    pattern: StepPattern | None
    """What it prints after each step, where the user gave that."""
    injects: bool
    """Whether its Python loads the hook."""
    grace_s: float
    to_stderr: bool
    """Whether its standard output goes to standard error."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which another command counts alike."""
        pattern = () if self.pattern is None else ("--step-pattern", self.pattern.regex.pattern)
        return (*pattern, *(() if self.injects else ("--no-inject",)))

    def run(self, gpus: Sequence[Gpu]) -> CountedRun:
        """Run it once on these GPUs and count its steps; it runs as well where steps cannot be counted."""
        played = any(isinstance(gpu, PlaysWorkloads) for gpu in gpus)  # what such GPUs play is none of the program
        counter = _Counter(gpus[0], is_fed=not played)
        with ExitStack() as stack:
            file = None if played else _step_file(stack)
            program = Program(
                command=self.command,
                environment=dict(os.environ) if file is None or not self.injects else file.environment(os.environ),
                places=(2, 2) if self.to_stderr else None,
                grace_s=self.grace_s,
                on_start=counter.begin,
                on_wait=counter.poll,
            )
            if file is None:
                return CountedRun(program.run(), counter)
            if self.injects:
                counter.estimator.hook = StepFollower(file)
            if self.pattern is not None:
                counter.estimator.reported_by = PATTERN
                file.want_all_text()
                end, note = program.run_searched(counter, self.pattern, None, file=file, injects=self.injects)
                if note is not None:
                    remark(f"warning: {note}")
            else:
                output = OutputFollower(PrintedLines.beside((2,) if self.to_stderr else (1, 2), file))
                stack.callback(output.close)
                counter.estimator.output = output
                end = program.run()
            counter.poll()
            return CountedRun(end, counter)


def counted_command(
    command: Sequence[str], pattern: str | None, *, injects: bool, grace_s: float, to_stderr: bool
) -> CountedCommand:
    """Return the command of a user; a pattern that is none raises."""
    parsed = None if pattern is None else StepPattern.parse(pattern)
    return CountedCommand(command=command, pattern=parsed, injects=injects, grace_s=grace_s, to_stderr=to_stderr)


def command_name(command: Sequence[str]) -> str:
    """Return the name of a command in the history: file names need not be text, and a name must be."""
    return shlex.join(command).encode("utf-8", "replace").decode()


def _step_file(stack: ExitStack) -> StepFile | None:
    try:
        return stack.enter_context(StepFile.made(program_uid()))
    except InputError as error:
        remark(f"warning: no steps are counted: {error.message}")
        return None


class _Counter:
    """The steps of one run of a program, by the time of its GPU."""

    def __init__(self, gpu: Gpu, *, is_fed: bool) -> None:
        self._time_s: Callable[[], float] = time_of(gpu)
        self.estimator = ProgressEstimator(gpu.spec.sensors)
        self.began_s = self._time_s()
        self._is_unfollowed = gpu.spec.simulated and is_fed and is_unfollowed(os.environ)
        self.estimator.only_optimizers = gpu.spec.simulated and is_fed and is_followed(os.environ)

    def begin(self, _pid: int) -> None:
        self.began_s = self._time_s()

    def step(self, count: int, *, age_s: float) -> None:
        self.estimator.report(self._time_s() - age_s, count)

    def phase(self, name: str, *, age_s: float) -> None:
        """Leave phases out."""

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
        return CountedSpan.of(self.estimator.marks, self._source, [gpu.refresh for gpu in gpus])

    @property
    def _source(self) -> str:
        source, hook, output = self.estimator.step_source, self.estimator.hook, self.estimator.output
        if source == HOOK and hook is not None and hook.source is not None:
            return hook.source
        return output.source if source == OUTPUT and output is not None else source


@dataclass(frozen=True, slots=True)
class CountedRun:
    """The end of one run of a command, and its steps."""

    end: ChildEnd
    _counter: _Counter

    @property
    def excluded(self) -> str | None:
        """Why times of this program show nothing of the clock of its GPU, where that is known."""
        return self._counter.excluded

    def work(self, gpus: Sequence[Gpu], traces: Sequence[Trace]) -> CountedWork | None:
        """Return the work between its first and last step, by the traces of its GPUs; None where none was counted."""
        span = self._counter.span(gpus)
        if span is None:
            return None
        spent = [_spent(gpu, trace, span) for gpu, trace in zip(gpus, traces, strict=True)]
        return span.work(spent, began_s=self._counter.began_s)

    def within(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """Return the readings between the first and the last step, or all where none were counted."""
        span = self._counter.span(())
        return readings if span is None else [one for one in readings if span.start_s <= one.time_s <= span.end_s]

    def idle_s(self, traces: Sequence[Trace]) -> float | None:
        """Return for how long no GPU had worked yet; None where one of them does not report that."""
        each = [idle_before_s(trace.readings, self._counter.began_s) for trace in traces]
        known = [one for one in each if one is not None]
        return min(known) if len(known) == len(each) else None


def _spent(gpu: Gpu, trace: Trace, span: CountedSpan) -> Measurement | None:
    """Return what a GPU spent in the parts of a span; None where that is unknown of one."""
    each = [spent_within(gpu, trace, start_s, end_s) for start_s, end_s in span.parts]
    known = [one for one in each if one is not None]
    return reduce(add, known) if len(known) == len(each) else None
