"""Step time and changes of a program, from all that shows its progress.

Steps that the program reports, or that a hook counts inside it, come first, then the period of its power, then the
counters of its GPUs. Where none of these is available there is no step time, and a policy has only utilisation. Their
units differ, so a program stays with the source of its first step time; only steps that begin later replace it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from wattune.control.counters import COUNTERS, CounterWatch
from wattune.control.phase_marks import PhaseMarks, phase_costs
from wattune.control.power_trace import PowerTrace
from wattune.control.state import Evidence, StepTime
from wattune.control.step_time import StepMarks, WorkUnit, same_unit
from wattune.control.window_totals import Tally, working_mhz
from wattune.core.gpu_spec import Sensors
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import PhaseCost, PhaseSetting
from wattune.process.printed_steps import OutputFollower
from wattune.process.step_file import OPTIMIZER, StepFollower
from wattune.signals.change import Change, ChangeDetector, CycleCutter, ProgramSample
from wattune.signals.period import PeriodAnswer, Verdict, find_period
from wattune.signals.samples import PowerSamples


def periods_of(answer: PeriodAnswer) -> Sequence[tuple[float, float | None]]:
    """Return the periods of an answer, each with its error: that of the step first, then all others."""
    if answer.verdict is not Verdict.PERIODIC or answer.period_s is None:
        return ()
    others = [(cycle.period_s, cycle.error_s) for cycle in answer.cycles if cycle.period_s != answer.period_s]
    return ((answer.period_s, answer.error_s), *others)


KEPT = 3000
"""Readings that are kept: five minutes of ten a second, the rate of present sensors."""
SETTLED_S = 3.0
"""After a new setting changes are not searched for this long."""
SAMPLE_S = 1.0
"""Least length of one sample of power and utilisation, which has whole steps where their time is known."""
BLIND_SAMPLE_S = 5.0
"""Its length where no step time is known: shorter samples of a step of some seconds show parts of it by turns."""
LONGEST_S = 60.0
"""A sample that waits for the end of a step ends after so long: the program may have stopped to report phases."""


COUNTED = REPORTED, PATTERN, HOOK, OUTPUT = "reported", "pattern", "hook", "output"
UTILISATION, NO_SOURCE = "utilisation", "none"
"""Sources of step times beside `period` and `counters`."""
ONLY_OPTIMIZERS = (
    "the GPU is simulated, and only optimizer steps of PyTorch follow its clock: other steps of the program, and the "
    "period of the power, are not used"
)
UNMATCHED = 20
"""A pattern that has matched nothing when the hook has counted so many steps is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSeen:
    """What shows the progress of a program, at one instant."""

    unit: str = "step"
    """The unit of a step time: a step, a period of the power, or a unit of counted work."""
    source: str = NO_SOURCE
    """What step times come from: hook, pattern, output, reported, period, counters, utilisation or none."""
    follows_gpu: bool = False
    """True where optimizer steps follow the clock of a simulated GPU."""
    period: PeriodAnswer | None = None
    """The last search for a period, where no steps are counted."""
    trace: PowerTrace = field(default_factory=PowerTrace)


_Applied = tuple[Setting, tuple[PhaseSetting, ...]]


