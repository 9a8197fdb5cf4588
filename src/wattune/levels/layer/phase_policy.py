"""A run policy that holds a setting per phase of a step where that pays, on top of a policy that holds one.

The policy inside searches and holds as ever. Once it holds a setting that was measured, the phases in its windows are
planned (`plan_phases`). Settings per phase are kept while the windows measured with them stay within the slowdown limit
and spend less than the one setting did; if not, the one setting is held until the program changes. Without phases, or
with phases too short to switch in, the orders are those of the policy inside.

Notation
    t0, e0   time and energy of a step at the baseline, phase by phase
    D        least dwell of a setting: several switching latencies (`switching`)

Each phase is a layer of `LayerCosts`. Its time and energy at settings that the run did not measure are predicted from
those that it did, at the memory clocks that it measured; a phase that the power limit holds below a clock costs what
it costs at the baseline. The plan is the one of least energy that, played with latencies that scatter, keeps the
slowdown limit with its own error to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from wattune.control.actuator import Reached
from wattune.control.phase_hold import PhasePlayer, Seconds
from wattune.control.stamps import Stamp
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.window import Order, PhaseCost, PhaseSetting, Purpose, RunPolicy, Window, since_change
from wattune.levels.layer.comparison import WORTH, Played, within_when_played
from wattune.levels.layer.costs import Floats, LayerCosts
from wattune.levels.layer.planner import SEGMENTS, plan_layers
from wattune.levels.layer.player import LayerPlayer, LayerProgram, RequestGate
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph
from wattune.response.layer_curves import LayerMeasurements, LayerPrediction, predict_layers
from wattune.response.points import candidates_of

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


SPREAD = 0.7
"""Scatter of the latency of a change, as σ of its logarithm (LATEST, arXiv 2502.20075)."""
LEAST_SETTINGS = 2
"""Fewest measured settings from which others are predicted, the baseline included."""
_POINTS = 20
_SAME_CLOCK = 0.02
"""A clock that is read within this share of the requested one is the requested one."""


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """A setting for each phase of a step, and what it is predicted to save beyond one setting throughout."""

    by_phase: tuple[PhaseSetting, ...]
    more_saving: float
    """Share of the baseline's energy."""


@dataclass(frozen=True, slots=True)
class OneSetting:
    """One setting throughout is as good, for a reason in words."""

    why: str


def too_short(phases: Sequence[PhaseCost], switching: SwitchCost) -> OneSetting | None:
    """Return the reason if no setting could hold for D within a step, and another one for the rest of it."""
    times_s = [one.cost.time_s for one in phases]
    dwell_s, step_s = switching.dwell_s(changes_memory=False), sum(times_s)
    for first in range(len(times_s)):
        lasts_s = 0.0
        for place in range(first, first + len(times_s) - 1):
            lasts_s += times_s[place % len(times_s)]
            if dwell_s <= lasts_s <= step_s - dwell_s:
                return None
    longest = max(phases, key=lambda one: one.cost.time_s)
    return OneSetting(
        f"the longest phase of a step, {longest.name}, lasts {_ms(longest.cost.time_s)}, and a clock takes "
        f"{_ms(switching.sm_latency_s)} to change and should hold for {_ms(dwell_s)}: one setting is held"
    )


def plan_phases(
    windows: Sequence[Window], spec: GpuSpec, switching: SwitchCost, *, slowdown: float, single: Setting
) -> PhasePlan | OneSetting:
    """Plan the phases by the windows since the program last changed; `single` is the setting to improve on."""
    measured = measured_phases(windows)
    base = next((window.setting for window in windows if window.purpose is Purpose.BASELINE), None)
    if base not in measured or single not in measured or len(measured) < LEAST_SETTINGS or not spec.sm_clocks_mhz:
        return OneSetting("too few clocks were measured to plan a setting per phase: one setting is held")
    costs, error = phase_layers(measured, spec, base=base)
    played = _planned(costs, error, switching, slowdown=slowdown)
    single_j = sum(one.cost.energy_j for one in measured[single])
    more_saving = (single_j - played.cost.energy_j) / costs.default.energy_j
    if not played.switches or more_saving < WORTH:
        return OneSetting(
            f"a setting per phase would save less than {100 * WORTH:g} % more than {single}: one setting is held"
        )
    plan = played.planned.choice
    steps = zip(costs.names, plan.choices, plan.durations_s, strict=True)
    return PhasePlan(tuple(PhaseSetting(name, choice.setting, time_s) for name, choice, time_s in steps), more_saving)


def _planned(costs: LayerCosts, error: Floats, switching: SwitchCost, *, slowdown: float) -> Played:
    """Return the plan of least energy within the limit, less the error of its own time."""
    limit_s = costs.default.time_s * (1.0 + slowdown)
    frontier = plan_layers(costs, switching, SEGMENTS, points=_POINTS)
    played = within_when_played(costs, frontier, switching=switching, limit_s=limit_s, spread=SPREAD)
    spare_s = min(_error_s(played, costs, error), 0.5 * slowdown * costs.default.time_s)
    return within_when_played(costs, frontier, switching=switching, limit_s=limit_s - spare_s, spread=SPREAD)


