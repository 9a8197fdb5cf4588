"""How the pace of a program is seen from outside, and how well.

What repeats is looked for in the power that the sensor shows. A sensor that refreshes every r seconds shows nothing
shorter than 2r, and nothing whose swing drowns in its noise. So the unit is the step where that can be seen, otherwise
the cycle of evaluations and checkpoints around it, otherwise nothing: then only the busy shares tell.

Errors (standard deviations over the value)
    waits       jitter of a unit's time over its mean, divided by √units: what the program itself does
    edges       a period is fitted to all refreshes of a window of w seconds and N units; its ends are known to
                r/√12 each, and the units between them add to that: r·√(2/12)/w·√(3/N), as for any straight line
    floor       0.05 %: time stamps, clocks that wander
Shares of utilisation are read in whole percents every `UTIL_PERIOD_S`; what the driver counts as busy is off by
`UTIL_GAIN` for a program, and by `UTIL_SETTING` points more from setting to setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

from wattune.levels.run.simulated_program import ProgramPhase, SimulatedProgram

UTIL_PERIOD_S = 0.2
"""How often a consumer Ampere part shows a new utilisation (measured on an RTX 3090)."""
UTIL_GAIN = 0.01
"""Estimated: kernels that follow each other closely count as one."""
UTIL_SETTING = 0.2
"""Points; estimated."""
WRONG = 0.005
"""Share of windows whose period is half or twice the true one: the goal of `bench period` is 1 %."""
LEAST_SWING = 0.01
"""A swing of power below this share of the mean is lost in what else makes power vary."""
FIRST_UNITS, LEAST_UNITS = 3.0, 2.0
"""Periods that a window must hold before they count as such: the first time, and once it is known what to look for."""
_FLOOR = 0.0005


@dataclass(frozen=True, slots=True)
class ObservationNoise:
    """What is seen of a program."""

    unit: str | None
    """"step" or "cycle"; None where nothing repeats that can be seen."""
    refresh_s: float

    def spread(self, unit_s: float, jitter_s: float, window_s: float) -> tuple[float, float]:
        """Standard deviations of the mean unit of a window: what the program does, and what the sensor adds."""
        units = max(window_s / unit_s, 1.0)
        waits = jitter_s / unit_s / sqrt(units)
        edges = self.refresh_s * sqrt(2.0 / 12.0) / window_s * sqrt(3.0 / max(units, 3.0))
        return waits, hypot(edges, _FLOOR)


def observation_of(program: SimulatedProgram) -> ObservationNoise:
    """How a program is seen at the driver's own clocks."""
    model = program.model
    refresh_s = max(model.sensors.power_period_s or 0.1, 0.01)
    if _visible(program.parts[0], model.noise_w, refresh_s):
        return ObservationNoise("step", refresh_s)
    return ObservationNoise("cycle" if _cycle_visible(program, refresh_s) else None, refresh_s)


def _visible(part: ProgramPhase, noise_w: float, refresh_s: float) -> bool:
    long_enough = float(part.time_s[0][-1]) >= 2.0 * refresh_s
    return long_enough and float(part.swing_w[0][-1]) > max(3.0 * noise_w, LEAST_SWING * float(part.power_w[0][-1]))


def _cycle_visible(program: SimulatedProgram, refresh_s: float) -> bool:
    """Whether evaluations or checkpoints stand out from the steps between them."""
    step_w, step_s = float(program.parts[0].power_w[0][-1]), float(program.parts[0].time_s[0][-1])
    cycle_s = sum(units * float(program.parts[place].time_s[0][-1]) for place, units in program.order)
    if cycle_s < 2.0 * refresh_s or cycle_s < 1.5 * step_s:
        return False
    least_w = max(3.0 * program.model.noise_w, LEAST_SWING * step_w)
    for place, units in program.order:
        part = program.parts[place]
        part_s = units * float(part.time_s[0][-1])
        # A part shorter than a refresh shows as far as it fills one.
        if place and abs(float(part.power_w[0][-1]) - step_w) * min(part_s / refresh_s, 1.0) > least_w:
            return True
    return False
