"""Many programs that physics allows, each with its time, power and utilisation at every clock and limit.

The bank stands for what is believed of a program before anything is seen of it. It is drawn once, from ranges that
published measurements span, two to three times as wide.

Notation (clocks over the highest, times over that of the GPU's work there, powers over the default limit)
    x, y    core and memory clock that hold
    v(x)    core voltage: flat up to a knee, rising beyond it, 1 at x = 1
    s(x)    x·v²: what switches with the clock
    M(x,y)  time of the memory traffic over that at full clocks: 1/y, or what the way through the core lets pass below a
            clock x_m: (x_m/x)^e, whichever is longer
    G       busy time: fixed + p-norm of compute (c/x) and memory (m·M); p from 1 (in turn) to 5 (side by side)
    T       time: q-norm of G plus the waits that nothing hides, and of a host that works beside it
    u       busy share, G/T
    τ       share of the memory bandwidth in use, m/(y·T) times what the driver makes of it
    P       idle + clock tree·s + memory·y + u·busy·s + arithmetic·v²·c/T + traffic·m/T
    B       the same while a kernel runs: what a power limit holds down, by lowering x; short waits count in part
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEMBERS = 2000
"""So many that, with the tempering of `gear_belief`, a hundred and more agree with any program that physics allows."""

LEAST_WAITING = 0.003
"""A smaller share of waiting is not told from none."""

_SEED = 6137
_GRID = np.linspace(0.05, 1.0, 77)
_CORNER = 10.0
"""Sharpness with which the two limits of the memory take turns."""


class ClockPoint(NamedTuple):
    """A setting in relative terms; None leaves the core clock free, so that only the limit holds it."""

    x: float | None
    y: float
    limit: float


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """What every member says of each gear, (members, gears)."""

    log_time: Floats
    log_power: Floats
    log_waiting: Floats
    """Of 1 − u: where only the host waits are fixed, it falls exactly as the time rises."""
    log_traffic: Floats

    def at(self, members: NDArray[np.intp]) -> Fields:
        """The same of these members alone."""
        return Fields(
            *(field[members] for field in (self.log_time, self.log_power, self.log_waiting, self.log_traffic))
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Members:
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
    beside: Floats
    beside_norm: Floats
    seen: Floats
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
def _members() -> _Members:
    """Centres are near those of parts whose measurements were published (docs/explanation/physics.md)."""
    rng = np.random.default_rng(_SEED)

    def around(centre: float, spread: float) -> Floats:
        return np.asarray(np.exp(log(centre) + spread * rng.standard_normal((MEMBERS, 1))))

    def between(low: float, high: float) -> Floats:
        return np.asarray(np.exp(rng.uniform(log(low), log(high), (MEMBERS, 1))))

    def even(low: float, high: float) -> Floats:
        return np.asarray(rng.uniform(low, high, (MEMBERS, 1)))

    norm = between(1.0, 5.0)
    ratio = np.exp(1.3 * rng.standard_normal((MEMBERS, 1)) - 0.2)
    # Small kernels are all latency: some programs keep the GPU busy with little else.
    fixed = np.where(rng.random((MEMBERS, 1)) < 0.6, between(0.003, 0.3), even(0.3, 0.98))
    # The p-norm of compute and memory is all of the GPU's time but for the fixed part.
    compute = (1.0 - fixed) / (1.0 + ratio**norm) ** (1.0 / norm)
    return _Members(
        knee=np.asarray(np.clip(0.66 + 0.08 * rng.standard_normal((MEMBERS, 1)), 0.4, 0.9)),
        rise=around(0.32, 0.35),
        bend=between(1.0, 1.5),
        passage=even(0.2, 0.75),
        passage_exponent=even(1.0, 1.2),
        compute=compute,
        memory=compute * ratio,
        fixed=fixed,
        norm=norm,
        wait=between(0.002, 20.0),
        beside=np.where(rng.random((MEMBERS, 1)) < 0.6, 1e-3, between(0.2, 4.0)),
        beside_norm=around(6.0, 0.4),
        seen=around(0.85, 0.2),
        idle=around(0.11, 0.4),
        leak=around(0.04, 0.5),
        tree=around(0.05, 0.6),
        memory_idle=around(0.06, 0.6),
        busy=around(0.18, 0.6),
        arithmetic=around(0.30, 0.7),
        traffic=around(0.12, 0.6),
        short_waits=even(0.0, 1.0),
        excess=np.asarray(0.01 * rng.standard_normal((MEMBERS, 1)) - 0.005),
    )


@lru_cache(maxsize=512)
def fields_at(points: tuple[ClockPoint, ...]) -> Fields:
    """The bank at these gears."""
    own = _members()
    x, y = _held(own, points), np.array([[point.y for point in points]])
    busy_s = _busy_time(own, x, y)
    time = _time(own, busy_s)
    power = _power(own, x, y, busy_s=busy_s, over=time)
    traffic = own.seen * own.memory / (y * time)
    waiting = np.maximum(1.0 - busy_s / time, LEAST_WAITING)
    return Fields(np.log(time), np.log(power), np.log(waiting), np.log(traffic))


def _busy_time(own: _Members, x: Floats, y: Floats) -> Floats:
    """G."""
    way = (own.passage / x) ** own.passage_exponent
    memory = (y**-_CORNER + way**_CORNER) ** (1.0 / _CORNER)
    both = ((own.compute / x) ** own.norm + (own.memory * memory) ** own.norm) ** (1.0 / own.norm)
    return np.asarray(own.fixed + both)


def _time(own: _Members, busy_s: Floats) -> Floats:
    """T."""
    q = own.beside_norm
    return np.asarray(((busy_s + own.wait) ** q + own.beside**q) ** (1.0 / q))


def _power(own: _Members, x: Floats, y: Floats, *, busy_s: Floats, over: Floats) -> Floats:
    """P over the time `over`, or B where that is the busy time."""
    above = np.clip((x - own.knee) / (1.0 - own.knee), 0.0, None)
    v2 = ((1.0 + own.rise * above**own.bend) / (1.0 + own.rise)) ** 2
    still = own.idle + own.leak * v2 + own.tree * x * v2 + own.memory_idle * y
    working = own.busy * x * v2 * busy_s + own.arithmetic * v2 * own.compute + own.traffic * own.memory
    return np.asarray(still + working / over)


def _held(own: _Members, points: tuple[ClockPoint, ...]) -> Floats:
    """(members, gears): the core clock that holds: what is locked, or what the limit leaves."""
    held = np.empty((MEMBERS, len(points)))
    limits = {(point.y, point.limit) for point in points}
    left = {pair: _left(own, *pair) for pair in limits}
    for place, point in enumerate(points):
        free = left[point.y, point.limit]
        held[:, place] = free if point.x is None else np.minimum(free, point.x)
    return held


def _left(own: _Members, y: float, limit: float) -> Floats:
    """(members,): the highest clock at which B does not exceed the limit."""
    if limit == np.inf:
        return np.ones(MEMBERS)
    x, memory_clock = _GRID[None, :], np.array([[y]])
    busy_s = _busy_time(own, x, memory_clock)
    time = _time(own, busy_s)
    over = busy_s + own.short_waits * (time - busy_s)
    drawn = _power(own, x, memory_clock, busy_s=busy_s, over=over)
    wanted = (1.0 + own.excess[:, 0]) * limit
    rows = zip(wanted.tolist(), np.maximum.accumulate(drawn, axis=1), strict=True)
    return np.array([np.interp(each, row, _GRID) for each, row in rows])
