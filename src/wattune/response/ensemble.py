"""Ensembles of response curves: time, power and utilisation of many programs at any setting.

An ensemble is a prior: parameter sets that physics allows, drawn once with a fixed seed. Measurements weight its
members, and the weighted members predict settings that were not measured. One model serves all levels; each level has
a prior of its own, two to three times as wide as what published measurements span.

Notation (clocks over the highest, times over that of the GPU's work there, powers over the default or highest limit)
    x, y    effective core and memory clock
    v(x)    core voltage (`core.voltage`), 1 at x = 1
    M(x,y)  time of the memory traffic over that at full clocks: 1/y, or what the path through the core allows below a
            clock x_m: (x_m/x)^e, whichever is longer
    G       busy time: fixed + p-norm of compute (c/x) and memory (m·M); p from 1 (in turn) to 5 (in parallel)
    T       time: q-norm of G plus the waits that nothing hides, and of a host that works in parallel; plus a stall
    u       busy share, G/T
    τ       share of the memory bandwidth in use, m/(y·T) times the driver's calibration
    P       idle + clock tree·x·v² + memory·y + u·busy·x·v² + arithmetic·v²·c/T + traffic·m/T
    B       the same while a kernel runs: what a power limit caps by lowering x; short waits count in part
    L       limit: B(x) = (1 + excess)·L, at least B(floor) and at most B(1); where the phases of a step meet the limit
            at different clocks, with rounded corners
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from wattune.core.voltage import voltage_squared
from wattune.response.points import ClockPoint
from wattune.response.statistics import Floats

PROGRAMS, _PROGRAM_SEED, _LIMITED_SEED = 2000, 6137, 6143
"""So many that, with the tempering of `posterior`, a hundred and more agree with any program that physics allows."""

JOBS, _JOB_SEED = 3000, 20231
"""So many that some dozens still agree with five measurements of one percent error."""

LEAST_WAITING = 0.003
"""A smaller share of waiting cannot be distinguished from none."""

_CORNER = 10.0
"""Sharpness of the corner between the two limits of the memory."""

_FLOOR_SHARPNESS = 25.0
"""Of the corner where a limit is lower than a job can draw."""

_CLOCK_GRID = np.linspace(0.05, 1.0, 77)
"""Core clocks at which the power of each member is tabulated."""


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Predictions of every member at each point, (members, points)."""

    log_time: Floats
    log_power: Floats
    log_waiting: Floats
    """Of 1 − u: where only the host waits are fixed, it falls exactly as the time rises."""
    log_traffic: Floats
    time_spread: Floats
    """(members, 1): scatter of single points around the curve, as a share; 0 where the likelihood has its own."""
    power_spread: Floats

    def subset(self, members: NDArray[np.bool_] | NDArray[np.intp]) -> Ensemble:
        return Ensemble(*(getattr(self, field.name)[members] for field in fields(self)))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Parameters:
    """The parameters, each (members, 1)."""

    knee: Floats
    rise: Floats
    bend: Floats
    passage: Floats | float = 0.0
    passage_exponent: Floats | float = 1.0
    compute: Floats
    memory: Floats
    fixed: Floats | float = 0.0
    norm: Floats
    wait: Floats | float = 0.0
    host: Floats
    host_norm: Floats
    stall: Floats | float = 0.0
    traffic_gain: Floats | float = 1.0
    idle: Floats
    leak: Floats | float = 0.0
    tree: Floats | float = 0.0
    memory_idle: Floats | float = 0.0
    busy: Floats
    arithmetic: Floats | float = 0.0
    traffic: Floats
    short_waits: Floats | float = 0.0
    excess: Floats
    floor: Floats | float = 0.0
    sharpness: Floats | float = inf
    floor_sharpness: float = inf
    time_spread: Floats
    power_spread: Floats


