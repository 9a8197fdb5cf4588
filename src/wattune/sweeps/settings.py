"""Measure a workload at one setting after the other, and choose the settings.

A sweep for a slowdown limit (`next_setting`) measures a few settings over the range of the knob, highest first, until
they are both too slow and cost more again. It then halves the gaps beside the best one: towards the first that is
too slow, and on the other side where the least energy may lie within the limit. Where runs scatter (`REPEATS`), it
measures the driver's default, the best setting and cheaper ones near the limit again, until it is sure of the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import ceil, floor

from wattune.core.errors import InputError, NotSupported
from wattune.core.frontier import History, Trial
from wattune.core.gpu_spec import GpuSpec, evenly, spaced
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu
from wattune.sweeps.repeats import is_within, merged

COARSE = 8
"""Settings over the whole range, before the sweep refines; half of the points where these are fewer than 16."""
FINE = 0.005
"""A gap between two settings is not halved where they differ by less in time and in energy: runs vary by more."""

REPEATS = 6
"""Most measurements of settings that were measured before, where runs of the same work scatter."""
MOST_OF_ONE = 3
"""Most measurements of one setting; the driver's default, to which all are compared, may have one more."""

OnTrial = Callable[[Trial[Setting]], None]


class Knob(Enum):
    """A knob that a sweep varies."""

    SM_CLOCK = "sm-clock"
    MEM_CLOCK = "mem-clock"
    POWER_LIMIT = "power-limit"

    @property
    def turns(self) -> str:
        """Its name in `Setting.knobs`."""
        return self.value.replace("-", "_")


def sweep(
    gpu: Gpu,
    settings: Iterable[Setting],
    measure: Callable[[Setting], Measurement],
    *,
    on_trial: OnTrial | None = None,
) -> History[Setting]:
    """Measure each setting in order and return the trials; the GPU is restored afterwards, whatever happens.

    `measure` does the work once at the setting that is applied. It is a whole run, so there is nothing to settle.
    `on_trial` is called with each trial as it ends, so that nothing is lost when a later one fails.
    """
    trials: list[Trial[Setting]] = []
    try:
        for setting in settings:
            gpu.apply(setting)
            trials.append(Trial(setting, measure(setting)))
            if on_trial is not None:
                on_trial(trials[-1])
    finally:
        gpu.restore()
    return tuple(trials)


def sweep_settings(spec: GpuSpec, knob: Knob, *, points: int) -> tuple[Setting, ...]:
    """Return the driver's default, then at most `points` evenly spaced values of the knob, highest first."""
    if points < 1:
        raise InputError(f"a sweep has at least one point, not {points}", hint="leave --points out for 20")
    match knob:
        case Knob.SM_CLOCK:
            values = [Setting(sm_mhz=mhz) for mhz in evenly(_known(spec, spec.sm_clocks_mhz, "core clock"), points)]
        case Knob.MEM_CLOCK:
            values = [Setting(mem_mhz=mhz) for mhz in evenly(_mem_clocks_mhz(spec), points)]
        case Knob.POWER_LIMIT:
            values = [Setting(power_limit_w=watts) for watts in _limits_w(spec, points)]
    return (DRIVER_DEFAULT, *sorted(values, reverse=True))


def knob_settings(spec: GpuSpec, knob: Knob) -> tuple[Setting, ...]:
    """Return every setting of the knob alone, highest first; power limits in whole watts."""
    match knob:
        case Knob.SM_CLOCK:
            values = [Setting(sm_mhz=mhz) for mhz in _known(spec, spec.sm_clocks_mhz, "core clock")]
        case Knob.MEM_CLOCK:
            values = [Setting(mem_mhz=mhz) for mhz in _mem_clocks_mhz(spec)]
        case Knob.POWER_LIMIT:
            low_w, high_w = _limits_w(spec, 2)
            whole_w = (float(watts) for watts in range(ceil(low_w), floor(high_w) + 1))
            values = [Setting(power_limit_w=watts) for watts in {low_w, *whole_w, high_w}]
    return tuple(sorted(values, reverse=True))


