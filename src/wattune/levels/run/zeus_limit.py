"""Zeus's power limit: every limit for 40 steps, from the highest down in steps of 25 W, then the one that suits.

Source: You, Chung and Chowdhury, "Zeus", NSDI 2023, and `GlobalPowerLimitOptimizer` in the package of its authors. It
sits in the training script and counts steps there; here its steps are the units of work that the windows show. A window
of 40 units is cut to 20 s or 2.5 units: a unit that long is no step but the cycle around many, which is all that
shows of some programs from outside.

Selections, as in the package: the lowest limit that slows training by no more than a factor against the highest limit,
and the least η·E + (1−η)·Pmax·T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastCost
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.procedure import Procedure, forever, holding, next_order, work_rate

_STEP_W = 25.0
_WARM_UP_STEPS, _STEPS = 10, 40
_FIRST_S = 10.0
"""The first limit is looked at for so long before it is known what 40 steps take."""
_LONGEST_S, _FEWEST_STEPS = 20.0, 2.5
_LONGEST_FIRST_S = 60.0
_HOLD_S = 300.0


class LimitSelection(Protocol):
    """Picks one of the limits that were profiled."""

    def select(self, limits_w: Sequence[float], costs: Sequence[Measurement]) -> float:
        """The limit to stay with; the costs are those of one step, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class MaxSlowdown:
    """The lowest limit at which a step takes at most `factor` times what it takes at the highest."""

    factor: float

    def select(self, limits_w: Sequence[float], costs: Sequence[Measurement]) -> float:
        """That limit."""
        _, fastest = max(zip(limits_w, costs, strict=True), key=lambda pair: pair[0])
        pairs = zip(limits_w, costs, strict=True)
        return min(limit_w for limit_w, cost in pairs if cost.time_s <= self.factor * fastest.time_s)


@dataclass(frozen=True, slots=True)
class ZeusCost:
    """The limit of the least η·E + (1−η)·Pmax·T."""

    eta: float = 0.5

    def select(self, limits_w: Sequence[float], costs: Sequence[Measurement]) -> float:
        """That limit."""
        objective = LeastCost(self.eta, max(limits_w))
        return min(zip(limits_w, costs, strict=True), key=lambda pair: objective.value(pair[1]))[0]


@dataclass(frozen=True, slots=True)
class ZeusLimitPolicy:
    """Zeus at a promise of a slowdown, or with its cost: then `ZeusLimitPolicy(ZeusCost(), name="zeus-cost")`."""

    selection: LimitSelection = MaxSlowdown(1.05)
    name: str = "zeus"
    limits_w: tuple[float, ...] | None = None
    """The limits to profile, where only some may be set; otherwise all that the part has, 25 W apart."""
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    needs_counters: ClassVar[bool] = False

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """The next limit, or the one that was selected."""
        limits_w = self.limits_w or power_limits_w(spec)
        if not limits_w:
            return next_order(forever(DRIVER_DEFAULT, why="the power limit cannot be set"), seen)
        return next_order(self._tune(sorted(limits_w, reverse=True), spec), seen)

    def _tune(self, limits_w: list[float], spec: GpuSpec) -> Procedure[None]:
        first = yield _look(limits_w[0], _FIRST_S, settle_s=0.0, counting=False)
        if first.step_time_s is None:
            first = yield _look(limits_w[0], _LONGEST_FIRST_S, settle_s=0.0, counting=False)
        step_s, costs = first.step_time_s, []
        for limit_w in limits_w:
            length_s = _FIRST_S if step_s is None else max(min(_STEPS * step_s, _LONGEST_S), _FEWEST_STEPS * step_s)
            settle_s = length_s * _WARM_UP_STEPS / _STEPS
            costs.append(_step((yield _look(limit_w, length_s, settle_s=settle_s, counting=step_s is None)), spec))
        shown = [(limit_w, cost) for limit_w, cost in zip(limits_w, costs, strict=True) if cost is not None]
        if not shown or shown[0][0] != limits_w[0]:
            yield from forever(DRIVER_DEFAULT, why="the program shows no steps")
        limit_w = self.selection.select(*zip(*shown, strict=True))
        while True:
            yield holding(Setting(power_limit_w=limit_w), seconds=_HOLD_S, why="the limit that was selected")


def power_limits_w(spec: GpuSpec) -> tuple[float, ...]:
    """The limits of a part that Zeus profiles, highest first; none where they cannot be set."""
    limits = spec.power_limits
    if limits is None:
        return ()
    count = int((limits.max_w - limits.min_w) / _STEP_W + 1e-9) + 1
    return tuple(limits.max_w - _STEP_W * place for place in range(count))


def _look(limit_w: float, seconds: float, *, settle_s: float, counting: bool) -> Order:
    return Order(
        setting=Setting(power_limit_w=limit_w),
        purpose=Purpose.REFERENCE if counting else Purpose.TRIAL,
        least_s=seconds,
        most_s=seconds,
        settle_s=settle_s,
        why="profiles a power limit",
    )


def _step(window: Window, spec: GpuSpec) -> Measurement | None:
    """What a step takes and spends; by counters where the window shows no pace."""
    if window.step_time_s is not None:
        return window.unit
    rate = work_rate(window, spec) if spec.sm_clocks_mhz else None
    return None if rate is None else Measurement(1.0 / rate, window.power_w / rate)
