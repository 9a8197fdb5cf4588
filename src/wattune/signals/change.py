"""Detect that a program began to behave differently, in which quantity, and by how much.

A *program sample* covers one period of a program (or one reported step, or one second where nothing repeats): its
duration, mean power and mean utilisation. `ChangeDetector` learns the usual values from the first twenty samples, then
adds up the residuals upward and downward (Page's cumulative sums). A slow drift, such as that of power while a GPU
warms up, is followed and is no change.

A pause is no sample of the program, since nothing ran. It is skipped, and so is the sample after it, in which work
began again. Whether a pause counts as idle is decided in `readings`.

`CycleCutter` cuts power samples into program samples along a period that was found. Notation, for the period of single
cycles:
    T   the period that was found
    c   spectrum of one cycle: c(m) = Σ (p − mean p)·exp(−2πi·m·t/T), m = 1 to 8
    C   the same of the cycles before, each moved to where the first one was
    d   delay of the load against the first cycle, as a share of T: where Re Σ conj(C)·c·exp(2πi·m·d) is greatest
A cycle in which d grew by Δ took T/(1 − Δ).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp, pi

import numpy as np
from numpy.typing import NDArray

from wattune.core.measurement import SIGMAS_95
from wattune.signals.change_channel import KEPT, LEARN, LEAST_SHIFT, Channel
from wattune.signals.samples import Floats, PowerSamples, usual_step_s

PERIOD, POWER, UTIL = "period", "power", "util"
_QUANTITIES = (PERIOD, POWER, UTIL)
_FOLLOW_S = 20.0
"""The time constant with which the reference follows: a GPU warms up with time constants of 20 to 60 s in air."""
_FOLLOW_SAMPLES = (20.0, 300.0)
"""Never so fast that ten samples could absorb a change, and never so slow that drift adds up."""
_PER_KELVIN, _MOST_KELVIN = 0.0027, 100.0
"""Share by which total power rises per kelvin: 0.2 to 0.35 % on A100 and H100, by public sweeps."""
_NOTHING_RAN = 0.005
"""Utilisation is reported in whole percents, so that less is zero."""
_MOST_PHASES = 6
"""Earlier phases that are remembered, to recognise them: training, evaluation, a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSample:
    """Measurements over one period, step or second; None where one is missing."""

    time_s: float
    period_s: float | None = None
    power_w: float | None = None
    util: float | None = None
    """Share of time in which the GPU was busy, 0 to 1."""
    temperature_c: float | None = None
    """Used to compare power at one temperature, since a warmer GPU draws more."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The distance of one quantity from its usual value."""

    change: float
    """A ratio less one for period and power, a difference of shares for utilisation."""
    error: float
    """Half-width of its 95 % interval."""
    certain: bool
    """False for quantities that are listed only to show that they did not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A program began to behave differently."""

    time_s: float
    """Time at which the change was certain."""
    since_s: float
    """Time at which it began, by the same samples."""
    samples: int
    """Number of samples that it took to be certain."""
    shifts: Mapping[str, Shift]
    """Shifts by quantity: period, power, util."""
    back_to_s: float | None = None
    """Start of an earlier phase with the same values, whose results hold again; None without one."""

    def since_start(self, start_s: float) -> Change:
        """Return the change with times since the start of a run."""
        back_to_s = None if self.back_to_s is None else self.back_to_s - start_s
        return replace(self, time_s=self.time_s - start_s, since_s=self.since_s - start_s, back_to_s=back_to_s)

    @property
    def what(self) -> tuple[str, ...]:
        """The quantities that changed."""
        return tuple(name for name, shift in self.shifts.items() if shift.certain)

    @property
    def words(self) -> str:
        """One line for people."""
        parts = [f"{name} {_percent(name, self.shifts[name])}" for name in self.what]
        known = "" if self.back_to_s is None else f", as it was from {self.back_to_s:.1f} s on"
        return f"{', '.join(parts)} since {self.since_s:.1f} s{known}"


