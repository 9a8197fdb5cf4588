"""The frontier of a pipeline whose GPUs take time to change clocks.

For every time of the free frontier (clocks change at once) each rank gets new settings by `held_settings`, which never
change faster than the latency allows. Plans are made in three ways, and those that no other beats are kept:

    constant    one setting for all operations
    projected   the least effective energy with no operation slower than in the free plan
    priced      the least effective energy plus price of time: α·x_i for a second of operation i, where x_i is its
                multiplier in the relaxed problem and α is searched so that the plan takes the time of the free one

The last two charge a stall at the price of time. A free plan has no time for stalls, so free plans whose options take
two stalls longer, except at the highest setting, are projected too. Every plan is then timed with its stalls. The bound
of the relaxed problem holds for these plans too, since free switching is easier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.pipeline.planner import LARGE, PipelinePlanner, options_by_kind
from wattune.levels.pipeline.solver.plan_cost import charged
from wattune.levels.pipeline.solver.relaxation import Floats, Ints, Relaxed, effective
from wattune.levels.pipeline.solver.switching import IMPOSSIBLE, ClockSwitching, held_settings
from wattune.plans.plan import Plan, StageChoice, WorkGraph

SEARCHED, SEARCHED_IN_LARGE = 5, 2
"""Values of α tried for each time."""

LEAST_FACTOR, MOST_FACTOR = 0.5, 3.0
"""Range of α."""

AS_FAST = 1e-9
"""Share by which an operation may be slower than in the free plan and still count as no slower."""


@dataclass(frozen=True, slots=True)
class SwitchedFrontiers:
    """The frontier with the cost of switching, and the one if clocks changed at once."""

    frontier: Frontier[Plan]
    free: Frontier[Plan]

    def free_energy_j(self, trial: Trial[Plan]) -> float:
        """Return the energy of a plan of this time if clocks changed at once, interpolated between the free plans.

        The next faster free plan alone would hide the loss of a plan between two of them. The plan itself would end
        earlier if clocks changed at once, so it never spends less than that.
        """
        costs = [own.cost for own in self.free]
        times_s, energies_j = [cost.time_s for cost in costs], [cost.energy_j for cost in costs]
        return min(float(np.interp(trial.cost.time_s, times_s, energies_j)), trial.cost.energy_j)


def plan_switched(
    graph: WorkGraph,
    profile: Mapping[str, Iterable[Trial[StageChoice]]],
    *,
    blocking_power_w: float,
    switching: ClockSwitching,
    points: int | None = None,
) -> SwitchedFrontiers:
    """Compute the frontier of plans that switch no faster than the GPU can, stalls charged."""
    trials = {kind: tuple(own) for kind, own in profile.items()}
    search = _DwellSearch(graph, trials, switching, blocking_power_w)
    planner = PipelinePlanner(graph, options_by_kind(graph, trials, blocking_power_w), blocking_power_w)
    free, found, bounds = list[Trial[Plan]](), list(search.constant()), list[Relaxed]()
    for relaxed in planner.relaxed(points, ()):
        flows_w = planner.flows_w()
        bounds.append(relaxed)
        for trial in planner.plans(relaxed):
            free.append(trial)
            found += search.projected(trial, flows_w)
            found += search.priced(trial, flows_w)
    if switching.stall_s:
        padded = {kind: _padded(own, switching.stall_s) for kind, own in trials.items()}
        roomy = PipelinePlanner(graph, options_by_kind(graph, padded, blocking_power_w), blocking_power_w)
        for relaxed in roomy.relaxed(points, ()):
            flows_w = roomy.flows_w()
            found += [own for trial in roomy.plans(relaxed) for own in search.projected(trial, flows_w)]
    return SwitchedFrontiers(Frontier.of(_bounded(own, bounds, planner) for own in found), Frontier.of(free))


def _bounded(trial: Trial[Plan], relaxed: Sequence[Relaxed], planner: PipelinePlanner) -> Trial[Plan]:
    """A plan with the best bound that follows from any relaxed plan; one slower than all of these gets the least."""
    time_s = min(trial.cost.time_s, max(one.time_s for one in relaxed))
    bound_j = max(planner.bound_j(one, time_s) for one in relaxed)
    bound_j = min(bound_j, trial.cost.energy_j)  # the last digits of the linear programme
    return Trial(replace(trial.choice, bound_j=bound_j), trial.cost)


def _padded(trials: Sequence[Trial[StageChoice]], stall_s: float) -> tuple[Trial[StageChoice], ...]:
    """The options of a kind with time for two stalls, to its setting and back, at all but the highest setting."""
    highest = max(trial.choice.setting for trial in trials)
    return tuple(
        trial
        if trial.choice.setting == highest
        else Trial(trial.choice, Measurement(trial.cost.time_s + 2 * stall_s, trial.cost.energy_j))
        for trial in trials
    )


class _DwellSearch:
    """The settings of one graph, and the search for plans that hold them long enough."""

    def __init__(
        self,
        graph: WorkGraph,
        profile: Mapping[str, Sequence[Trial[StageChoice]]],
        switching: ClockSwitching,
        blocking_power_w: float,
    ) -> None:
        self._graph, self._switching, self._blocking_power_w = graph, switching, blocking_power_w
        kinds = dict.fromkeys(operation.kind for operation in graph.operations)
        settings = sorted({trial.choice.setting for kind in kinds for trial in profile[kind]}, reverse=True)
        self._tables = {kind: _Table.of(profile[kind], settings, blocking_power_w) for kind in kinds}
        self._settings = len(settings)
        lengths = dict.fromkeys(len(places) for places in graph.by_rank)
        self._alike = [
            np.array([places for places in graph.by_rank if len(places) == length], dtype=np.int64)
            for length in lengths
        ]
        self._tries = SEARCHED if len(graph.operations) < LARGE else SEARCHED_IN_LARGE

    def constant(self) -> Iterator[Trial[Plan]]:
        """Yield the plans of one setting for all operations."""
        for setting in range(self._settings):
            rows = {kind: table.priced(0.0) for kind, table in self._tables.items()}
            if all(row.costs[setting] < IMPOSSIBLE for row in rows.values()):
                options = {kind: self._tables[kind].trials[row.options[setting]] for kind, row in rows.items()}
                yield self._charged([options[operation.kind] for operation in self._graph.operations])

    def projected(self, free: Trial[Plan], flows_w: Floats) -> list[Trial[Plan]]:
        """Return the cheapest plan in which no operation is slower than in a free one."""
        limits_s = np.array(free.choice.durations_s) * (1 + AS_FAST)
        return [self._plan(flows_w, np.zeros_like(flows_w), limits_s)]

    def priced(self, free: Trial[Plan], flows_w: Floats) -> Iterator[Trial[Plan]]:
        """Yield the plans of some prices of time, the last of which takes about as long as a free one."""
        least, most, factor = LEAST_FACTOR, MOST_FACTOR, 1.0
        for _ in range(self._tries):
            plan = self._plan(flows_w * factor, flows_w * factor, None)
            yield plan
            if plan.cost.time_s <= free.cost.time_s:
                most = factor
            else:
                least = factor
            factor = (least * most) ** 0.5

    def _plan(self, stalls_w: Floats, prices_w: Floats, limits_s: Floats | None) -> Trial[Plan]:
        chosen: dict[int, Trial[StageChoice]] = {}
        for places in self._alike:
            chosen |= self._ranks(places, stalls_w, prices_w, limits_s)
        return self._charged([chosen[place] for place in range(len(self._graph.operations))])

    def _charged(self, trials: list[Trial[StageChoice]]) -> Trial[Plan]:
        return charged(self._graph, trials, self._switching, blocking_power_w=self._blocking_power_w)

    def _ranks(
        self, places: Ints, stalls_w: Floats, prices_w: Floats, limits_s: Floats | None
    ) -> dict[int, Trial[StageChoice]]:
        """The options of the operations of some ranks: (ranks, instructions)."""
        kinds = [self._graph.operations[place].kind for place in places.ravel().tolist()]
        prices = prices_w[places].ravel().tolist()
        rows = [self._tables[kind].priced(price_w) for kind, price_w in zip(kinds, prices, strict=True)]
        shape = (*places.shape, self._settings)
        costs = np.array([row.costs for row in rows]).reshape(shape)
        times_s = np.array([row.times_s for row in rows]).reshape(shape)
        if limits_s is not None:
            costs = np.where(times_s <= limits_s[places][..., None], costs, IMPOSSIBLE)
        stalls = stalls_w[places] * self._switching.stall_s
        settings = held_settings(costs, times_s, stalls, self._switching.latency_s)
        found = zip(places.ravel().tolist(), kinds, rows, settings.ravel().tolist(), strict=True)
        return {place: self._tables[kind].trials[row.options[setting]] for place, kind, row, setting in found}


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """One kind of operation at each setting: the best option there, its cost and its time."""

    options: NDArray[np.intp]
    costs: Floats
    times_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The options of one kind, and which of them have which setting."""

    trials: tuple[Trial[StageChoice], ...]
    times_s: Floats
    effective_j: Floats
    at: NDArray[np.bool_]
    """(settings, options)."""
    rows: dict[float, _Row]
    """By price; the same prices come again and again."""

    @classmethod
    def of(cls, trials: Sequence[Trial[StageChoice]], settings: list[Setting], blocking_power_w: float) -> _Table:
        return cls(
            tuple(trials),
            np.array([trial.cost.time_s for trial in trials]),
            np.array([effective(trial, blocking_power_w) for trial in trials]),
            np.array([[trial.choice.setting == setting for trial in trials] for setting in settings]),
            {},
        )

    def priced(self, price_w: float) -> _Row:
        """The best option at each setting where a second costs so much; `IMPOSSIBLE` where there is none."""
        if price_w not in self.rows:
            costs = np.where(self.at, self.effective_j + price_w * self.times_s, IMPOSSIBLE)
            options = np.argmin(costs, axis=1)
            self.rows[price_w] = _Row(options, costs[np.arange(len(options)), options], self.times_s[options])
        return self.rows[price_w]