class ProgressEstimator:
    """Steps, periods, counters and changes of one program."""

    def __init__(self, sensors: Sensors) -> None:
        self.marks = StepMarks()
        self.reported_by = REPORTED
        """What fills the marks: the program itself, or a pattern in its output."""
        self.hook: StepFollower | None = None
        """Steps that are counted inside the program; used where nothing else fills the marks."""
        self.output: OutputFollower | None = None
        """Steps that the program's output shows; used where neither the hook nor the program reports any."""
        self.refused: str | None = None
        """Why steps of this program would not show how fast its GPU is, where that is known beforehand."""
        self.only_optimizers = False
        """True beside a simulated GPU that only optimizer steps follow: other steps show nothing of its clock."""
        self.follows_gpu = False
        """The same, also where no hook counts those steps."""
        self._counted_by: str | None = None
        """HOOK or OUTPUT, where that fills the marks."""
        self._ignored = self._noted = False
        self._unmatched = 0
        self.phases = PhaseMarks()
        self.counters = CounterWatch()
        """Empty where there are no counters."""
        self.answer: PeriodAnswer | None = None
        """The last search for a period."""
        self.trace = PowerTrace()
        """Power since the beginning, for charts."""
        self._sensors = sensors
        self._readings: deque[Reading] = deque(maxlen=KEPT)
        self._unit: WorkUnit | None = None
        self._source: str | None = None
        self._source_since_s: float | None = None
        self._watches: dict[_Applied, ChangeDetector] = {}
        self._applied: _Applied = (DRIVER_DEFAULT, ())
        self._since_s: float | None = None
        self._sample: Tally | None = None
        self._ticked_s: float | None = None
        self._cutter: CycleCutter | None = None
        self._periods_s: dict[_Applied, float] = {}
        """The period that was found at each setting: samples of one setting are always cut alike."""
        self._starved_s = float("-inf")
        """The last reading that came late."""
        self._sampled_s = float("-inf")
        """The end of the last sample."""
        self._began = False

    @property
    def seen(self) -> ProgressSeen:
        """What is seen at this instant."""
        period = None if self.marks.total else self.answer
        return ProgressSeen(
            unit=self.unit, source=self.step_source, follows_gpu=self.follows_gpu, period=period, trace=self.trace
        )

    @property
    def unit(self) -> str:
        return "step" if self.marks.total else "unit of work" if self._source == COUNTERS else "period"

    @property
    def is_counted(self) -> bool:
        """Whether steps are counted, without phases, so that power need not show when they end."""
        return bool(self.marks.total) and not self.phases.has_any

    @property
    def step_source(self) -> str:
        if self.marks.total:
            return self._counted_by or self.reported_by
        if self._source is not None:
            return self._source
        seen = any(reading.sm_util is not None for reading in self._readings)
        return UTILISATION if seen else NO_SOURCE

    def report(self, time_s: float, count: int) -> None:
        """Count steps that the program reported; those that the hook or the output showed first are not mixed."""
        if not self._ignores() and self._counted_by is None:
            self.marks.add(time_s, count)

    def follow(self, now_s: float) -> str | None:
        """Take the steps that the hook has counted by this time of the GPU, or else those that the output shows.

        Return a remark where the unit of work is another from now on, so that everything has to be measured again.
        """
        news = self._followed(self.hook, HOOK, now_s)
        if news is None and self._counted_by != HOOK:
            news = self._followed(self.output, OUTPUT, now_s)
        if news is None and self._ignored and self._ignores() and not self._noted:
            self._noted = True
            return ONLY_OPTIMIZERS
        return news

    def _ignores(self) -> bool:
        """Return whether steps that are seen now are left out: nothing follows the GPU before an optimizer steps."""
        self._ignored = self.only_optimizers and (self.hook is None or self.hook.source != OPTIMIZER)
        return self._ignored

    def refuses(self) -> bool:
        """Return whether the program has steps, where these must not be used."""
        if self.refused is None:
            return False
        counted = [one.take() for one in (self.hook, self.output) if one is not None]
        return bool(self.marks.total) or any(one is not None for one in counted)

    def _followed(self, follower: StepFollower | OutputFollower | None, by: str, now_s: float) -> str | None:
        """Add the steps that a follower has counted; return a remark where their unit is new."""
        steps = None if follower is None else follower.take()
        if follower is None or steps is None or self._ignores() or not self._takes(by, steps.count):
            return None
        first, self._counted_by = self._counted_by != by, by
        self.marks.add(now_s - steps.age_s, steps.count)
        changed, follower.unit_changed = follower.unit_changed, False
        if by == HOOK and changed and not first:
            return "another optimizer or process is counted from now on"
        name = follower.source if by == HOOK else f"output ({follower.source})"
        return f"steps are counted from now on: by the program's {name}" if first or changed else None

    def _takes(self, by: str, count: int) -> bool:
        """Return whether it fills the marks: the hook comes before the output, and a pattern has its chance first."""
        if self._counted_by == by:
            return True
        if by == HOOK and self._counted_by == OUTPUT:
            self.marks = StepMarks()
            return True
        if by == OUTPUT or self.marks.total:
            return not self.marks.total
        self._unmatched += count
        return self.reported_by != PATTERN or self._unmatched >= UNMATCHED

    def add(
        self, readings: Sequence[Reading], *, setting: Setting, by_phase: tuple[PhaseSetting, ...] = ()
    ) -> Change | None:
        """Add readings, and return the change of the program where they make one certain."""
        applied = setting, by_phase
        if applied != self._applied:
            self._begin(applied)
        self._readings.extend(readings)
        self.trace = self.trace.add(readings)
        settled = [reading for reading in readings if self._is_settled(reading)]
        for sample in self._samples(settled):
            before_s, self._sampled_s = self._sampled_s, sample.time_s
            if before_s <= self._starved_s <= sample.time_s:
                continue  # a busy host read it late, which shows nothing of the program
            watch = self._watches.get(applied, ChangeDetector()).add(
                replace(sample, temperature_c=settled[-1].temperature_c)
            )
            self._watches[applied] = watch
            if watch.change is not None:
                self.forget()
                self._watches[applied] = watch
                return watch.change
        return None

    def starved(self, time_s: float) -> None:
        """Note that the reading at this time came late: what it completes is no evidence of a change."""
        self._starved_s = time_s

    def begins(self) -> bool:
        """Return True once, when the first step was seen."""
        first, self._began = bool(self.marks.total) and not self._began, self._began or bool(self.marks.total)
        return first

    def forget(self) -> None:
        """Discard what was learned, since the program has changed."""
        self._watches, self._unit, self._cutter, self._periods_s = {}, None, None, {}
        self._source = self._source_since_s = None
        self.counters.forget()

    def between(self, start_s: float, end_s: float) -> StepTime | None:
        """Return the step time between two instants of the GPU's time, from the best source there is."""
        if self.marks.total:
            return self.marks.between(start_s, end_s)
        if self._ignored:
            return None
        # Within its first window, a better source may still take over.
        source = None if self._source_since_s == start_s else self._source
        step_time = None if source == COUNTERS else self._repeating(start_s, end_s)
        if step_time is None and source in (None, COUNTERS):
            step_time = self.counters.step_time(start_s, end_s)
        if step_time is not None and source is None:
            self._source, self._source_since_s = step_time.source, start_s
        return step_time

    def evidence(self, start_s: float, end_s: float) -> Evidence:
        """Return what the program showed of its work between two instants of the GPU's time."""
        features, step_time = self.counters.between(start_s, end_s), self.between(start_s, end_s)
        return Evidence(step_time=step_time, features=features, phases=self._phases(start_s, end_s))

    def _phases(self, start_s: float, end_s: float) -> tuple[PhaseCost, ...]:
        """Return the phases of a step between two instants; none where the program does not report them."""
        if not self.phases.has_any:
            return ()
        marks = self.phases.between(start_s, end_s)
        return phase_costs(marks, [one for one in self._readings if start_s <= one.time_s <= end_s])

    def _repeating(self, start_s: float, end_s: float) -> StepTime | None:
        """Return the period of the power between two instants; None where there is none."""
        inside = [reading for reading in self._readings if start_s <= reading.time_s <= end_s]
        self.answer = find_period(PowerSamples.of(inside), sensor=self._sensors)
        found = periods_of(self.answer)
        if not found:
            return None
        sm_mhz, mem_mhz = _mean([working_mhz(one) for one in inside]), _mean([one.mem_mhz for one in inside])
        if self._unit is None:
            self._unit = WorkUnit(found[0][0], sm_mhz, mem_mhz)
        step_time = same_unit(self._unit, found, sm_mhz=sm_mhz, mem_mhz=mem_mhz)
        if step_time is not None and self._applied not in self._periods_s:
            self._periods_s[self._applied] = step_time.step_time_s
            self._cutter, self._sample = CycleCutter(step_time.step_time_s), None
            self._watches.pop(self._applied, None)  # its samples were cut by time until now
        return step_time

    def _begin(self, applied: _Applied) -> None:
        """Switch to the change detector of another setting."""
        period_s = self._periods_s.get(applied)
        self._cutter = None if period_s is None else CycleCutter(period_s)
        self._applied, self._since_s, self._sample = applied, None, None
        known = self._watches.get(applied)
        if known is not None:
            self._watches[applied] = known.resumed()

    def _is_settled(self, reading: Reading) -> bool:
        if self._since_s is None:
            self._since_s = reading.time_s
        return reading.time_s - self._since_s >= SETTLED_S

    def _samples(self, readings: Sequence[Reading]) -> Sequence[ProgramSample]:
        """Return the samples that these readings complete: one per period where that is known, else by time."""
        if self._cutter is not None:
            if not readings:
                return ()
            self._cutter, samples = self._cutter.add(PowerSamples.of(readings))
            return samples
        return [sample for reading in readings if (sample := self._ticked(reading)) is not None]

    def _ticked(self, reading: Reading) -> ProgramSample | None:
        if self._sample is None:
            if not self._is_within_step(reading):
                self._sample = Tally(reading)
            return None
        self._sample = self._sample.add(reading, self._applied[0])
        cost = self._sample.cost
        if self._is_within_step(reading, cost.time_s) or cost.time_s < self._sample_s:
            return None
        step_time = self.marks.between(self._sample.first.time_s, reading.time_s) if self.marks.total else None
        sample = ProgramSample(
            time_s=reading.time_s,
            period_s=None if step_time is None else step_time.step_time_s,
            power_w=cost.power_w,
            util=self._sample.sm_utils.mean,
        )
        self._sample = Tally(reading)
        return sample

    @property
    def _sample_s(self) -> float:
        """The length of a sample by time: of whole steps where their time is known, else long beside most steps."""
        step_s = self.marks.usual_s if self.marks.total else None if self._unit is None else self._unit.period_s
        if not step_s:
            return BLIND_SAMPLE_S
        return min(ceil(SAMPLE_S / step_s) * step_s, LONGEST_S)

    def _is_within_step(self, reading: Reading, age_s: float = 0.0) -> bool:
        """Return whether a step is under way whose phases differ: a sample has whole steps."""
        before_s, self._ticked_s = self._ticked_s, reading.time_s
        if not self.phases.has_any or age_s >= LONGEST_S:
            return False
        return before_s is None or not self.phases.begins_step(before_s, reading.time_s)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
