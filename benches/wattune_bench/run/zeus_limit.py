"""The power limit of Zeus for a running program: profile every limit, hold the lowest within the slowdown limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.policies import slowdown_of
from wattune.levels.run.procedure import Procedure, PublishedPolicy, forever, holding, ordered, work_rate

_STEP_W = 25.0
_WARM_UP_STEPS, _STEPS = 10, 40
_FIRST_S = 10.0
"""Length of the first window, before the step time is known."""
_LONGEST_S, _FEWEST_STEPS = 20.0, 2.5
_LONGEST_FIRST_S = 60.0
_HOLD_S = 300.0


def lowest_limit_w(limits_w: Sequence[float], costs: Sequence[Measurement], *, slowdown: float) -> float:
    """Return the lowest limit within the slowdown, relative to the highest limit; costs are those of one step."""
    _, fastest = max(zip(limits_w, costs, strict=True), key=lambda pair: pair[0])
    pairs = zip(limits_w, costs, strict=True)
    return min(limit_w for limit_w, cost in pairs if cost.time_s <= (1.0 + slowdown) * fastest.time_s)


@dataclass(frozen=True, slots=True)
class ZeusLimitPolicy(PublishedPolicy):
    """The power limit of Zeus: profile every limit for 40 steps, highest first, 25 W apart, then hold the best.

    Source: You, Chung and Chowdhury, "Zeus", NSDI 2023, and `GlobalPowerLimitOptimizer` in the package of its authors,
    which counts steps in the training script; here its steps are the units of work that the windows show. A window of
    40 units is cut to 20 s or 2.5 units: a unit that long is not a step but the cycle around many steps, which is all
    that some programs show from outside. The selection is `MaxSlowdownConstraint` of the package: the lowest limit
    within the slowdown limit, relative to the highest power limit.
    """

    slowdown: float = 0.05

    name: ClassVar[str] = "zeus"

    @classmethod
    def of(cls, objective: Objective) -> ZeusLimitPolicy:
        """Make the policy for an objective."""
        return cls(slowdown_of(cls.name, objective))

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        limits_w = power_limits_w(spec)
        if not limits_w:
            yield from forever(DRIVER_DEFAULT, why="the power limit cannot be set")
        first = yield _order(limits_w[0], _FIRST_S, settle_s=0.0, counting=False)
        if first.step_time_s is None:
            first = yield _order(limits_w[0], _LONGEST_FIRST_S, settle_s=0.0, counting=False)
        step_s, costs = first.step_time_s, []
        for limit_w in limits_w:
            length_s = _FIRST_S if step_s is None else max(min(_STEPS * step_s, _LONGEST_S), _FEWEST_STEPS * step_s)
            settle_s = length_s * _WARM_UP_STEPS / _STEPS
            costs.append(_step((yield _order(limit_w, length_s, settle_s=settle_s, counting=step_s is None)), spec))
        shown = [(limit_w, cost) for limit_w, cost in zip(limits_w, costs, strict=True) if cost is not None]
        if not shown or shown[0][0] != limits_w[0]:
            yield from forever(DRIVER_DEFAULT, why="the program shows no steps")
        limit_w = lowest_limit_w(*zip(*shown, strict=True), slowdown=self.slowdown)
        while True:
            yield holding(Setting(power_limit_w=limit_w), seconds=_HOLD_S, why="the limit that was selected")


def power_limits_w(spec: GpuSpec) -> tuple[float, ...]:
    """Return the limits that Zeus profiles, highest first; none where they cannot be set."""
    limits = spec.power_limits
    if limits is None:
        return ()
    count = int((limits.max_w - limits.min_w) / _STEP_W + 1e-9) + 1
    return tuple(limits.max_w - _STEP_W * place for place in range(count))


def _order(limit_w: float, seconds: float, *, settle_s: float, counting: bool) -> Order:
    purpose = Purpose.REFERENCE if counting else Purpose.TRIAL
    return ordered(Setting(power_limit_w=limit_w), purpose, seconds, settle_s=settle_s, why="profiles a power limit")


def _step(window: Window, spec: GpuSpec) -> Measurement | None:
    """Return time and energy of a step; from counters where the window has no step time."""
    if window.step_time_s is not None:
        return window.unit
    rate = work_rate(window, spec) if spec.sm_clocks_mhz else None
    return None if rate is None else Measurement(1.0 / rate, window.power_w / rate)
