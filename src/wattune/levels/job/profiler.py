"""Profiling, carried out: counters are read and settings requested as the pure steps of `profiling` decide.

All ranks read their own GPUs; rank 0 decides on the sums. Between two decision points an iteration costs next to
nothing: counters are read every few iterations, so that the end of an epoch finds a recent count. Decision points are
counted in iterations and fall on the same one on every rank, whether its counters answer or not. Training never waits
for the driver: whether it took a setting is known at the next decision point. A failure on any rank ends the profiling
on all of them; the GPUs are restored and training goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isnan, nan

from wattune.control.actuator import actuator_for
from wattune.control.counter_edges import PolledCounters
from wattune.control.ranks import SETTING_SIZE, Agreement, Numbers, Ranks, error_text, setting_numbers, setting_of
from wattune.core.errors import DeviceError, NotSupported, SettingRefused
from wattune.core.frontier import History
from wattune.core.job import StepAccount
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu, time_of
from wattune.levels.job.profiling import SETTLE, Interval, ProfileHeld, ProfilingProgress, SettingProfiling
from wattune.levels.job.step_tally import CounterRead, Pauses, StepTally, cost_between

READS = 8
"""Reads of the counters between two decision points, so that the end of an epoch loses at most an eighth of one."""

READ_S = 1.0
"""Between two reads of counters that are not polled: each of them errs by half a refresh."""
REST_S, HELD_REST_S = 0.08, 0.4
"""Between two polls at least, where the counters need none: with a refresh of a tenth of a second each move is seen
while settings are measured."""
STILL_S = 1.0
"""Ten refreshes of the slowest counters."""

_NOTHING = Measurement(0.0, 0.0)


class _Trouble(IntEnum):
    """Failures on some rank since the last decision; the largest counts."""

    NONE = 0
    REFUSED = 1
    """The GPU does not take the setting."""
    UNUSABLE = 2
    """The GPU cannot be set or read at all."""


@dataclass(frozen=True, slots=True)
class _Order:
    """The setting, and after how many iterations to decide again: 0 after the epoch, None not any more."""

    setting: Setting | None
    steps: int | None

    @property
    def numbers(self) -> Numbers:
        is_set = float(self.setting is not None)
        steps = nan if self.steps is None else float(self.steps)
        return (is_set, *setting_numbers(self.setting or DRIVER_DEFAULT), steps)

    @classmethod
    def of(cls, numbers: Numbers) -> _Order:
        is_set, *knobs, steps = numbers
        return cls(setting_of(knobs) if is_set else None, None if isnan(steps) else int(steps))


_ORDER_SIZE = SETTING_SIZE + 2
_NO_MORE = _Order(None, None)


class Profiler:
    """Sets and measures the GPUs of this process until the best setting is held."""

    def __init__(
        self,
        policy: SettingProfiling,
        gpus: Sequence[Gpu],
        *,
        ranks: Ranks,
        warn: Callable[[str], None],
        synchronise: Callable[[], None] | None = None,
        needs_steps: bool = False,
        is_polled: bool = False,
    ) -> None:
        """`needs_steps` where epochs without steps show nothing of a setting; `is_polled` where `poll` is called."""
        self._policy, self._gpus, self._warn, self._needs_steps = policy, tuple(gpus), warn, needs_steps
        self.agreement = Agreement(ranks)
        self._opened = ExitStack()
        self._actuator = self._opened.enter_context(actuator_for(gpus))
        self._synchronise = synchronise
        self.progress = ProfilingProgress(ProfileHeld(None))
        """As rank 0 knows it; of no meaning on other ranks or before the first epoch."""
        self.spent = _NOTHING
        """On profiling, by all ranks."""
        self.by_epoch = False
        """True where every epoch is a window, because the program reports no iterations."""
        self._order = _NO_MORE
        self._is_confirmed = True
        """True once all ranks are known to have taken the setting."""
        self._began: CounterRead | None = None
        """The beginning of the epoch; of the first one its first step, since what comes before is no training."""
        self._before: CounterRead | None = None
        self._last: CounterRead | None = None
        self._joined = False
        self._steps = self._all_steps = self._epochs = 0
        self._usual_steps: int | None = None
        self._counters, self._is_polled, self._read_s = PolledCounters(self._gpus), is_polled, float("-inf")
        self._now_s = time_of(self._gpus[0])
        self._set_s: float | None = None
        self._default = (None, max(policy.candidates, default=None))
        """The settings without tuning."""
        self._changes = 0
        """Of the setting."""
        self._pauses, self._has_paused = Pauses(), False
        self._tally, self._by_epochs = StepTally(len(self._gpus)), StepTally(len(self._gpus))
        """The account of steps, and that of epochs for programs that report no steps."""

    @property
    def is_over(self) -> bool:
        """True while the best setting is held."""
        return self._order.steps is None

    @property
    def is_searching(self) -> bool:
        """True while settings are being tried; not while one is checked or held."""
        return bool(self._order.steps)

    @property
    def setting(self) -> Setting | None:
        """The present setting; None is the one that was found."""
        return self._order.setting

    @property
    def measured_so_far(self) -> History[Setting]:
        """The cost of an iteration at each setting that was measured in this run, on rank 0."""
        return self._policy.so_far(self.progress)

    @property
    def epoch_steps(self) -> int | None:
        """Iterations of the last epoch; None before its end, or where the program reports none."""
        return self._usual_steps or None

    @property
    def account(self) -> StepAccount:
        """The cost of the steps so far on the GPUs of this process, or of epochs where no step was reported."""
        if self._all_steps:
            return self._tally.account(self._all_steps)
        return self._by_epochs.account(self._epochs, unit="epoch")

    @property
    def wait_s(self) -> float:
        """Seconds until the counters are to be polled again."""
        return self._counters.wait_s(REST_S if self.is_searching else HELD_REST_S)

    def begin_epoch(self) -> None:
        """Begin an epoch. The first one sets the first setting."""
        if not self._epochs:
            self._decide(lambda: _NOTHING, lambda _: self._policy.start())
            begun_s = self._time_s()
            if begun_s is not None:
                self._by_epochs.begin(begun_s)
        self._epochs += 1
        self._steps = 0
        self._before = self._last = None
        began = self._read(0.0)
        self._began = None if self._epochs == 1 else began

    def poll(self) -> None:
        """Look whether the counters have moved: a count is far more exact when its age is known."""
        try:
            self._count_all()
        except Exception:  # of a device or its driver, which shows at the next decision
            self._tally.pause()

    def step(self, count: int = 1, *, age_s: float = 0.0) -> None:
        """Count iterations, the last of which ended so long ago, and at a decision point agree on the next setting."""
        self._steps += count
        self._all_steps += count
        self._follow(count, age_s)
        due = self._order.steps
        if not due:
            return
        if self._before is None:
            self._before = self._last = self._read(age_s)
            self._has_paused = False
        elif self._all_steps - self._before.steps >= due:
            self._last = self._read(age_s)
            self._decide_on_interval(self._before, self._last)
        elif self._is_read_due(due):
            self._last = self._read(age_s)

    def end_epoch(self) -> None:
        """End an epoch, validation included, and take its measurement into account."""
        ended = self._read(0.0)
        if not self._all_steps and ended.counts is not None:
            self._by_epochs.read(self._counters.readings, window=self._default_window)
            self._by_epochs.step(ended.ended_s, 1)
        if self._order.steps == 0:
            self._decide_on_epoch()
        elif self.is_searching:
            if self.by_epoch or max(self._steps, self._usual_steps or 0) < 2:
                if not self.by_epoch and not self._needs_steps:
                    self.by_epoch = True
                    self._policy = self._policy.by_epoch()
                if not self._needs_steps:
                    self._decide_on_epoch()
            elif self._last is not None and self._before is not None and self._last.steps > self._before.steps:
                self._decide_on_interval(self._before, self._last)
        elif not self._is_confirmed:
            self._decide(lambda: _NOTHING, lambda _: self.progress)
        self._usual_steps = self._steps
        self._joined = False

    def close(self) -> None:
        """Restore the GPUs and set nothing any more."""
        self._opened.close()
        failure = self._actuator.take_failure()
        if failure is not None:
            self._warn(f"a GPU could not be restored: {error_text(failure)}")
        self._order = replace(self._order, steps=None)

    def _is_read_due(self, due: int) -> bool:
        last = self._last or self._before
        every = max(due // READS, 1)
        return self._steps == self._usual_steps or (last is not None and self._all_steps - last.steps >= every)

    def _follow(self, count: int, age_s: float) -> None:
        """Take account of steps, and read counters that are not polled once a second."""
        now_s = self._time_s()
        if now_s is None:
            return
        ended_s = now_s - age_s
        if self._pauses.is_pause(ended_s, count):
            self._has_paused = True
            self._tally.pause()
        if self._epochs == 1 and self._began is None:
            self._began = self._read(age_s)
        self._tally.step(ended_s, count)
        if not self._is_polled and (ended_s - self._read_s >= READ_S or self._steps == self._usual_steps):
            self._read(age_s)
            self._read_s = ended_s
            self._tally.read(self._counters.readings, window=self._default_window)

    @property
    def _default_window(self) -> int | None:
        """The number of the present window at the setting without tuning, once that has settled; else None."""
        if self.setting not in self._default:
            return None
        now_s = self._time_s()
        is_settled = self._set_s is None or (now_s is not None and now_s - self._set_s >= SETTLE.least_s)
        return self._changes if is_settled else None

    def _read(self, age_s: float) -> CounterRead:
        counts, now_s = self._counts(), self._time_s()
        if now_s is None:
            return CounterRead(self._all_steps, 0.0, None)
        return CounterRead(self._all_steps, now_s - age_s, counts)

    def _time_s(self) -> float | None:
        """Return the time of the first GPU; None where that does not answer, which shows when its counter is read."""
        try:
            return self._now_s()
        except Exception:  # of a device or its driver
            return None

    def _decide_on_epoch(self) -> None:
        """Decide on the whole epoch. Without steps nobody knows when the first one began: it shows nothing."""
        began, steps = self._began, self._steps
        if self._epochs == 1 and steps < 2:
            return
        # The first epoch is measured from the end of its first step.
        whole = steps / (steps - 1) if self._epochs == 1 else 1.0

        def measured() -> Measurement | None:
            cost = None if began is None else cost_between(began, self._read(0.0))
            return None if cost is None else cost / (1.0 / whole)

        self._decide(measured, lambda spent: self._stepped(1, spent))

    def _decide_on_interval(self, before: CounterRead, last: CounterRead) -> None:
        """Decide on the interval between two reads of the counters; the next one begins where it ends."""

        def measured() -> Measurement | None:
            if self._synchronise is not None and last.steps == self._all_steps:
                self._synchronise()
                self._last = self._read(0.0)
            return cost_between(before, self._last or last)

        def stepped(spent: Measurement) -> ProfilingProgress:
            # An interval with a pause is not of steps alone.
            return self.progress if self._has_paused else self._stepped(last.steps - before.steps, spent)

        restarts = self.progress.restarts
        self._decide(measured, stepped)
        if self.progress.restarts > restarts:
            self._tally.begin_again()
        self._before = self._last
        self._joined, self._has_paused = True, False

    def _stepped(self, steps: int, spent: Measurement) -> ProfilingProgress:
        if spent.time_s <= 0 or spent.energy_j <= 0:
            # In a moment no counter moves; one that stands still for longer shows nothing.
            return self.progress if 0 < spent.time_s < STILL_S else self._policy.given_up(self.progress)
        return self._policy.step(self.progress, Interval(steps, spent.time_s, spent.energy_j, self._joined))

    def _decide(
        self, measured: Callable[[], Measurement | None], step: Callable[[Measurement], ProfilingProgress]
    ) -> None:
        """Request the setting that rank 0 decides on: the next one, or another where a rank refused the last."""

        def contribute() -> Numbers:
            trouble, spent = self._trouble(), measured()
            return (0.0, 0.0, _Trouble.UNUSABLE) if spent is None else (spent.time_s, spent.energy_j, trouble)

        def order(sums: Numbers, maxima: Numbers) -> Numbers:
            spent, trouble = Measurement(maxima[0], sums[1]), maxima[2]
            if self.is_searching:
                self.spent += spent
            if self.agreement.ranks.rank == 0:
                if trouble >= _Trouble.UNUSABLE:
                    self.progress = self._policy.given_up(self.progress)
                elif trouble == _Trouble.REFUSED:
                    self.progress = self._policy.refused(self.progress)
                else:
                    self.progress = step(spent)
            return _Order(self.progress.setting, self._policy.steps(self.progress)).numbers

        answer = self.agreement.decide(contribute, order, sizes=(3, _ORDER_SIZE))
        before, self._order = self._order, _NO_MORE if answer is None else _Order.of(answer)
        self._is_confirmed = self._order.setting == before.setting
        if self._is_confirmed:
            return
        self._changes += 1
        self._set_s = self._time_s()
        if self._order.setting is None:
            self._actuator.disable("no setting is held")
        else:
            self._actuator.put(self._order.setting)

    def _trouble(self) -> _Trouble:
        """Return what went wrong with the last request on the GPUs of this process."""
        match self._actuator.take_failure():
            case None:
                return _Trouble.NONE
            case SettingRefused() | NotSupported() as error:
                self._warn(f"{error.message}; going on without that setting")
                return _Trouble.REFUSED
            case DeviceError() as error:
                self._warn(f"{error.message}; going on without setting anything")
                return _Trouble.UNUSABLE
            case error:
                raise error

    def _counts(self) -> tuple[Count, ...] | None:
        """Return the counters, at the moments at which they moved where they are polled; None where one fails."""
        try:
            counts = self._count_all()
        except Exception as error:  # of a device or its driver; the next decision ends the profiling on all ranks
            self._warn(f"{error_text(error)}; profiling ends here")
            return None
        readings = self._counters.readings if self._is_polled else ()
        return tuple(Count(one.exact_s, one.energy_j or 0.0) for one in readings) or counts

    def _count_all(self) -> tuple[Count, ...]:
        """Poll the counters; where that is done often, each move is a reading for the account."""
        counts = self._counters.poll()
        if self._is_polled and self._counters.moved:
            self._tally.read(self._counters.readings, window=self._default_window)
        return counts