def next_setting(
    history: Sequence[Trial[Setting]],
    candidates: Sequence[Setting],
    *,
    slowdown: float,
    points: int,
    repeats: int = 0,
) -> Setting | None:
    """Return the setting to measure after these, None at the end: the driver's default, then at most `points`.

    `candidates` are the settings of one knob, highest first: each takes as long as the one before it, or longer. At
    most `repeats` measurements are of settings that were measured before; none for work that never varies.
    """
    costs = {trial.choice: trial.cost for trial in merged(history)}
    if DRIVER_DEFAULT not in costs:
        return DRIVER_DEFAULT
    if not candidates:
        return None
    search = _Search(costs, candidates, slowdown)
    left = repeats - (len(history) - len(costs))
    is_full = len(costs) > points
    coarse = None if is_full else search.next_coarse(points)
    if coarse is not None:
        return coarse
    counts = Counter(trial.choice for trial in history)
    if left > 0 and counts[DRIVER_DEFAULT] == 1:
        return DRIVER_DEFAULT  # shows how far runs scatter, before the limit is approached
    fine = None if is_full else search.next_fine()
    return fine or (search.next_repeat(counts) if left > 0 else None)


@dataclass(frozen=True, slots=True)
class _Search:
    """What is known when the next setting is chosen."""

    costs: Mapping[Setting, Measurement]
    candidates: Sequence[Setting]
    slowdown: float

    def next_coarse(self, points: int) -> Setting | None:
        """Return the next setting down the range; None once they are too slow and cost more than the one before."""
        count = min(points, max(3, min(COARSE, points // 2)))
        ranks = evenly((-place for place in range(len(self.candidates))), count)
        before: Measurement | None = None
        for rank in sorted(ranks, reverse=True):
            setting = self.candidates[-rank]
            if setting not in self.costs:
                return setting
            cost = self.costs[setting]
            is_slow = cost.time_s > (1 + self.slowdown) * self.default.time_s
            if before is not None and is_slow and cost.energy_j >= before.energy_j:
                return None
            before = cost
        return None

    def next_fine(self) -> Setting | None:
        """Return the middle of the gap in which the least energy within the limit may lie; None where it is narrow.

        Energy falls with the knob down to one lowest point and rises below it. So it may lie above the best setting
        only where the next lower one costs more.
        """
        places = [place for place, setting in enumerate(self.candidates) if setting in self.costs]
        best = self._best_place(places)
        at = places.index(best)
        gaps = [(best, below) for below in places[at + 1 : at + 2]]
        if not gaps or self._cost(gaps[0][1]).energy_j >= self._cost(best).energy_j:
            gaps += [(above, best) for above in places[max(at - 1, 0) : at]]
        open_gaps = [gap for gap in gaps if gap[1] - gap[0] > 1 and self._differ(*gap)]
        if not open_gaps:
            return None
        high, low = max(open_gaps, key=lambda gap: gap[1] - gap[0])
        return self.candidates[(high + low) // 2]

    def next_repeat(self, counts: Mapping[Setting, int]) -> Setting | None:
        """Return the setting to measure again: the best, then cheaper ones that may be within the limit; None if sure.

        The best was chosen among many, perhaps for a lucky run: it is measured twice, where it saves anything.
        """
        places = [place for place, setting in enumerate(self.candidates) if setting in self.costs]
        best = self.candidates[self._best_place(places)]
        limit_s, enough_j = (1 + self.slowdown) * self.default.time_s, (1 - FINE) * self.costs[best].energy_j
        hopeful = [
            setting
            for setting, cost in self.costs.items()
            if cost.time_s <= limit_s and cost.energy_j < enough_j and counts[setting] < MOST_OF_ONE
        ]
        is_doubtful = counts[best] == 1 and self.costs[best].energy_j < (1 - FINE) * self.default.energy_j
        wanted = best if is_doubtful else min(hopeful, key=lambda one: self.costs[one].energy_j, default=None)
        if wanted is None or counts[wanted] < counts[DRIVER_DEFAULT] or counts[DRIVER_DEFAULT] > MOST_OF_ONE:
            return wanted
        return DRIVER_DEFAULT

    @property
    def default(self) -> Measurement:
        return self.costs[DRIVER_DEFAULT]

    def _cost(self, place: int) -> Measurement:
        return self.costs[self.candidates[place]]

    def _best_place(self, places: Sequence[int]) -> int:
        """Return the place of the least energy within the limit, of equal ones the lowest, or else the highest place.

        A GPU at its power limit spends the same at all clocks above the one that it reaches.
        """
        within = [place for place in places if is_within(self._cost(place), self.default, slowdown=self.slowdown)]
        least_j = min((self._cost(place).energy_j for place in within), default=0.0)
        equal = [place for place in within if self._cost(place).energy_j <= (1 + FINE) * least_j]
        return max(equal, default=places[0])

    def _differ(self, high: int, low: int) -> bool:
        """Return whether the ends of a gap differ enough for a measurement between them."""
        one, other = self._cost(high), self._cost(low)
        time_s, energy_j = abs(one.time_s - other.time_s), abs(one.energy_j - other.energy_j)
        return time_s > FINE * one.time_s or energy_j > FINE * one.energy_j


def recorded_settings(recorded: Iterable[Setting], knob: Knob, *, points: int) -> tuple[Setting, ...]:
    """Return the driver's default if recorded, then at most `points` recorded settings of the knob, highest first."""
    known = sorted(set(recorded), reverse=True)
    turning = [setting for setting in known if knob.turns in setting.knobs]
    if not turning:
        turned = sorted({name.replace("_", "-") for setting in known for name in setting.knobs})
        hint = f"choose --knob {' or '.join(turned)}" if turned else "it has the driver's default alone"
        raise InputError(f"this recording never sets the {knob.value}", hint=hint)
    places = evenly(range(len(turning)), points) if points > 1 else (0,)
    default = (DRIVER_DEFAULT,) if DRIVER_DEFAULT in known else ()
    return (*default, *(turning[place] for place in places))


def _mem_clocks_mhz(spec: GpuSpec) -> tuple[int, ...]:
    if not spec.can_lock_mem:
        raise NotSupported(f"{spec.label} does not let its memory clock be set", hint="sweep --knob sm-clock instead")
    return _known(spec, spec.mem_clocks_mhz, "memory clock")


def _known(spec: GpuSpec, clocks_mhz: tuple[int, ...], what: str) -> tuple[int, ...]:
    if not clocks_mhz:
        raise NotSupported(f"{spec.label} does not let its {what} be set", hint="sweep --knob power-limit instead")
    return clocks_mhz


def _limits_w(spec: GpuSpec, points: int) -> list[float]:
    """Return whole watts from the lowest to the highest limit that may be set."""
    limits = spec.power_limits
    if limits is None:
        raise NotSupported(f"{spec.label} does not let its power limit be set", hint="sweep --knob sm-clock instead")
    watts_apart = spaced(limits.min_w, limits.max_w, points) if points > 1 else (limits.max_w,)
    return [min(max(float(round(watts)), limits.min_w), limits.max_w) for watts in dict.fromkeys(watts_apart)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSettings:
    """Which settings to measure: those named, or those of a knob, evenly spaced or refined at the slowdown limit."""

    knob: Knob = Knob.SM_CLOCK
    points: int = 20
    slowdown: float = 0.05
    even: bool = False
    settings: tuple[Setting, ...] = ()

    def on(
        self, spec: GpuSpec, trials: Sequence[Trial[Setting]], *, recorded: Sequence[Setting] | None, varies: bool
    ) -> tuple[Iterable[Setting], int, str]:
        """Return the settings for a GPU, chosen while `trials` grows, how many, and "at most " where fewer may do.

        `recorded` are the settings of a GPU by table; `varies` is whether the same work takes different times.
        """
        for setting in self.settings:
            spec.check(setting)
        chosen: tuple[Setting, ...]
        if self.settings:
            default = recorded is None or DRIVER_DEFAULT in recorded
            chosen = tuple(dict.fromkeys((*([DRIVER_DEFAULT] if default else []), *self.settings)))
        elif recorded is not None:  # a recording costs nothing to play
            chosen = recorded_settings(recorded, self.knob, points=self.points)
        elif self.even:
            chosen = sweep_settings(spec, self.knob, points=self.points)
        else:
            candidates = knob_settings(spec, self.knob)
            repeats = REPEATS if varies else 0
            most = 1 + min(self.points, len(candidates)) + repeats
            return self._refined(candidates, trials, repeats), most, "at most "
        return chosen, len(chosen), ""

    def _refined(
        self, candidates: Sequence[Setting], trials: Sequence[Trial[Setting]], repeats: int
    ) -> Iterator[Setting]:
        ask = partial(next_setting, candidates=candidates, slowdown=self.slowdown, points=self.points, repeats=repeats)
        while (setting := ask(trials)) is not None:
            yield setting
