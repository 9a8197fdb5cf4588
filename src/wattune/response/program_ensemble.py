"""Ensemble of programs, each with its time, power and utilisation at every setting worth considering.

The ensemble is the prior of the run level. It is drawn once, from ranges two to three times as wide as those that
published measurements span.

Notation (clocks over the highest, times over that of the GPU's work there, powers over the default limit)
    x, y    effective core and memory clock
    v(x)    core voltage (`core.voltage`), 1 at x = 1
    M(x,y)  time of the memory traffic over that at full clocks: 1/y, or what the path through the core allows below a
            clock x_m: (x_m/x)^e, whichever is longer
    G       busy time: fixed + p-norm of compute (c/x) and memory (m·M); p from 1 (in turn) to 5 (in parallel)
    T       time: q-norm of G plus the waits that nothing hides, and of a host that works in parallel
    u       busy share, G/T
    τ       share of the memory bandwidth in use, m/(y·T) times the driver's calibration
    P       idle + clock tree·x·v² + memory·y + u·busy·x·v² + arithmetic·v²·c/T + traffic·m/T
    B       the same while a kernel runs: what a power limit caps by lowering x; short waits count in part
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.core.voltage import voltage_squared
from wattune.response.ensemble import CLOCK_GRID, Floats, ParameterSampler, clock_at_power

MEMBERS = 2000
"""So many that, with the tempering of `program_posterior`, a hundred and more agree with any program that physics
allows."""

LEAST_WAITING = 0.003
"""A smaller share of waiting cannot be distinguished from none."""

_SEED = 6137
_CORNER = 10.0
"""Sharpness of the corner between the two limits of the memory."""


class ClockPoint(NamedTuple):
    """A setting in relative terms; x = None leaves the core clock free, so that only the limit holds it."""

    x: float | None
    y: float
    limit: float


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """Predictions of every member at each point, (members, points)."""

    log_time: Floats
    log_power: Floats
    log_waiting: Floats
    """Of 1 − u: where only the host waits are fixed, it falls exactly as the time rises."""
    log_traffic: Floats

    def subset(self, members: NDArray[np.intp]) -> Fields:
        return Fields(
            *(field[members] for field in (self.log_time, self.log_power, self.log_waiting, self.log_traffic))
        )


@dataclass(frozen=True, slots=True, eq=False)
class _ProgramParameters:
    """The parameters, each (members, 1)."""

    knee: Floats
    rise: Floats
    bend: Floats
    passage: Floats
    passage_exponent: Floats
    compute: Floats
    memory: Floats
    fixed: Floats
    norm: Floats
    wait: Floats
    host: Floats
    host_norm: Floats
    traffic_gain: Floats
    idle: Floats
    leak: Floats
    tree: Floats
    memory_idle: Floats
    busy: Floats
    arithmetic: Floats
    traffic: Floats
    short_waits: Floats
    excess: Floats


@lru_cache(maxsize=1)
def _parameters() -> _ProgramParameters:
    """Draw the members; centres are near published measurements (docs/explanation/physics.md)."""
    draw = ParameterSampler(MEMBERS, seed=_SEED)
    norm = draw.log_uniform(1.0, 5.0)
    ratio = np.exp(draw.normal(-0.2, 1.3))
    # Small kernels are all latency: some programs keep the GPU busy with little else.
    fixed = np.where(draw.uniform(0.0, 1.0) < 0.6, draw.log_uniform(0.003, 0.3), draw.uniform(0.3, 0.98))
    # The p-norm of compute and memory is all of the GPU's time but for the fixed part.
    compute = (1.0 - fixed) / (1.0 + ratio**norm) ** (1.0 / norm)
    return _ProgramParameters(
        knee=draw.clipped_normal(0.66, 0.08, 0.4, 0.9),
        rise=draw.log_normal(0.32, 0.35),
        bend=draw.log_uniform(1.0, 1.5),
        passage=draw.uniform(0.2, 0.75),
        passage_exponent=draw.uniform(1.0, 1.2),
        compute=compute,
        memory=compute * ratio,
        fixed=fixed,
        norm=norm,
        wait=draw.log_uniform(0.002, 20.0),
        host=np.where(draw.uniform(0.0, 1.0) < 0.6, 1e-3, draw.log_uniform(0.2, 4.0)),
        host_norm=draw.log_normal(6.0, 0.4),
        traffic_gain=draw.log_normal(0.85, 0.2),
        idle=draw.log_normal(0.11, 0.4),
        leak=draw.log_normal(0.04, 0.5),
        tree=draw.log_normal(0.05, 0.6),
        memory_idle=draw.log_normal(0.06, 0.6),
        busy=draw.log_normal(0.18, 0.6),
        arithmetic=draw.log_normal(0.30, 0.7),
        traffic=draw.log_normal(0.12, 0.6),
        short_waits=draw.uniform(0.0, 1.0),
        excess=draw.normal(-0.005, 0.01),
    )


@lru_cache(maxsize=512)
def fields_at(points: tuple[ClockPoint, ...]) -> Fields:
    """Evaluate the ensemble at these points."""
    own = _parameters()
    x, y = _effective_clocks(own, points), np.array([[point.y for point in points]])
    busy_s = _busy_time(own, x, y)
    time = _time(own, busy_s)
    power = _power(own, x, y, busy_s=busy_s, over=time)
    traffic = own.traffic_gain * own.memory / (y * time)
    waiting = np.maximum(1.0 - busy_s / time, LEAST_WAITING)
    return Fields(np.log(time), np.log(power), np.log(waiting), np.log(traffic))


def _busy_time(own: _ProgramParameters, x: Floats, y: Floats) -> Floats:
    """G"""
    way = (own.passage / x) ** own.passage_exponent
    memory = (y**-_CORNER + way**_CORNER) ** (1.0 / _CORNER)
    both = ((own.compute / x) ** own.norm + (own.memory * memory) ** own.norm) ** (1.0 / own.norm)
    return np.asarray(own.fixed + both)


def _time(own: _ProgramParameters, busy_s: Floats) -> Floats:
    """T"""
    q = own.host_norm
    return np.asarray(((busy_s + own.wait) ** q + own.host**q) ** (1.0 / q))


def _power(own: _ProgramParameters, x: Floats, y: Floats, *, busy_s: Floats, over: Floats) -> Floats:
    """P over the time `over`, or B where that is the busy time."""
    v2 = voltage_squared(x, knee=own.knee, rise=own.rise, bend=own.bend)
    still = own.idle + own.leak * v2 + own.tree * x * v2 + own.memory_idle * y
    working = own.busy * x * v2 * busy_s + own.arithmetic * v2 * own.compute + own.traffic * own.memory
    return np.asarray(still + working / over)


def _effective_clocks(own: _ProgramParameters, points: tuple[ClockPoint, ...]) -> Floats:
    """Return the core clock that is locked or that the limit allows, whichever is lower: (members, points)."""
    held = np.empty((MEMBERS, len(points)))
    limits = {(point.y, point.limit) for point in points}
    left = {pair: _limited_clock(own, *pair) for pair in limits}
    for place, point in enumerate(points):
        free = left[point.y, point.limit]
        held[:, place] = free if point.x is None else np.minimum(free, point.x)
    return held


def _limited_clock(own: _ProgramParameters, y: float, limit: float) -> Floats:
    """Return the highest clock at which B does not exceed the limit: (members,)."""
    if limit == np.inf:
        return np.ones(MEMBERS)
    x, memory_clock = CLOCK_GRID[None, :], np.array([[y]])
    busy_s = _busy_time(own, x, memory_clock)
    time = _time(own, busy_s)
    over = busy_s + own.short_waits * (time - busy_s)
    drawn = _power(own, x, memory_clock, busy_s=busy_s, over=over)
    return clock_at_power((1.0 + own.excess[:, 0]) * limit, np.maximum.accumulate(drawn, axis=1))


LEAST_MEMORY = 0.4
"""Memory clocks below this share of the highest are idle states (405 and 810 of 9501 MHz on an RTX 3080 Ti): useful
only to programs that leave the memory idle."""

IDLE_TRAFFIC = 0.01
"""A memory counts as idle up to this share of its bandwidth."""

STEP = 0.007
"""Least distance of two core clocks, as a share of the highest: finer than any slowdown limit can resolve."""
COARSE, COARSE_STEP = 0.55, 0.04
"""Below this share of the highest clock, which only programs use that hardly depend on it, steps are this share of the
clock."""

LIMIT_STEP = 0.02
"""Step of power limits, as a share of the default, where no clock can be set."""


def candidates_of(spec: GpuSpec, *, traffic: float | None = None) -> tuple[Setting, ...]:
    """Return core clocks at every useful memory clock, or power limits where clocks cannot be set.

    A lock and a limit reach the same points in steady training, so limits are not varied where clocks can be locked.
    `traffic` is the share of the memory bandwidth in use at the baseline, where known.
    """
    return _candidates(spec, 0.0 if traffic is not None and traffic <= IDLE_TRAFFIC else LEAST_MEMORY)


@lru_cache(maxsize=32)
def _candidates(spec: GpuSpec, least: float) -> tuple[Setting, ...]:
    if spec.sm_clocks_mhz:
        return tuple(
            Setting(sm_mhz, None if row == 0 else table.mem_mhz)
            for row, table in enumerate(spec.clocks)
            if row == 0 or (spec.can_lock_mem and (table.mem_mhz or 0) >= least * spec.mem_clocks_mhz[0])
            for sm_mhz in _thinned(table.sm_mhz)
        )
    limits = spec.power_limits
    if limits is None:
        return ()
    count = max(round((limits.default_w - limits.min_w) / (LIMIT_STEP * limits.default_w)), 1)
    return tuple(
        Setting(power_limit_w=round(float(watts))) for watts in np.linspace(limits.min_w, limits.default_w, count + 1)
    )


def _thinned(clocks_mhz: tuple[int, ...]) -> tuple[int, ...]:
    """Drop clocks that are too close to the next higher one; keep the highest and the lowest."""
    top = clocks_mhz[-1]
    kept = [top]
    for mhz in reversed(clocks_mhz[:-1]):
        step_mhz = STEP * top if mhz >= COARSE * top else COARSE_STEP * mhz
        if kept[-1] - mhz >= step_mhz - 1e-9 or mhz == clocks_mhz[0]:
            kept.append(mhz)
    return tuple(reversed(kept))