@dataclass(frozen=True, slots=True)
class EarlierPhase:
    """The start of a phase of a program, and its usual values."""

    start_s: float
    levels: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ChangeDetector:
    """The usual values of a program, and the evidence that they changed."""

    channels: Mapping[str, Channel] = field(
        default_factory=lambda: {name: Channel(LEAST_SHIFT, name == UTIL) for name in _QUANTITIES}
    )
    start_s: float | None = None
    times_s: tuple[float, ...] = ()
    """Times of the latest samples."""
    phases: tuple[EarlierPhase, ...] = ()
    """Latest last."""
    change: Change | None = None
    """The change that the latest sample made certain."""
    reference_c: float | None = None
    """The temperature at which power is compared: that of the first sample that has one."""
    paused: bool = False
    """True where nothing ran in the latest sample."""

    @property
    def levels(self) -> Mapping[str, float]:
        """The usual values by quantity, as far as they were learned."""
        return {name: channel.level for name, channel in self.channels.items() if channel.level is not None}

    def add(self, sample: ProgramSample) -> ChangeDetector:
        """Take in one more sample; `change` is set where that made a change certain."""
        pauses = sample.util is not None and 0 <= sample.util < _NOTHING_RAN
        if pauses or self.paused:
            return replace(self, change=None, paused=pauses)
        times_s = (*self.times_s[1 - KEPT :], sample.time_s)
        horizon = _horizon(times_s)
        reference_c = sample.temperature_c if self.reference_c is None else self.reference_c
        values = (sample.period_s, _power_at(sample, reference_c), sample.util)
        channels = {
            name: self.channels[name].add(value, horizon=horizon)
            for name, value in zip(_QUANTITIES, values, strict=True)
        }
        start_s = sample.time_s if self.start_s is None else self.start_s
        added = ChangeDetector(channels, start_s, times_s, self.phases, reference_c=reference_c)
        alarms = [alarm.values for channel in channels.values() if (alarm := channel.alarm) is not None]
        return added._changed(max(alarms)) if alarms else added

    def resumed(self) -> ChangeDetector:
        """Keep the usual values and clear the evidence against them, after another setting was in force."""
        channels = {name: channel.resumed() for name, channel in self.channels.items()}
        return replace(self, channels=channels, times_s=(), change=None)

    def _changed(self, count: int) -> ChangeDetector:
        """Report a change that began `count` samples ago, and learn again from there."""
        count = min(count, len(self.times_s), LEARN - 1)
        shifts = {
            name: shift for name, channel in self.channels.items() if (shift := _shift(channel, count)) is not None
        }
        since_s = self.times_s[-count]
        change = Change(
            time_s=self.times_s[-1],
            since_s=since_s,
            samples=count,
            shifts=shifts,
            back_to_s=self._recognised(shifts),
        )
        phases = (*self.phases, EarlierPhase(self.start_s or 0.0, self.levels))[-_MOST_PHASES:]
        channels = {name: channel.relearn(count) for name, channel in self.channels.items()}
        return ChangeDetector(channels, since_s, self.times_s[-count:], phases, change, self.reference_c)

    def _recognised(self, shifts: Mapping[str, Shift]) -> float | None:
        """Return when the latest of the earlier phases with the present values began."""
        now = {name: self._moved(name, shift) for name, shift in shifts.items()}
        for phase in reversed(self.phases):
            if all(self._alike(name, now[name], phase, shifts[name].error) for name in now):
                return phase.start_s
        return None

    def _moved(self, name: str, shift: Shift) -> float:
        level = self.levels[name]
        return level + shift.change if name == UTIL else level * (1 + shift.change)

    def _alike(self, name: str, level: float, phase: EarlierPhase, error: float) -> bool:
        earlier = phase.levels.get(name)
        if earlier is None:
            return False
        difference = level - earlier if name == UTIL else level / earlier - 1
        return abs(difference) < max(self.channels[name].least_shift / 2, error)


def _power_at(sample: ProgramSample, reference_c: float | None) -> float | None:
    """Return the power of a sample as it would be at the reference temperature, as far as that is known."""
    if sample.power_w is None or sample.temperature_c is None or reference_c is None:
        return sample.power_w
    warmer_c = sample.temperature_c - reference_c
    return sample.power_w * exp(-_PER_KELVIN * warmer_c) if abs(warmer_c) < _MOST_KELVIN else sample.power_w


def _horizon(times_s: tuple[float, ...]) -> float:
    """Return how many samples the reference remembers."""
    low, high = _FOLLOW_SAMPLES
    if len(times_s) < 2:
        return low
    step_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
    return min(max(_FOLLOW_S / step_s, low), high) if step_s > 0 else high


def _shift(channel: Channel, count: int) -> Shift | None:
    found = channel.since(count)
    if found is None or channel.reference is None:
        return None
    residual, error = found
    certain = channel.alarm is not None or abs(residual) > max(channel.reference.threshold.slack, 3 * error)
    return Shift(channel.gap(residual), SIGMAS_95 * error, certain)


def _percent(name: str, shift: Shift) -> str:
    unit = " points" if name == UTIL else " %"
    return f"{100 * shift.change:+z.1f}{unit}"


Spectrum = NDArray[np.complex128]

_LEAST_SAMPLES = 8
"""Least power samples per program sample: with fewer, cycles cannot be distinguished."""
_ORDERS = np.arange(1, 9)
"""Harmonics of a cycle."""
_ALIKE = 0.7
"""Correlation from which a cycle counts as one like those before: noise alone seldom reaches it."""
_REACH = np.linspace(-0.3, 0.3, 121)
"""Delays that are tried, as shares of T around that of the cycle before."""
_MEMORY = 20.0
"""Cycles that the mean cycle remembers."""