def measured_phases(windows: Sequence[Window]) -> dict[Setting, tuple[PhaseCost, ...]]:
    """Return the phases at each setting that was held throughout a window, as the first window has them."""
    found: dict[Setting, list[Window]] = {}
    names = next((_names(window.phases) for window in windows if window.phases), ())
    for window in windows:
        if window.phases and window.held and not window.by_phase and _names(window.phases) == names:
            found.setdefault(window.setting, []).append(window)
    return {setting: tuple(_pooled(own, place) for place in range(len(names))) for setting, own in found.items()}


def phase_layers(
    measured: Mapping[Setting, tuple[PhaseCost, ...]], spec: GpuSpec, *, base: Setting
) -> tuple[LayerCosts, Floats]:
    """Return the phases as layers at every candidate setting, the baseline first, and the relative errors of times."""
    memories = {setting.mem_mhz for setting in measured}
    candidates = [one for one in candidates_of(spec) if one.sm_mhz and one.mem_mhz in memories and one != base]
    clocks = [(float(one.sm_mhz or 0), _mem_mhz(one, spec)) for one in candidates]
    found = _predicted(measured, clocks, spec)
    base_mhz = np.array([_clock(base, one, spec) for one in measured[base]])
    is_limited = np.array([[clock[0] >= own[0] and clock[1] == own[1] for clock in clocks] for own in base_mhz])
    base_s = np.array([one.cost.time_s for one in measured[base]])
    base_j = np.array([one.cost.energy_j for one in measured[base]])

    def with_base(own: Floats, others: Floats) -> Floats:
        return np.column_stack([own, np.where(is_limited, own[:, np.newaxis], others[:, : len(clocks)])])

    costs = LayerCosts(
        workload="the phases of a step",
        gpu=spec.name,
        simulated=spec.simulated,
        names=_names(measured[base]),
        settings=(base, *candidates),
        time_s=with_base(base_s, found.time_s),
        energy_j=with_base(base_j, found.energy_j),
        waiting_w=float((base_j / base_s).min()),
    )
    return costs, with_base(np.zeros(len(base_s)), found.time_error)


def _predicted(
    measured: Mapping[Setting, tuple[PhaseCost, ...]], clocks: Sequence[tuple[float, float]], spec: GpuSpec
) -> LayerPrediction:
    """Predict the phases at these clocks, which come first, and at those that were read."""
    columns = {clock: place for place, clock in enumerate(clocks)}
    cells = [
        (row, columns.setdefault(_clock(setting, phase, spec), len(columns)), phase)
        for setting, phases in measured.items()
        for row, phase in enumerate(phases)
    ]
    names = _names(next(iter(measured.values())))
    time_s, energy_j = np.full((2, len(names), len(columns)), np.nan)
    for row, column, phase in cells:
        time_s[row, column], energy_j[row, column] = phase.cost.time_s, phase.cost.energy_j
    sm_mhz, mem_mhz = np.array(list(columns)).T
    return predict_layers(LayerMeasurements(names, names, sm_mhz, mem_mhz, time_s, energy_j))


def _error_s(played: Played, costs: LayerCosts, error: Floats) -> float:
    """Return the standard error of the time of a plan."""
    plan = played.planned.choice
    columns = [costs.settings.index(choice.setting) for choice in plan.choices]
    return sqrt(sum((costs.time_s[row, column] * error[row, column]) ** 2 for row, column in enumerate(columns)))


def _pooled(windows: Sequence[Window], place: int) -> PhaseCost:
    """Average one phase over windows at one setting, weighted by their lengths."""
    weights = np.array([window.cost.time_s for window in windows])
    weights /= weights.sum()
    own = [window.phases[place] for window in windows]
    time_s = float(weights @ np.array([one.cost.time_s for one in own]))
    energy_j = float(weights @ np.array([one.cost.energy_j for one in own]))
    clocks = [one.sm_mhz for one in own if one.sm_mhz is not None]
    return PhaseCost(own[0].name, Measurement(time_s, energy_j), float(np.mean(clocks)) if clocks else None)


def _clock(setting: Setting, phase: PhaseCost, spec: GpuSpec) -> tuple[float, float]:
    """Return the clocks at which a phase ran: as read, where a power limit kept them lower than requested."""
    asked_mhz = float(setting.sm_mhz or spec.sm_clocks_mhz[-1])
    read_mhz = phase.sm_mhz or asked_mhz
    is_same = abs(read_mhz - asked_mhz) <= _SAME_CLOCK * asked_mhz
    return asked_mhz if is_same else read_mhz, _mem_mhz(setting, spec)


def _mem_mhz(setting: Setting, spec: GpuSpec) -> float:
    return float(setting.mem_mhz or (spec.mem_clocks_mhz or (1,))[0])


def _names(phases: Sequence[PhaseCost]) -> tuple[str, ...]:
    return tuple(one.name for one in phases)


def _ms(time_s: float) -> str:
    return f"{1000 * time_s:.2g} ms" if time_s < 0.1 else f"{1000 * time_s:.0f} ms" if time_s < 1 else f"{time_s:.1f} s"
