"""A run policy that holds a setting per phase of a step where that pays, on top of a policy that holds one.

The policy inside searches and holds as ever. Once it holds a setting that was measured, the phases in its windows are
planned (`phases`). Settings per phase are kept while the windows measured with them stay within the slowdown limit
and spend less than the one setting did; if not, the one setting is held until the program changes. Without phases, or
with phases too short to switch in, the orders are those of the policy inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wattune.control.actuator import Reached
from wattune.control.phase_hold import PhasePlayer, Seconds
from wattune.control.stamps import Stamp
from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.core.window import Order, PhaseSetting, Purpose, RunPolicy, Window, since_change
from wattune.levels.layer.phases import OneSetting, PhasePlan, plan_phases, too_short
from wattune.levels.layer.player import LayerPlayer, LayerProgram, RequestGate
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph

STEPS = 7
"""Least steps of a window: enough for the error of a step time."""
MOST_BASELINES = 2
"""Baseline windows that may be added where the first is too short for a step time."""
FIRST_S, MOST_S = 10.0, 240.0
"""Length of the first window with a setting per phase; each is half as long again as the one before, up to the most."""


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """A `RunPolicy` around another one."""

    inner: RunPolicy
    slowdown: float
    switching: Callable[[], SwitchCost]
    """Called once the program has reported phases: reading it may take a moment."""

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def tunes(self) -> bool:
        return self.inner.tunes

    @property
    def uses_history(self) -> bool:
        return self.inner.uses_history

    @property
    def needs_counters(self) -> bool:
        return self.inner.needs_counters

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        known = since_change(windows)
        phases = next((window.phases for window in known if window.phases), ())
        if not phases:
            return self.inner.step(windows, spec)
        short = too_short(phases, self.switching())
        if short is not None:
            order = self.inner.step(windows, spec)
            return replace(order, remark=short.why) if len(known) == 1 else order
        step_s = sum(one.cost.time_s for one in phases)
        if known[-1].by_phase:
            why = worse(known, slowdown=self.slowdown)
            return _held_on(known, step_s) if why is None else replace(self._single(known, spec, step_s), remark=why)
        return self._per_phase(known, spec, self._single(known, spec, step_s), step_s)

    def player(self, by_phase: Sequence[PhaseSetting], now_s: Seconds, *, spec: GpuSpec) -> PhasePlayer:
        """Return what requests settings per phase, each ahead of its phase."""
        return PhaseRequests(by_phase, switching=self.switching(), spec=spec, now_s=now_s)

    def _single(self, known: tuple[Window, ...], spec: GpuSpec, step_s: float) -> Order:
        """Return the order of the policy inside, with windows of enough steps."""
        based = [window for window in known if window.purpose is Purpose.BASELINE]
        if not any(window.step_time_s for window in based) and len(based) <= MOST_BASELINES:
            length_s = (STEPS + 1) * step_s
            why = "the first one had too few steps"
            return Order(setting=based[0].setting, purpose=Purpose.BASELINE, least_s=length_s, most_s=length_s, why=why)
        order = self.inner.step(tuple(window for window in known if not window.by_phase), spec)
        return replace(
            order, least_s=max(order.least_s, STEPS * step_s), most_s=max(order.most_s, (STEPS + 1) * step_s)
        )

    def _per_phase(self, known: tuple[Window, ...], spec: GpuSpec, order: Order, step_s: float) -> Order:
        """Turn an order to hold one setting into one with a setting per phase, where that pays."""
        if order.purpose is not Purpose.HOLD or not _is_open(known, order.setting):
            return order
        match plan_phases(known, spec, self.switching(), slowdown=self.slowdown, single=order.setting):
            case OneSetting(why=why):
                return replace(order, remark=why)
            case PhasePlan(by_phase=by_phase, more_saving=more):
                why = f"predicted to save {100 * more:.1f} % more than {order.setting} throughout"
                return _hold_order(order.setting, by_phase, length_s=max(FIRST_S, STEPS * step_s), why=why)


def _is_open(known: tuple[Window, ...], setting: Setting) -> bool:
    """Return whether to plan: not after a failure, and only where the windows show something new."""
    if any(window.by_phase for window in known) or not any(
        window.setting == setting and window.phases for window in known
    ):
        return False
    is_new = all(window.setting != known[-1].setting for window in known[:-1])
    return is_new or not any(window.purpose is Purpose.HOLD for window in known)


def worse(known: Sequence[Window], *, slowdown: float) -> str | None:
    """Return why settings per phase are not worth holding, by the windows measured with them; None where they are."""
    base = _unit([window for window in known if window.purpose is Purpose.BASELINE])
    own = _unit([window for window in known if window.by_phase == known[-1].by_phase])
    single = _unit([window for window in known if window.setting == known[-1].setting and not window.by_phase])
    back = f"{known[-1].setting} is held throughout again"
    if base is None or own is None:
        return f"no step time was measured with a setting per phase: {back}"
    if own[0] > base[0] * (1.0 + slowdown):
        return f"with a setting per phase a step takes {100 * (own[0] / base[0] - 1):z.1f} % longer: {back}"
    if single is not None and own[1] >= single[1]:
        return f"a setting per phase saves nothing more by what was measured: {back}"
    return None


def _unit(windows: Sequence[Window]) -> tuple[float, float] | None:
    """Return seconds and joules of a step, averaged over windows by their lengths; None where unknown."""
    units = [(window.cost.time_s, unit) for window in windows if (unit := window.unit) is not None]
    total_s = sum(weight_s for weight_s, _ in units)
    if not total_s:
        return None
    time_s = sum(weight_s * unit.time_s for weight_s, unit in units) / total_s
    return time_s, sum(weight_s * unit.energy_j for weight_s, unit in units) / total_s


def _held_on(known: Sequence[Window], step_s: float) -> Order:
    last, count = known[-1], sum(bool(window.by_phase) for window in known)
    length_s = max(min(FIRST_S * 1.5**count, MOST_S), STEPS * step_s)
    return _hold_order(
        last.setting, last.by_phase, length_s=length_s, why="as measured, it saves more than one setting"
    )


def _hold_order(setting: Setting, by_phase: tuple[PhaseSetting, ...], *, length_s: float, why: str) -> Order:
    return Order(setting=setting, purpose=Purpose.HOLD, least_s=length_s, most_s=length_s, why=why, by_phase=by_phase)


class PhaseRequests:
    """A `PhasePlayer` of settings per phase; it begins with the first phase of a step."""

    def __init__(
        self, by_phase: Sequence[PhaseSetting], *, switching: SwitchCost, spec: GpuSpec, now_s: Seconds
    ) -> None:
        graph = WorkGraph.chain(tuple(Operation(one.name, one.name) for one in by_phase))
        choices = tuple(StageChoice(one.setting) for one in by_phase)
        plan = Plan(graph, choices, tuple(one.time_s for one in by_phase))
        self._program = LayerProgram.of(plan, switching=switching, spec=spec)
        self._player = LayerPlayer(self._program)
        self._gate = RequestGate(self._program.dwell_s, now_s=now_s)

    def begin(self, name: str, stamp: Stamp) -> Sequence[tuple[Setting, Reached]]:
        if self._player.place is None and name != self._program.names[0]:
            return ()
        self._player, requests = self._player.begin(name)
        return [(request.setting, self._gate.reached(stamp, request.after_s)) for request in requests]