@dataclass(frozen=True, slots=True, eq=False)
class CycleCutter:
    """Cut samples into whole periods as they come: `cutter, cut = cutter.add(samples)`."""

    period_s: float
    rest: PowerSamples | None = None
    """Samples that are not cut yet."""
    start_s: float | None = None
    mean_cycle: Spectrum | None = None
    late: float | None = None
    """d of the cycle before."""
    cycles: int = 0
    """Cycles in the mean cycle."""

    def add(self, samples: PowerSamples) -> tuple[CycleCutter, tuple[ProgramSample, ...]]:
        """Return the cutter for the next call, and the program samples that these samples complete."""
        rest = samples if self.rest is None else self.rest.joined(samples)
        if len(rest) < 2:
            return replace(self, rest=rest), ()
        cutter, cut = replace(self, start_s=float(rest.time_s[0]) if self.start_s is None else self.start_s), []
        # Several cycles make a program sample where one has too few power samples.
        span_s = self.period_s * max(ceil(_LEAST_SAMPLES * usual_step_s(rest.time_s) / self.period_s), 1)
        while cutter.start_s is not None and cutter.start_s + span_s <= rest.time_s[-1]:
            cutter, own = cutter._cut(rest, span_s)
            cut.append(own)
        assert cutter.start_s is not None
        return replace(cutter, rest=rest.since(cutter.start_s)), tuple(cut)

    def _cut(self, samples: PowerSamples, span_s: float) -> tuple[CycleCutter, ProgramSample]:
        assert self.start_s is not None
        end_s = self.start_s + span_s
        inside = (samples.time_s >= self.start_s) & (samples.time_s < end_s)
        later = self._followed(self._spectrum(samples.time_s[inside], samples.power_w[inside]))
        period_s = None
        if later.late is not None and self.late is not None:
            period_s = self.period_s / (1 - (later.late - self.late) * self.period_s / span_s)
        return replace(later, start_s=end_s), _sample(samples, self.start_s, end_s, period_s)

    def _spectrum(self, time_s: Floats, power_w: Floats) -> Spectrum | None:
        """Return the spectrum of a cycle; None where samples are missing."""
        known = np.isfinite(power_w)
        time_s, power_w = time_s[known], power_w[known]
        if len(time_s) < _LEAST_SAMPLES // 2:
            return None
        turns = np.exp(-2j * pi * np.outer(_ORDERS, time_s - (self.start_s or 0.0)) / self.period_s)
        found: Spectrum = turns @ (power_w - power_w.mean()) / len(power_w)
        # Harmonics that so few samples cannot resolve are left out.
        found[len(power_w) // 2 :] = 0.0
        return found

    def _followed(self, spectrum: Spectrum | None) -> CycleCutter:
        """Take in one more cycle; `late` is None where it is unlike those before."""
        if spectrum is None:
            return replace(self, late=None)
        if self.mean_cycle is None:
            return replace(self, mean_cycle=spectrum, late=0.0, cycles=1)
        late, correlation = _placed(self.mean_cycle, spectrum, around=self.late or 0.0)
        if correlation < _ALIKE:
            if self.late is not None:
                return replace(self, late=None)
            # The first cycles were chance or start-up: the mean cycle begins again.
            return replace(self, mean_cycle=spectrum, cycles=1)
        cycles = self.cycles + 1
        moved = spectrum * np.exp(2j * pi * _ORDERS * late)
        mean_cycle = self.mean_cycle + (moved - self.mean_cycle) / min(cycles, _MEMORY)
        return replace(self, mean_cycle=mean_cycle, late=late, cycles=cycles)


def _placed(mean_cycle: Spectrum, spectrum: Spectrum, *, around: float) -> tuple[float, float]:
    """Return the delay of a cycle as a share of the period, near `around`, and its correlation with the mean."""
    product = np.conj(mean_cycle) * spectrum
    scores = np.real(np.exp(2j * pi * np.outer(around + _REACH, _ORDERS)) @ product)
    best = int(np.argmax(scores[1:-1])) + 1
    before, here, after = scores[best - 1 : best + 2]
    bend = before - 2 * here + after
    aside = 0.5 * (before - after) / bend if bend < 0 else 0.0
    late = around + float(_REACH[best]) + float(np.clip(aside, -1, 1)) * float(_REACH[1] - _REACH[0])
    size = float(np.linalg.norm(mean_cycle) * np.linalg.norm(spectrum))
    return late, float(here) / size if size > 0 else 0.0


def _sample(samples: PowerSamples, start_s: float, end_s: float, period_s: float | None) -> ProgramSample:
    inside = (samples.time_s >= start_s) & (samples.time_s < end_s)
    return ProgramSample(
        time_s=end_s,
        period_s=period_s,
        power_w=_mean(samples.power_w[inside]),
        util=None if samples.sm_util is None else _mean(samples.sm_util[inside]),
    )


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
