"""Cut power samples into program samples along a period that was found.

Notation, for the period of single cycles
    T   the period that was found
    c   spectrum of one cycle: c(m) = Σ (p − mean p)·exp(−2πi·m·t/T), m = 1 to 8
    C   the same of the cycles before, each moved to where the first one was
    d   delay of the load against the first cycle, as a share of T: where Re Σ conj(C)·c·exp(2πi·m·d) is greatest
A cycle in which d grew by Δ took T/(1 − Δ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, pi

import numpy as np
from numpy.typing import NDArray

from wattune.signals.change import ProgramSample
from wattune.signals.samples import Floats, PowerSamples

Spectrum = NDArray[np.complex128]

_LEAST_SAMPLES = 8
"""Least power samples per program sample: with fewer, cycles cannot be distinguished."""
_HARMONICS = 8
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
        span_s = self.period_s * cutter._cycles(rest)
        while cutter.start_s is not None and cutter.start_s + span_s <= rest.time_s[-1]:
            cutter, own = cutter._cut(rest, span_s)
            cut.append(own)
        assert cutter.start_s is not None
        return replace(cutter, rest=rest.since(cutter.start_s)), tuple(cut)

    def _cycles(self, samples: PowerSamples) -> int:
        """Return how many cycles make a program sample, so that it has power samples enough."""
        step_s = float(np.median(np.diff(samples.time_s)))
        return max(ceil(_LEAST_SAMPLES * step_s / self.period_s), 1)

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
        turns = np.exp(-2j * pi * np.outer(_orders(), time_s - (self.start_s or 0.0)) / self.period_s)
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
        moved = spectrum * np.exp(2j * pi * _orders() * late)
        mean_cycle = self.mean_cycle + (moved - self.mean_cycle) / min(cycles, _MEMORY)
        return replace(self, mean_cycle=mean_cycle, late=late, cycles=cycles)


def _placed(mean_cycle: Spectrum, spectrum: Spectrum, *, around: float) -> tuple[float, float]:
    """Return the delay of a cycle as a share of the period, near `around`, and its correlation with the mean."""
    product = np.conj(mean_cycle) * spectrum
    scores = np.real(np.exp(2j * pi * np.outer(around + _REACH, _orders())) @ product)
    best = int(np.argmax(scores[1:-1])) + 1
    before, here, after = scores[best - 1 : best + 2]
    bend = before - 2 * here + after
    aside = 0.5 * (before - after) / bend if bend < 0 else 0.0
    late = around + float(_REACH[best]) + float(np.clip(aside, -1, 1)) * float(_REACH[1] - _REACH[0])
    size = float(np.linalg.norm(mean_cycle) * np.linalg.norm(spectrum))
    return late, float(here) / size if size > 0 else 0.0


def _orders() -> NDArray[np.int64]:
    return np.arange(1, _HARMONICS + 1)


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
