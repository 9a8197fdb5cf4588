"""Profiling, carried out: counters are read and settings applied as the pure steps of `job_profiling` say.

All ranks read their own GPUs, add up what they read, and do what rank 0 makes of it. Between two looks an iteration
costs next to nothing: counters are read every few iterations, so that the end of an epoch finds a recent count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from wattune.control.ranks import Ranks
from wattune.core.errors import DeviceError, NotSupported, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.profiling import Interval, Progress, SettingProfiling

GLANCES = 8
"""Reads of the counters between two looks, so that at most an eighth of a stretch is lost at the end of an epoch."""

Tell = Callable[[str], None]
"""Hears of what went wrong without stopping the training."""


class _Trouble(IntEnum):
    """What went wrong on some rank; the largest counts."""

    NONE = 0
    REFUSED = 1
    """The setting is not to be had."""
    HELPLESS = 2
    """Nothing can be set or read."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What rank 0 tells: the setting, and after how many iterations to look: 0 after the epoch, None not any more."""

    setting: Setting | None
    steps: int | None

    def to_json(self) -> str:
        setting = self.setting
        knobs = None if setting is None else [setting.sm_mhz, setting.mem_mhz, setting.power_limit_w]
        return json.dumps([knobs, self.steps])

    @classmethod
    def from_json(cls, text: str) -> _Order:
        knobs, steps = json.loads(text)
        return cls(None if knobs is None else Setting(*knobs), steps)


@dataclass(frozen=True, slots=True)
class _Glance:
    """The counters after so many iterations of an epoch."""

    steps: int
    counts: tuple[Count, ...]


