"""Many ways in which a training job may answer a power limit or a core clock, all of which physics allows.

A bank of such curves, drawn once and for all, stands for what is believed before anything is measured. Measurements
weigh its members, and the weighted members say what to expect at settings that were not measured, and how surely. Every
member is monotone: a lower limit or clock never makes the work faster and never draws more power.

Notation (powers over the highest limit of the part, clocks over its highest clock)
    x       clock that holds: what is locked, or what the limit leaves, whichever is lower
    g(x)    time of the GPU's work over that at x = 1: p-norm of compute (1/x) and memory (m)
    B(x)    busy power: idle + core·s(x) + dram/g(x), where s is clock times voltage squared and the voltage rises from
            the knee on: straight for one kernel, more gently for a mix of many
    L       limit; B(x) = (1 + excess)·L, not below B(floor), not above B(1), with rounded corners, because the phases
            of a step meet the limit at different clocks
    T       time: q-norm of the GPU's time and the host's beside it, plus a stall that nothing hides
    P       mean power: B while the GPU works, idle for the rest of T
    rₜ, rₚ  how far single settings lie off their curve, as shares of time and power: steps of a host-bound job differ
            by some percent whatever is set
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from wattune.core.setting import Setting

Floats = NDArray[np.float64]

MEMBERS = 3000
"""So many that some dozens still agree with five measurements of one percent error."""

_CLOCKS = np.linspace(0.05, 1.0, 77)
_FLOOR_SHARPNESS = 25.0
_SEED = 20231


@dataclass(frozen=True, slots=True, eq=False)
class CurveEnsemble:
    """What every member says of each setting, (members, settings); times are relative, one unknown factor apart."""

    log_time: Floats
    log_power: Floats
    """Over the highest limit."""
    time_spread: Floats
    """(members,): rₜ"""
    power_spread: Floats
    """(members,): rₚ"""

    def some(self, kept: NDArray[np.bool_]) -> CurveEnsemble:
        """The bank with these members alone."""
        return CurveEnsemble(self.log_time[kept], self.log_power[kept], self.time_spread[kept], self.power_spread[kept])


def ensemble_of(
    settings: Sequence[Setting], *, max_power_w: float | None, max_mhz: int | None, limit_w: float | None = None
) -> CurveEnsemble:
    """The bank at these settings; a highest limit or clock that is not known is the highest among them.

    A setting without a clock leaves it free, one without a limit leaves it at `limit_w`, or else at the highest.
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
class _Members:
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
    beside: Floats
    stall: Floats
    time_spread: Floats
    power_spread: Floats


@lru_cache(maxsize=1)
def _members() -> _Members:
    """The members. Centres are near those that public tables of two parts were fitted with (`physics.fit.limit_prior`);
    widths are two to three times those, because other parts and jobs must be among them."""
    rng = np.random.default_rng(_SEED)

    def around(centre: float, spread: float) -> Floats:
        return np.asarray(np.exp(log(centre) + spread * rng.standard_normal((MEMBERS, 1))))

    def between(low: float, high: float) -> Floats:
        return np.asarray(np.exp(rng.uniform(log(low), log(high), (MEMBERS, 1))))

    return _Members(
        idle=around(0.17, 0.4),
        core=around(0.45, 0.7),
        dram=around(0.10, 0.6),
        knee=np.asarray(np.clip(0.68 + 0.1 * rng.standard_normal((MEMBERS, 1)), 0.3, 0.9)),
        rise=around(0.28, 0.4),
        bend=between(1.0, 1.5),
        floor=around(0.17, 0.35),
        excess=np.asarray(0.01 * rng.standard_normal((MEMBERS, 1)) - 0.005),
        sharpness=around(16.0, 0.5),
        memory=around(0.9, 0.5),
        roofline=around(4.0, 0.3),
        host=between(0.1, 8.0),
        beside=around(6.0, 0.4),
        stall=around(0.10, 1.0),
        time_spread=between(0.004, 0.06),
        power_spread=between(0.004, 0.03),
    )


@lru_cache(maxsize=256)
def _ensemble(places: tuple[tuple[float, float], ...]) -> CurveEnsemble:
    own = _members()
    limit = np.array([[place[0] for place in places]])
    locked = np.array([[place[1] for place in places]])
    busy = _busy(own, np.broadcast_to(_CLOCKS, (MEMBERS, len(_CLOCKS))))
    allowed = _allowed(own, busy, limit)
    drawn = np.minimum(allowed, _rows(locked, busy))
    gpu = _work(own, _clock_at(drawn, busy))
    time = (gpu**own.beside + own.host**own.beside) ** (1.0 / own.beside) + own.stall
    share = gpu / time
    power = share * drawn + (1.0 - share) * own.idle
    return CurveEnsemble(np.log(time), np.log(power), own.time_spread[:, 0], own.power_spread[:, 0])


def _work(own: _Members, clock: Floats) -> Floats:
    """g, 1 at the highest clock."""
    p = own.roofline
    return np.asarray(((clock**-p + own.memory**p) / (1.0 + own.memory**p)) ** (1.0 / p))


def _busy(own: _Members, clock: Floats) -> Floats:
    """B."""
    above = np.clip((clock - own.knee) / (1.0 - own.knee), 0.0, None)
    core = own.core * clock * ((1.0 + own.rise * above**own.bend) / (1.0 + own.rise)) ** 2
    return np.asarray(own.idle + core + own.dram / _work(own, clock))


def _allowed(own: _Members, busy: Floats, limit: Floats) -> Floats:
    """Busy power that the limit lets the GPU draw."""
    highest = busy[:, -1:]
    lowest = np.minimum(_rows(np.minimum(own.floor, 1.0), busy), highest)
    wanted = (1.0 + own.excess) * limit
    low, high = np.minimum(wanted, highest), np.maximum(wanted, highest)
    capped = low * (1.0 + (low / high) ** own.sharpness) ** (-1.0 / own.sharpness)
    s = _FLOOR_SHARPNESS
    return np.asarray(np.minimum((capped**s + lowest**s) ** (1.0 / s), highest))


def _rows(clock: Floats, busy: Floats) -> Floats:
    """(members, clocks): B at clocks that need not be on the grid."""
    place = np.clip((clock - _CLOCKS[0]) / (_CLOCKS[1] - _CLOCKS[0]), 0.0, len(_CLOCKS) - 1.0)
    low = np.minimum(place.astype(np.intp), len(_CLOCKS) - 2)
    low = np.broadcast_to(low, (len(busy), low.shape[1]))
    part = place - low
    below = np.take_along_axis(busy, low, axis=1)
    return np.asarray(below + part * (np.take_along_axis(busy, low + 1, axis=1) - below))


def _clock_at(drawn: Floats, busy: Floats) -> Floats:
    """The clock at which a member draws so much."""
    return np.array([np.interp(wanted, known, _CLOCKS) for wanted, known in zip(drawn, busy, strict=True)])
