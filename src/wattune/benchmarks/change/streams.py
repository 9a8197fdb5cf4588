"""Looks at made-up programs, for `wattune bench change`: noise of several kinds, and shifts that are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWER_W, UTIL = 300.0, 0.85
_SWAY, _SWAY_S = 0.03, 1200.0
"""What a room does to the power of a part: 3 % up and down in twenty minutes."""
_PER_KELVIN = (0.002, 0.0035)
"""Between which the share lies by which power rises per kelvin."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """How power drifts in a GPU that warms up."""

    share: float = 0.05
    over_s: float = 60.0
    """Time constant: 20 to 60 s are on record for air."""
    reported: bool = True
    """Whether the GPU reports its temperature, in whole degrees."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a program varies from period to period."""

    name: str
    noise: float
    """Standard deviation of a single period, relative."""
    alike: float = 0.0
    """Correlation of neighbouring periods."""
    heavy: bool = False
    """Whether tails are those of Student's t with four degrees of freedom."""
    stalls: float = 0.0
    """Share of periods that take half as long again, at two thirds of the power."""
    warmth: Warmth | None = None
    """How the GPU warms up; None where it is warm."""
    period_s: float = 1.0
    judged: bool = True
    """Whether goals count it: a shift of 5 % should be found in ten periods."""


KINDS = (
    Kind("steady", 0.005),
    Kind("usual", 0.015),
    Kind("noisy", 0.02),
    Kind("alike", 0.015, alike=0.3),
    Kind("heavy tails", 0.02, heavy=True),
    Kind("stalls", 0.01, stalls=0.01),
    Kind("warming up", 0.01, warmth=Warmth(reported=False)),
    Kind("warming up, short periods", 0.015, warmth=Warmth(reported=False), period_s=0.25),
    Kind("warming up fast", 0.015, warmth=Warmth(0.06, 30.0)),
    Kind("warming up fast, long periods", 0.015, warmth=Warmth(0.06, 30.0), period_s=3.0),
    Kind("warming up fast, no temperature", 0.015, warmth=Warmth(0.06, 30.0, reported=False), judged=False),
    Kind("alike with heavy tails", 0.018, alike=0.3, heavy=True, judged=False),
    Kind("very alike", 0.015, alike=0.6, judged=False),
    Kind("many stalls", 0.01, stalls=0.03, judged=False),
    Kind("very noisy", 0.05, judged=False),
)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One look after the other."""

    time_s: Floats
    period_s: Floats
    power_w: Floats
    util: Floats
    temperature_c: Floats | None = None

    def __len__(self) -> int:
        return len(self.time_s)

    def shifted(self, place: int, quantity: str, share: float) -> Stream:
        """The stream with one quantity larger by a share from one place on."""
        factor = np.where(np.arange(len(self)) < place, 1.0, 1.0 + share)
        period_s = self.period_s * factor if quantity == "period" else self.period_s
        power_w = self.power_w * factor if quantity == "power" else self.power_w
        return Stream(np.cumsum(period_s), period_s, power_w, self.util, self.temperature_c)


def stream(kind: Kind, count: int, rng: np.random.Generator) -> Stream:
    """So many looks at a program of a kind that does the same all the time."""
    stalled = rng.random(count) < kind.stalls
    period_s = kind.period_s * np.exp(_noise(kind, count, rng)) * np.where(stalled, 1.5, 1.0)
    time_s = np.cumsum(period_s)
    power_w = POWER_W * np.exp(_noise(kind, count, rng)) * np.where(stalled, 2 / 3, 1.0)
    temperature_c = None
    if kind.warmth is not None:
        power_w, temperature_c = _warmed(kind.warmth, time_s, power_w, rng)
    # A driver reports utilisation in whole percents.
    util = np.clip(np.round(UTIL + 0.01 * rng.standard_normal(count), 2), 0, 1)
    return Stream(time_s, period_s, power_w, util, temperature_c)


def _warmed(warmth: Warmth, time_s: Floats, power_w: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
    """The power of a GPU that warms up, and its temperature where that is reported."""
    warmer = -warmth.share * np.exp(-time_s / warmth.over_s) + _SWAY / 2 * np.sin(2 * np.pi * time_s / _SWAY_S)
    temperature_c = np.round(65.0 + warmer / rng.uniform(*_PER_KELVIN))
    return power_w * (1 + warmer), temperature_c if warmth.reported else None


def _noise(kind: Kind, count: int, rng: np.random.Generator) -> Floats:
    from scipy.signal import lfilter

    drawn = rng.standard_t(4, count) / np.sqrt(2) if kind.heavy else rng.standard_normal(count)
    if kind.alike:
        first = rng.standard_normal()
        drawn, _ = lfilter([np.sqrt(1 - kind.alike**2)], [1, -kind.alike], drawn, zi=np.array([kind.alike * first]))
    return np.asarray(kind.noise * drawn, dtype=np.float64)