class Profiler:
    """Sets and measures the GPUs of this process until the best setting is held."""

    def __init__(
        self,
        policy: SettingProfiling,
        gpus: Sequence[Gpu],
        *,
        ranks: Ranks,
        tell: Tell,
        synchronise: Callable[[], None] | None = None,
    ) -> None:
        self._policy, self._gpus, self._ranks, self._tell = policy, tuple(gpus), ranks, tell
        self._synchronise = synchronise
        self.progress: Progress = policy.start()
        """As rank 0 knows it; of no meaning on other ranks."""
        self.spent = Measurement(0.0, 0.0)
        """On profiling, by all ranks."""
        self.by_epoch = False
        """Whether every epoch is a window, because the program tells of no iterations."""
        self._order = _Order(None, None)
        self._began: tuple[Count, ...] | None = None
        self._before: _Glance | None = None
        self._last: _Glance | None = None
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
        """Iterations of the last epoch, or None before one was over or where the program does not tell of any."""
        return self._usual_steps or None

    def begin_epoch(self) -> None:
        """Nothing; an epoch begins here. The first one sets the first setting."""
        if not self._decided:
            self._decided = True
            self._agree()
        self._steps = 0
        self._before = self._last = None
        self._began = None if self.is_over else self._counts()

    def step(self, count: int = 1) -> None:
        """Nothing; so many more iterations are over."""
        self._steps += count
        look = self._order.steps
        if not look:
            return
        if self._before is None:
            self._glance(first=True)
        elif self._steps - self._before.steps >= look:
            self._glance()
            self._look()
        elif self._is_glance_due(look):
            self._glance()

    def end_epoch(self) -> None:
        """Nothing; an epoch is over, validation and all, and what it showed is taken into account."""
        if self._order.steps == 0:
            self._exchange(1, self._began, self._counts())
        elif self.is_searching:
            if self.by_epoch or max(self._steps, self._usual_steps or 0) < 2:
                self._take_epoch()
            elif self._last is not None and self._before is not None and self._last.steps > self._before.steps:
                self._look()
        self._usual_steps = self._steps
        self._joined = False

    def give_up(self) -> None:
        """Nothing; the GPUs are as they were found, and nothing is set any more."""
        for gpu in self._gpus:
            try:
                gpu.restore()
            except DeviceError as error:
                self._tell(f"{gpu.spec.label} could not be restored: {error.message}")
        self._order = replace(self._order, steps=None)

    def _is_glance_due(self, look: int) -> bool:
        last = self._last or self._before
        every = max(look // GLANCES, 1)
        return self._steps == self._usual_steps or (last is not None and self._steps - last.steps >= every)

    def _glance(self, *, first: bool = False) -> None:
        counts = self._counts()
        if counts is None:
            return
        self._last = _Glance(self._steps, counts)
        if first:
            self._before = self._last

    def _take_epoch(self) -> None:
        """Nothing; the epoch as a whole was a window."""
        if not self.by_epoch:
            self.by_epoch = True
            self._policy = self._policy.by_epoch()
        self._exchange(1, self._began, self._counts())

    def _look(self) -> None:
        """Nothing; rank 0 has taken the stretch that ends with the last glance into account, and all do as it says."""
        before, last = self._before, self._last
        if before is None or last is None:
            return
        if self._synchronise is not None and last.steps == self._steps:
            self._synchronise()
            counts = self._counts()
            last = last if counts is None else _Glance(self._steps, counts)
        self._exchange(last.steps - before.steps, before.counts, last.counts)
        self._before = self._last = last
        self._joined = True

    def _exchange(self, steps: int, before: tuple[Count, ...] | None, after: tuple[Count, ...] | None) -> None:
        spent = spent_between(before, after)
        trouble = _Trouble.HELPLESS if spent is None else _Trouble.NONE
        mine = (0.0, 0.0) if spent is None else (spent.time_s, spent.energy_j)
        (_, energy_j, _), (time_s, _, worst) = self._ranks.sum_and_max((*mine, float(trouble)))
        if self.is_searching:
            self.spent += Measurement(time_s, energy_j)
        if self._ranks.rank == 0:
            self.progress = self._taken(Interval(steps, time_s, energy_j, self._joined), worst)
        self._agree()

    def _taken(self, interval: Interval, trouble: float) -> Progress:
        if trouble >= _Trouble.HELPLESS or interval.time_s <= 0 or interval.energy_j <= 0:
            return self._policy.given_up(self.progress)
        return self._policy.step(self.progress, interval)

    def _agree(self) -> None:
        """Nothing; all GPUs of the job have the setting that rank 0 wants, or the next one that none refuses."""
        while True:
            policy, progress = self._policy, self.progress
            mine = _Order(policy.setting(progress), policy.steps(progress))
            before, self._order = self._order, _Order.from_json(self._ranks.broadcast(mine.to_json()))
            if self._order.setting == before.setting:
                return
            _, (trouble,) = self._ranks.sum_and_max((float(self._applied(before.setting)),))
            if trouble == _Trouble.NONE:
                return
            helpless = trouble >= _Trouble.HELPLESS
            self.progress = policy.given_up(progress) if helpless else policy.refused(progress)

    def _applied(self, before: Setting | None) -> _Trouble:
        """What went wrong when the GPUs of this process were set."""
        setting = self._order.setting
        try:
            for gpu in self._gpus:
                if setting is not None:
                    gpu.apply(setting)
                elif before is not None:
                    gpu.restore()
        except (SettingRefused, NotSupported) as error:
            self._tell(f"{error.message}; going on without that setting")
            return _Trouble.REFUSED if setting is not None else _Trouble.NONE
        except DeviceError as error:
            self._tell(f"{error.message}; going on without setting anything")
            return _Trouble.HELPLESS if setting is not None else _Trouble.NONE
        return _Trouble.NONE

    def _counts(self) -> tuple[Count, ...] | None:
        """The counters now, or None where one of them does not answer."""
        try:
            return tuple(gpu.count() for gpu in self._gpus)
        except DeviceError as error:
            self._tell(f"{error.message}; profiling ends here")
            return None


def spent_between(before: Sequence[Count] | None, after: Sequence[Count] | None) -> Measurement | None:
    """What several GPUs spent from one reading of their counters to another; None where a counter was set back."""
    if before is None or after is None:
        return None
    try:
        return Measurement.together(map(Measurement.between, before, after))
    except ValueError:
        return None
