"""Looks at a program, cut out of samples along a period that was found.

Notation, for the period of single cycles
    T   the period that was found
    c   spectrum of one cycle: c(m) = Σ (p − mean p)·exp(−2πi·m·t/T), m = 1 to 8
    C   the same of the cycles before, each moved to where the first one was
    d   by what share of T the load comes later than in the first cycle: where Re Σ conj(C)·c·exp(2πi·m·d) is greatest
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
"""Samples of a look along a period: with fewer a cycle cannot be told from another."""
_HARMONICS = 8
_ALIKE = 0.7
"""Correlation from which a cycle is believed to be one like those before: noise alone seldom reaches it."""
_REACH = np.linspace(-0.3, 0.3, 121)
"""Where a cycle is looked for, as shares of T around where the one before was."""
_MEMORY = 20.0
"""Cycles that make the usual one."""


@dataclass(frozen=True, slots=True, eq=False)
class CycleCutter:
    """Cuts samples into looks of whole periods as they come: `cutter, looks = cutter.add(samples)`."""

    period_s: float
    rest: PowerSamples | None = None
    """What is not cut yet."""
    start_s: float | None = None
    usual: Spectrum | None = None
    late: float | None = None
    """d of the cycle before."""
    seen: int = 0
    """Cycles in the usual one."""

    def add(self, samples: PowerSamples) -> tuple[CycleCutter, tuple[ProgramSample, ...]]:
        """The cutter as it goes on, and the looks that these samples complete."""
        rest = samples if self.rest is None else self.rest.joined(samples)
        if len(rest) < 2:
            return replace(self, rest=rest), ()
        cutter, looks = replace(self, start_s=float(rest.time_s[0]) if self.start_s is None else self.start_s), []
        span_s = self.period_s * cutter._cycles(rest)
        while cutter.start_s is not None and cutter.start_s + span_s <= rest.time_s[-1]:
            cutter, look = cutter._cut(rest, span_s)
            looks.append(look)
        assert cutter.start_s is not None
        return replace(cutter, rest=rest.since(cutter.start_s)), tuple(looks)

    def _cycles(self, samples: PowerSamples) -> int:
        """How many cycles make a look, so that it has samples enough."""
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
        return replace(later, start_s=end_s), _look(samples, self.start_s, end_s, period_s)

    def _spectrum(self, time_s: Floats, power_w: Floats) -> Spectrum | None:
        """The spectrum of a cycle; None where samples are missing."""
        known = np.isfinite(power_w)
        time_s, power_w = time_s[known], power_w[known]
        if len(time_s) < _LEAST_SAMPLES // 2:
            return None
        turns = np.exp(-2j * pi * np.outer(_orders(), time_s - (self.start_s or 0.0)) / self.period_s)
        found: Spectrum = turns @ (power_w - power_w.mean()) / len(power_w)
        # What few samples cannot tell apart is left out.
        found[len(power_w) // 2 :] = 0.0
        return found

    def _followed(self, spectrum: Spectrum | None) -> CycleCutter:
        """The cutter after one more cycle; `late` is None where it is not like those before."""
        if spectrum is None:
            return replace(self, late=None)
        if self.usual is None:
            return replace(self, usual=spectrum, late=0.0, seen=1)
        late, alike = _placed(self.usual, spectrum, around=self.late or 0.0)
        if alike < _ALIKE:
            # Where what was seen first was chance or start-up, the usual one begins anew.
            return replace(self, usual=spectrum, late=None, seen=1) if self.late is None else replace(self, late=None)
        seen = self.seen + 1
        moved = spectrum * np.exp(2j * pi * _orders() * late)
        usual = self.usual + (moved - self.usual) / min(seen, _MEMORY)
        return replace(self, usual=usual, late=late, seen=seen)


def _placed(usual: Spectrum, spectrum: Spectrum, *, around: float) -> tuple[float, float]:
    """By what share of the period a cycle comes late, looked for around one, and how far it is like the usual cycle."""
    product = np.conj(usual) * spectrum
    scores = np.real(np.exp(2j * pi * np.outer(around + _REACH, _orders())) @ product)
    best = int(np.argmax(scores[1:-1])) + 1
    before, here, after = scores[best - 1 : best + 2]
    bend = before - 2 * here + after
    aside = 0.5 * (before - after) / bend if bend < 0 else 0.0
    late = around + float(_REACH[best]) + float(np.clip(aside, -1, 1)) * float(_REACH[1] - _REACH[0])
    size = float(np.linalg.norm(usual) * np.linalg.norm(spectrum))
    return late, float(here) / size if size > 0 else 0.0


def _orders() -> NDArray[np.int64]:
    return np.arange(1, _HARMONICS + 1)


def _look(samples: PowerSamples, start_s: float, end_s: float, period_s: float | None) -> ProgramSample:
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
