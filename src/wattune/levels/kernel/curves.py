"""Time and power of an instruction at every clock, fitted to measurements at a few clocks.

Notation
    x       core clock over the highest
    T(x)    a + b·‖(1/x, μ)‖_p: a constant part, and arithmetic overlapped with memory traffic that takes μ times as
            long as the arithmetic at the highest clock
    P(x)    P0 + c·s(x): constant power and switching power, s = x·v(x)² with a voltage v that is constant up to a
            knee and then rises (`wattune.physics.fit.clock_curves`)

Given μ, T is linear in a and b; given knee and rise, P is linear in P0 and c. So both are non-negative least squares on
a small grid. The voltage belongs to the GPU: knee and rise are the same for all its instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from wattune.core.errors import PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import StageChoice
from wattune.core.setting import Setting
from wattune.levels.kernel.relaxation import Floats
from wattune.physics.fit.clock_curves import switching
from wattune.physics.timing import smooth_maximum

SMOOTHNESS = 4.0
"""p: the best norm over 33 workloads of a V100 (docs/explanation/physics.md)."""

MEMORY = tuple(np.round(np.arange(0.0, 2.01, 0.1), 2))
KNEES = tuple(np.round(np.arange(0.4, 0.91, 0.02), 2))
RISES = tuple(np.round(np.arange(0.05, 0.81, 0.05), 2))


@dataclass(frozen=True, slots=True)
class Curve:
    """One kind of instruction on one GPU, at any clock."""

    highest_mhz: int
    fixed_s: float
    work_s: float
    memory: float
    """μ."""
    static_w: float
    switching_w: float
    knee: float
    rise: float

    def cost(self, sm_mhz: int) -> Measurement:
        """Predict time and energy of one instruction at a clock."""
        clock = np.array([sm_mhz / self.highest_mhz])
        time_s = float(self.fixed_s + self.work_s * _work(clock, self.memory)[0])
        power_w = float(self.static_w + self.switching_w * switching(clock, knee=self.knee, rise=self.rise)[0])
        return Measurement(time_s, power_w * time_s)

    def options(self, clocks_mhz: Iterable[int]) -> tuple[Trial[StageChoice], ...]:
        """The instruction at each of these clocks, as options for the planner."""
        return tuple(Trial(StageChoice(Setting(mhz)), self.cost(mhz)) for mhz in clocks_mhz)


def fit_curves(measured: Mapping[str, Sequence[Trial[Setting]]], *, highest_mhz: int) -> dict[str, Curve]:
    """Fit a curve for each kind of instruction of one GPU."""
    for kind, trials in measured.items():
        if len({trial.choice.sm_mhz for trial in trials}) < 2 or any(trial.choice.sm_mhz is None for trial in trials):
            raise PlanError(
                f"{kind} was not measured at two clocks or more", hint="profile every instruction at several clocks"
            )
    clocks = {
        kind: np.array([(trial.choice.sm_mhz or 0) / highest_mhz for trial in trials])
        for kind, trials in measured.items()
    }
    powers = {kind: np.array([trial.cost.power_w for trial in trials]) for kind, trials in measured.items()}
    knee, rise = min(
        ((knee, rise) for knee in KNEES for rise in RISES),
        key=lambda voltage: sum(_power_error(clocks[kind], powers[kind], *voltage) for kind in measured),
    )
    curves = {}
    for kind, trials in measured.items():
        memory, fixed_s, work_s = _time(clocks[kind], np.array([trial.cost.time_s for trial in trials]))
        (static_w, switching_w), _ = _linear(switching(clocks[kind], knee=knee, rise=rise), powers[kind])
        curves[kind] = Curve(highest_mhz, fixed_s, work_s, memory, static_w, switching_w, float(knee), float(rise))
    return curves


def _time(clock: Floats, time_s: Floats) -> tuple[float, float, float]:
    """μ, a and b."""
    memory = min(MEMORY, key=lambda memory: _linear(_work(clock, memory), time_s)[1])
    (fixed_s, work_s), _ = _linear(_work(clock, memory), time_s)
    return float(memory), fixed_s, work_s


def _work(clock: Floats, memory: float) -> Floats:
    """‖(1/x, μ)‖_p."""
    return smooth_maximum(1 / clock, np.full_like(clock, memory), SMOOTHNESS)


def _power_error(clock: Floats, power_w: Floats, knee: float, rise: float) -> float:
    return _linear(switching(clock, knee=knee, rise=rise), power_w)[1]


def _linear(shape: Floats, values: Floats) -> tuple[tuple[float, float], float]:
    """Fit offset and factor, neither negative, of a shape to the values; with the squared relative error."""
    rows = np.column_stack([np.ones_like(shape), shape]) / values[:, None]
    (offset, factor), distance = nnls(rows, np.ones_like(values))
    return (float(offset), float(factor)), float(distance**2)