class _Sampler:
    """Draws one parameter for every member of an ensemble, (members, 1); the order of the calls is part of the seed."""

    def __init__(self, members: int, *, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = (members, 1)

    def log_normal(self, centre: float, spread: float) -> Floats:
        return np.asarray(np.exp(log(centre) + spread * self.rng.standard_normal(self.shape)))

    def log_uniform(self, low: float, high: float) -> Floats:
        return np.asarray(np.exp(self.rng.uniform(log(low), log(high), self.shape)))

    def uniform(self, low: float, high: float) -> Floats:
        return np.asarray(self.rng.uniform(low, high, self.shape))

    def normal(self, centre: float, spread: float) -> Floats:
        return np.asarray(spread * self.rng.standard_normal(self.shape) + centre)

    def clipped_normal(self, centre: float, spread: float, low: float, high: float) -> Floats:
        return np.asarray(np.clip(centre + spread * self.rng.standard_normal(self.shape), low, high))


@lru_cache(maxsize=1)
def _programs() -> _Parameters:
    """Draw the prior of the run level; centres are near published measurements (docs/explanation/physics.md)."""
    draw = _Sampler(PROGRAMS, seed=_PROGRAM_SEED)
    norm = draw.log_uniform(1.0, 5.0)
    ratio = np.exp(draw.normal(-0.2, 1.3))
    # Small kernels are all latency: some programs keep the GPU busy with little else.
    fixed = np.where(draw.uniform(0.0, 1.0) < 0.6, draw.log_uniform(0.003, 0.3), draw.uniform(0.3, 0.98))
    # The p-norm of compute and memory is all of the GPU's time but for the fixed part.
    compute = (1.0 - fixed) / (1.0 + ratio**norm) ** (1.0 / norm)
    # Many GPUs could draw a multiple of their limit, which then holds the clock far down: an L4 at about 0.6.
    limited = _Sampler(PROGRAMS, seed=_LIMITED_SEED)
    demand = np.where(limited.uniform(0.0, 1.0) < 0.5, limited.log_uniform(1.0, 4.0), 1.0)
    return _Parameters(
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
        leak=demand * draw.log_normal(0.04, 0.5),
        tree=demand * draw.log_normal(0.05, 0.6),
        memory_idle=draw.log_normal(0.06, 0.6),
        busy=demand * draw.log_normal(0.18, 0.6),
        arithmetic=demand * draw.log_normal(0.30, 0.7),
        traffic=demand * draw.log_normal(0.12, 0.6),
        short_waits=draw.uniform(0.0, 1.0),
        excess=draw.normal(-0.005, 0.01),
        sharpness=limited.log_normal(16.0, 0.5),
        time_spread=np.zeros((PROGRAMS, 1)),
        power_spread=np.zeros((PROGRAMS, 1)),
    )


@lru_cache(maxsize=1)
def _jobs() -> _Parameters:
    """Draw the prior of the job level.

    Centres are near the fits of public tables of two GPU models (by `bench physics`); widths are two to
    three times those of the fits, to cover other GPUs and jobs.
    """
    draw = _Sampler(JOBS, seed=_JOB_SEED)
    idle, core, dram = draw.log_normal(0.17, 0.4), draw.log_normal(0.45, 0.7), draw.log_normal(0.10, 0.6)
    knee, rise = draw.clipped_normal(0.68, 0.1, 0.3, 0.9), draw.log_normal(0.28, 0.4)
    bend, floor = draw.log_uniform(1.0, 1.5), draw.log_normal(0.17, 0.35)
    excess, sharpness = draw.normal(-0.005, 0.01), draw.log_normal(16.0, 0.5)
    ratio, norm = draw.log_normal(0.9, 0.5), draw.log_normal(4.0, 0.3)
    compute = (1.0 + ratio**norm) ** (-1.0 / norm)
    return _Parameters(
        knee=knee,
        rise=rise,
        bend=bend,
        compute=compute,
        memory=compute * ratio,
        norm=norm,
        host=draw.log_uniform(0.1, 8.0),
        host_norm=draw.log_normal(6.0, 0.4),
        stall=draw.log_normal(0.10, 1.0),
        idle=idle,
        busy=core,
        traffic=dram / (compute * ratio),
        excess=excess,
        floor=floor,
        sharpness=sharpness,
        floor_sharpness=_FLOOR_SHARPNESS,
        # Steps of a host-bound job differ by some percent at any setting.
        time_spread=draw.log_uniform(0.004, 0.06),
        power_spread=draw.log_uniform(0.004, 0.03),
    )


@lru_cache(maxsize=512)
def programs_at(points: tuple[ClockPoint, ...]) -> Ensemble:
    """Evaluate the ensemble of the run level at these points."""
    return _evaluated(_programs(), points)


@lru_cache(maxsize=128)
def jobs_at(points: tuple[ClockPoint, ...]) -> Ensemble:
    """Evaluate the ensemble of the job level: no point makes a member faster or draw more than a higher one."""
    return _evaluated(_jobs(), points)


def _evaluated(own: _Parameters, points: tuple[ClockPoint, ...]) -> Ensemble:
    x, y = _effective_clocks(own, points), np.array([[point.y for point in points]])
    busy_s = _busy_time(own, x, y)
    time = _time(own, busy_s)
    power = _power(own, x, y, busy_s=busy_s, over=time)
    traffic = own.traffic_gain * own.memory / (y * time)
    waiting = np.maximum(1.0 - busy_s / time, LEAST_WAITING)
    return Ensemble(np.log(time), np.log(power), np.log(waiting), np.log(traffic), own.time_spread, own.power_spread)


def _busy_time(own: _Parameters, x: Floats, y: Floats) -> Floats:
    """G"""
    way = (own.passage / x) ** own.passage_exponent
    memory = (y**-_CORNER + way**_CORNER) ** (1.0 / _CORNER)
    both = ((own.compute / x) ** own.norm + (own.memory * memory) ** own.norm) ** (1.0 / own.norm)
    return np.asarray(own.fixed + both)


def _time(own: _Parameters, busy_s: Floats) -> Floats:
    """T"""
    q = own.host_norm
    return np.asarray(((busy_s + own.wait) ** q + own.host**q) ** (1.0 / q) + own.stall)


def _power(own: _Parameters, x: Floats, y: Floats, *, busy_s: Floats, over: Floats) -> Floats:
    """P over the time `over`, or B where that is the busy time."""
    v2 = voltage_squared(x, knee=own.knee, rise=own.rise, bend=own.bend)
    still = own.idle + own.leak * v2 + own.tree * x * v2 + own.memory_idle * y
    working = own.busy * x * v2 * busy_s + own.arithmetic * v2 * own.compute + own.traffic * own.memory
    return np.asarray(still + working / over)


def _busy_power(own: _Parameters, x: Floats, y: Floats) -> Floats:
    """B"""
    busy_s = _busy_time(own, x, y)
    over = busy_s + own.short_waits * (_time(own, busy_s) - busy_s)
    return _power(own, x, y, busy_s=busy_s, over=over)


def _effective_clocks(own: _Parameters, points: tuple[ClockPoint, ...]) -> Floats:
    """Return the core clock that is locked or that the limit allows, whichever is lower: (members, points)."""
    clocks = np.array([[1.0 if point.x is None else point.x for point in points]])
    for y in {point.y for point in points}:
        here = [place for place, point in enumerate(points) if point.y == y]
        limits = sorted({points[place].limit for place in here})
        allowed = _limited_clocks(own, y, np.array([limits]))
        columns = [limits.index(points[place].limit) for place in here]
        clocks = np.broadcast_to(clocks, (len(allowed), len(points))).copy()
        clocks[:, here] = np.minimum(clocks[:, here], allowed[:, columns])
    return clocks


def _limited_clocks(own: _Parameters, y: float, limits: Floats) -> Floats:
    """Return the clock at which B is what each limit allows: (members, limits)."""
    memory_clock = np.array([[y]])
    drawn = np.maximum.accumulate(_busy_power(own, _CLOCK_GRID[None, :], memory_clock), axis=1)
    highest = drawn[:, -1:]
    lowest = np.minimum(_busy_power(own, np.clip(own.floor, _CLOCK_GRID[0], 1.0), memory_clock), highest)
    capped = _smooth_min((1.0 + own.excess) * limits, highest, own.sharpness)
    wanted = np.minimum(_smooth_max(capped, lowest, own.floor_sharpness), highest)
    return np.array([np.interp(each, row, _CLOCK_GRID) for each, row in zip(wanted, drawn, strict=True)])


def _smooth_min(a: Floats, b: Floats, sharpness: Floats | float) -> Floats:
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(low * (1.0 + (low / high) ** sharpness) ** (-1.0 / sharpness))


def _smooth_max(a: Floats, b: Floats, sharpness: Floats | float) -> Floats:
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(high * (1.0 + (low / high) ** sharpness) ** (1.0 / sharpness))
