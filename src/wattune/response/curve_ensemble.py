"""Ensemble of curves that describe how a training job responds to a power limit or a core clock.

The ensemble is the prior of the setting search of recurring jobs. Every member is monotone: a lower limit or clock
never makes the work faster and never draws more power.

Notation (powers over the highest limit of the GPU, clocks over its highest clock)
    x       effective clock: the locked one, or the one that the limit allows, whichever is lower
    g(x)    time of the GPU's work over that at x = 1: p-norm of compute (1/x) and memory (m)
    B(x)    busy power: idle + core·x·v² + dram/g(x), with the voltage v of `core.voltage`
    L       limit; B(x) = (1 + excess)·L, at least B(floor), at most B(1), with rounded corners, because the phases
            of a step meet the limit at different clocks
    T       time: q-norm of the GPU's time and of the host's, which run in parallel, plus a stall that nothing hides
    P       mean power: B while the GPU works, idle for the rest of T
    rₜ, rₚ  scatter of single settings around their curve, as shares of time and power: steps of a host-bound job
            differ by some percent at any setting
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattune.core.setting import Setting
from wattune.core.voltage import voltage_squared
from wattune.response.ensemble import CLOCK_GRID, Floats, ParameterSampler, clock_at_power

MEMBERS = 3000
"""So many that some dozens still agree with five measurements of one percent error."""

_FLOOR_SHARPNESS = 25.0
_SEED = 20231


@dataclass(frozen=True, slots=True, eq=False)
class CurveEnsemble:
    """Time and power of every member at each setting, (members, settings); times are relative to a free level."""

    log_time: Floats
    log_power: Floats
    """Over the highest limit."""
    time_spread: Floats
    """(members,): rₜ"""
    power_spread: Floats
    """(members,): rₚ"""

    def subset(self, members: NDArray[np.bool_]) -> CurveEnsemble:
        return CurveEnsemble(
            self.log_time[members], self.log_power[members], self.time_spread[members], self.power_spread[members]
        )


def ensemble_of(
    settings: Sequence[Setting], *, max_power_w: float | None, max_mhz: int | None, limit_w: float | None = None
) -> CurveEnsemble:
    """Evaluate the ensemble at these settings; an unknown highest limit or clock is the highest among them.

    A setting without a clock leaves it free; one without a limit leaves it at `limit_w`, or else at the highest.
    """
    limits_w = [setting.power_limit_w for setting in settings if setting.power_limit_w is not None]
    clocks_mhz = [setting.sm_mhz for setting in settings if setting.sm_mhz is not None]
    top_w = max_power_w or max(limits_w, default=1.0)
    top_mhz = max_mhz or max(clocks_mhz, default=1)
    unset = 1.0 if limit_w is None or max_power_w is None else limit_w / top_w
    return _ensemble(
        tuple(
            (
                unset if setting.power_limit_w is None else setting.power_limit_w / top_w,
                1.0 if setting.sm_mhz is None else min(setting.sm_mhz / top_mhz, 1.0),
            )
            for setting in settings
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class _CurveParameters:
    """The parameters, each (members, 1)."""

    idle: Floats
    core: Floats
    dram: Floats
    knee: Floats
    rise: Floats
    bend: Floats
    floor: Floats
    excess: Floats
    sharpness: Floats
    memory: Floats
    roofline: Floats
    host: Floats
    overlap: Floats
    stall: Floats
    time_spread: Floats
    power_spread: Floats


@lru_cache(maxsize=1)
def _parameters() -> _CurveParameters:
    """Draw the members.

    Centres are near the fits of public tables of two GPU models (`benchmarks/physics/limit_fit.py`); widths are two to
    three times those of the fits, to cover other GPUs and jobs.
    """
    draw = ParameterSampler(MEMBERS, seed=_SEED)
    return _CurveParameters(
        idle=draw.log_normal(0.17, 0.4),
        core=draw.log_normal(0.45, 0.7),
        dram=draw.log_normal(0.10, 0.6),
        knee=draw.clipped_normal(0.68, 0.1, 0.3, 0.9),
        rise=draw.log_normal(0.28, 0.4),
        bend=draw.log_uniform(1.0, 1.5),
        floor=draw.log_normal(0.17, 0.35),
        excess=draw.normal(-0.005, 0.01),
        sharpness=draw.log_normal(16.0, 0.5),
        memory=draw.log_normal(0.9, 0.5),
        roofline=draw.log_normal(4.0, 0.3),
        host=draw.log_uniform(0.1, 8.0),
        overlap=draw.log_normal(6.0, 0.4),
        stall=draw.log_normal(0.10, 1.0),
        time_spread=draw.log_uniform(0.004, 0.06),
        power_spread=draw.log_uniform(0.004, 0.03),
    )


@lru_cache(maxsize=256)
def _ensemble(places: tuple[tuple[float, float], ...]) -> CurveEnsemble:
    own = _parameters()
    limit = np.array([[place[0] for place in places]])
    locked = np.array([[place[1] for place in places]])
    busy = _busy(own, np.broadcast_to(CLOCK_GRID, (MEMBERS, len(CLOCK_GRID))))
    allowed = _allowed(own, busy, limit)
    drawn = np.minimum(allowed, _busy_at(locked, busy))
    gpu = _work(own, clock_at_power(drawn, busy))
    time = (gpu**own.overlap + own.host**own.overlap) ** (1.0 / own.overlap) + own.stall
    share = gpu / time
    power = share * drawn + (1.0 - share) * own.idle
    return CurveEnsemble(np.log(time), np.log(power), own.time_spread[:, 0], own.power_spread[:, 0])


def _work(own: _CurveParameters, clock: Floats) -> Floats:
    """g"""
    p = own.roofline
    return np.asarray(((clock**-p + own.memory**p) / (1.0 + own.memory**p)) ** (1.0 / p))


def _busy(own: _CurveParameters, clock: Floats) -> Floats:
    """B"""
    core = own.core * clock * voltage_squared(clock, knee=own.knee, rise=own.rise, bend=own.bend)
    return np.asarray(own.idle + core + own.dram / _work(own, clock))


def _allowed(own: _CurveParameters, busy: Floats, limit: Floats) -> Floats:
    """Return the busy power that the limit allows."""
    highest = busy[:, -1:]
    lowest = np.minimum(_busy_at(np.minimum(own.floor, 1.0), busy), highest)
    wanted = (1.0 + own.excess) * limit
    low, high = np.minimum(wanted, highest), np.maximum(wanted, highest)
    capped = low * (1.0 + (low / high) ** own.sharpness) ** (-1.0 / own.sharpness)
    s = _FLOOR_SHARPNESS
    return np.asarray(np.minimum((capped**s + lowest**s) ** (1.0 / s), highest))


def _busy_at(clock: Floats, busy: Floats) -> Floats:
    """Interpolate B, which is given on the grid, at any clocks: (members, clocks)."""
    place = np.clip((clock - CLOCK_GRID[0]) / (CLOCK_GRID[1] - CLOCK_GRID[0]), 0.0, len(CLOCK_GRID) - 1.0)
    low = np.minimum(place.astype(np.intp), len(CLOCK_GRID) - 2)
    low = np.broadcast_to(low, (len(busy), low.shape[1]))
    part = place - low
    below = np.take_along_axis(busy, low, axis=1)
    return np.asarray(below + part * (np.take_along_axis(busy, low + 1, axis=1) - below))
