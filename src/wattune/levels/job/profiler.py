"""Profiling, carried out: counters are read and settings applied as the pure steps of `profiling` decide.

All ranks read their own GPUs; rank 0 decides on the sums. Between two decision points an iteration costs next to
nothing: counters are read every few iterations, so that the end of an epoch finds a recent count. Decision points are
counted in iterations and fall on the same one on every rank, whether its counters answer or not. A failure on any rank
ends the profiling on all of them; the GPUs are restored and training goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isnan, nan

from wattune.control.actuator import Actuator
from wattune.control.ranks import SETTING_SIZE, Agreement, Numbers, Ranks, error_text, setting_numbers, setting_of
from wattune.core.errors import DeviceError, NotSupported, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.profiling import Interval, KnownProfile, ProfileHeld, Progress, SettingProfiling

READS = 8
"""Reads of the counters between two decision points, so that the end of an epoch loses at most an eighth of one."""

Warn = Callable[[str], None]
"""Receives what went wrong without stopping the training."""

Contribute = Callable[[], Sequence[float]]
Decide = Callable[[Numbers, Numbers], None]


class _Trouble(IntEnum):
    """What went wrong on some rank; the largest counts."""

    NONE = 0
    REFUSED = 1
    """The GPU does not take this setting."""
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


@dataclass(frozen=True, slots=True)
class _CounterRead:
    """The counters after so many iterations of an epoch; None where one of them did not answer."""

    steps: int
    counts: tuple[Count, ...] | None


class Profiler:
    """Sets and measures the GPUs of this process until the best setting is held."""

    def __init__(
        self,
        policy: SettingProfiling,
        gpus: Sequence[Gpu],
        *,
        ranks: Ranks,
        warn: Warn,
        synchronise: Callable[[], None] | None = None,
    ) -> None:
        self._policy, self._gpus, self._ranks, self._warn = policy, tuple(gpus), ranks, warn
        self._agreement, self._actuator = Agreement(ranks), Actuator(gpus)
        self._synchronise = synchronise
        self.progress: Progress = ProfileHeld(KnownProfile(), None)
        """As rank 0 knows it; of no meaning on other ranks or before the first epoch."""
        self.spent = Measurement(0.0, 0.0)
        """On profiling, by all ranks."""
        self.by_epoch = False
        """Whether every epoch is a window, because the program reports no iterations."""
        self._order = _Order(None, None)
        self._began: tuple[Count, ...] | None = None
        self._before: _CounterRead | None = None
        self._last: _CounterRead | None = None
        self._joined = False
        self._steps = 0
        self._usual_steps: int | None = None
        self._decided = False

    @property
    def is_over(self) -> bool:
        """Whether the best setting is held."""
        return self._order.steps is None

    @property
    def is_searching(self) -> bool:
        """Whether settings are being tried; not while one is checked or held."""
        return bool(self._order.steps)

    @property
    def setting(self) -> Setting | None:
        """What is set now; None is what was found."""
        return self._order.setting

    @property
    def epoch_steps(self) -> int | None:
        """Iterations of the last epoch; None before its end, or where the program reports none."""
        return self._usual_steps or None

    def begin_epoch(self) -> None:
        """Begin an epoch. The first one sets the first setting."""
        if not self._decided:
            self._decided = True
            self._agree(lambda: (), self._start, size=0)
        self._steps = 0
        self._before = self._last = None
        self._began = None if self.is_over else self._counts()

    def _start(self, _sums: Numbers, _maxima: Numbers) -> None:
        if self._ranks.rank == 0:
            self.progress = self._policy.start()

    def step(self, count: int = 1) -> None:
        """Count iterations and, at a decision point, agree on the next setting."""
        self._steps += count
        due = self._order.steps
        if not due:
            return
        if self._before is None:
            self._before = self._last = self._read()
        elif self._steps - self._before.steps >= due:
            self._last = self._read()
            self._decide_on_interval()
        elif self._is_read_due(due):
            self._last = self._read()

    def end_epoch(self) -> None:
        """End an epoch, validation included, and take its measurement into account."""
        if self._order.steps == 0:
            self._decide_on_epoch()
        elif self.is_searching:
            if self.by_epoch or max(self._steps, self._usual_steps or 0) < 2:
                if not self.by_epoch:
                    self.by_epoch = True
                    self._policy = self._policy.by_epoch()
                self._decide_on_epoch()
            elif self._last is not None and self._before is not None and self._last.steps > self._before.steps:
                self._decide_on_interval()
        self._usual_steps = self._steps
        self._joined = False

    def give_up(self) -> None:
        """Restore the GPUs and set nothing any more."""
        self._actuator.disable("profiling has ended")
        failure = self._actuator.take_failure()
        if failure is not None:
            self._warn(f"a GPU could not be restored: {error_text(failure)}")
        self._order = replace(self._order, steps=None)

    def _is_read_due(self, due: int) -> bool:
        last = self._last or self._before
        every = max(due // READS, 1)
        return self._steps == self._usual_steps or (last is not None and self._steps - last.steps >= every)

    def _read(self) -> _CounterRead:
        return _CounterRead(self._steps, self._counts())

    def _decide_on_epoch(self) -> None:
        self._decide(1, lambda: (self._began, self._counts()))

    def _decide_on_interval(self) -> None:
        """Decide on the interval that ends with the last read of the counters."""
        before, last = self._before, self._last
        if before is None or last is None:
            return

        def measured() -> tuple[tuple[Count, ...] | None, tuple[Count, ...] | None]:
            if self._synchronise is not None and last.steps == self._steps:
                self._synchronise()
                self._last = self._read()
            return before.counts, (self._last or last).counts

        self._decide(last.steps - before.steps, measured)
        self._before = self._last
        self._joined = True

    def _decide(
        self, steps: int, counts: Callable[[], tuple[tuple[Count, ...] | None, tuple[Count, ...] | None]]
    ) -> None:
        def contribute() -> Numbers:
            spent = spent_between(*counts())
            return (0.0, 0.0, _Trouble.UNUSABLE) if spent is None else (spent.time_s, spent.energy_j, _Trouble.NONE)

        def take(sums: Numbers, maxima: Numbers) -> None:
            time_s, energy_j, trouble = maxima[0], sums[1], maxima[2]
            if self.is_searching:
                self.spent += Measurement(time_s, energy_j)
            if self._ranks.rank > 0:
                return
            if trouble >= _Trouble.UNUSABLE or time_s <= 0 or energy_j <= 0:
                self.progress = self._policy.given_up(self.progress)
            else:
                self.progress = self._policy.step(self.progress, Interval(steps, time_s, energy_j, self._joined))

        self._agree(contribute, take, size=3)

    def _agree(self, contribute: Contribute, take: Decide, *, size: int) -> None:
        """Set all GPUs of the job to what rank 0 decides, or to the next setting that no rank refuses."""

        def order(sums: Numbers, maxima: Numbers) -> Numbers:
            take(sums, maxima)
            return _Order(self._policy.setting(self.progress), self._policy.steps(self.progress)).numbers

        answer = self._agreement.decide(contribute, order, sizes=(size, _ORDER_SIZE))
        if answer is None:
            self._order = _Order(None, None)
            self.give_up()
            return
        before, self._order = self._order, _Order.of(answer)
        if self._order.setting != before.setting:
            self._agree(lambda: (float(self._applied()),), self._take_refusal, size=1)

    def _take_refusal(self, _sums: Numbers, maxima: Numbers) -> None:
        """Choose another setting on rank 0 where a rank could not apply this one."""
        (trouble,) = maxima
        if self._ranks.rank == 0 and trouble != _Trouble.NONE:
            unusable = trouble >= _Trouble.UNUSABLE
            self.progress = (self._policy.given_up if unusable else self._policy.refused)(self.progress)

    def _applied(self) -> _Trouble:
        """Set the GPUs of this process and return what went wrong."""
        setting = self._order.setting
        if setting is None:
            self._actuator.restore()
        else:
            self._actuator.put(setting)
        match self._actuator.take_failure():
            case None:
                return _Trouble.NONE
            case SettingRefused() | NotSupported() as error:
                self._warn(f"{error.message}; going on without that setting")
                return _Trouble.NONE if setting is None else _Trouble.REFUSED
            case DeviceError() as error:
                self._warn(f"{error.message}; going on without setting anything")
                return _Trouble.NONE if setting is None else _Trouble.UNUSABLE
            case error:
                raise error

    def _counts(self) -> tuple[Count, ...] | None:
        """Return the counters now, or None where one of them does not answer."""
        try:
            return tuple(gpu.count() for gpu in self._gpus)
        except Exception as error:  # of a device or its driver; the next decision ends the profiling on all ranks
            self._warn(f"{error_text(error)}; profiling ends here")
            return None


def spent_between(before: Sequence[Count] | None, after: Sequence[Count] | None) -> Measurement | None:
    """What several GPUs spent from one reading of their counters to another; None where a counter was set back."""
    if before is None or after is None:
        return None
    try:
        return Measurement.together(map(Measurement.between, before, after))
    except ValueError:
        return None
