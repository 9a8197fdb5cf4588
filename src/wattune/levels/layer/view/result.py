"""What was planned for the layers of a network: the words and numbers that a terminal, a page and JSON show alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from wattune.core.codec import to_json
from wattune.core.errors import Infeasible, InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.gpu_spec import labelled
from wattune.core.measurement import Measurement
from wattune.core.tariff import Footprint, Tariff
from wattune.levels.layer.comparison import LATENCIES_S, WORTH, LayerComparison, StrategyPlans
from wattune.levels.layer.plan_file import LayerPlans
from wattune.levels.layer.planner import IDEAL
from wattune.levels.layer.source import LayerSource
from wattune.levels.layer.switching import switches_of
from wattune.levels.layer.view.charts import SCOPE_WORDS
from wattune.physics.catalog import trust_of
from wattune.plans.plan import Plan
from wattune.render.quantity import percent

_NEARLY_NOTHING = 0.0005

PAYING = f"Switching pays when it saves {100 * WORTH:g} % of the default's energy beyond the best single setting."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLayers:
    """The plans of every strategy for the layers of a source, and the strategy whose plan is written and drawn."""

    found: LayerComparison
    source: LayerSource
    strategy: str
    switching_origin: str
    """Where the cost of switching comes from, in words."""
    tariff: Tariff

    @property
    def cheaper(self) -> Measurement:
        """The cheaper of the best single setting and of segments as they are played."""
        return min(self.found.single, self.found.segments.cost, key=lambda cost: cost.energy_j)

    @property
    def saved(self) -> Footprint:
        """What that saves in work of 1,000 GPU-hours by default."""
        saving, power_w = self.found.saving(self.cheaper), self.found.default.power_w
        return self.tariff.in_the_long_run(saving, power_w, started_at=datetime.now(UTC))

    @property
    def switching_words(self) -> str:
        """What a change of clocks costs, and where the figures come from."""
        cost = self.found.switching
        words = f"core clock {latency_words(cost.sm_latency_s)} latency, {latency_words(cost.sm_stall_s)} stall"
        if len({setting.mem_mhz for setting in self.found.costs.settings}) > 1:
            words += f"; memory clock {latency_words(cost.mem_latency_s)}, {latency_words(cost.mem_stall_s)}"
        return f"{words}; segments of at least {cost.dwell:g} latencies ({self.switching_origin})"

    @property
    def document(self) -> dict[str, Any]:
        """The verdict and every strategy as JSON."""
        found, costs = self.found, self.found.costs
        return {
            "simulated": costs.simulated,
            "trust": to_json(trust_of(costs.simulated, costs.gpu)),
            "model": costs.workload,
            "batch_size": self.source.batch_size,
            "precision": self.source.precision,
            "gpu": costs.gpu,
            "scope": found.scope,
            "max_slowdown_percent": 100 * found.max_slowdown,
            "default": {**_cost(found.default), "setting": str(costs.settings[0])},
            "switching": {**to_json(found.switching), "origin": self.switching_origin},
            "verdict": _verdict_document(found),
            "saved_per_1000_gpu_hours": asdict(self.saved),
            "strategy": self.strategy,
            "strategies": {plans.name: _strategy_document(found, plans) for plans in found.strategies},
        }

    @property
    def plans_to_write(self) -> LayerPlans:
        """The content of the plan file of the strategy; its plan within the slowdown limit is the chosen one."""
        found, strategy = self.found, self.strategy
        plans = found.of(strategy)
        if strategy == IDEAL:
            raise InputError(
                "ideal is an upper bound that no GPU can play", hint="write the plan of another --strategy"
            )
        if plans.within is None:
            raise Infeasible(
                f"no plan by {strategy} is within a slowdown of {100 * found.max_slowdown:g} %",
                hint="allow a larger --max-slowdown, or choose another --strategy",
            )
        planned, frontier, layers = plans.within.planned, plans.frontier, len(found.costs.names)
        if planned not in frontier.trials:
            frontier = Frontier((planned,))
        return LayerPlans(
            workload=found.costs.workload,
            batch_size=self.source.batch_size,
            precision=self.source.precision,
            scope=found.scope,
            gpu=found.costs.gpu,
            simulated=found.costs.simulated,
            switching=found.switching,
            strategy=strategy,
            default=found.costs.plan(np.zeros(layers, np.intp), np.zeros(layers)),
            frontier=frontier,
            chosen=frontier.trials.index(planned),
        )


def _verdict_document(found: LayerComparison) -> dict[str, Any]:
    cost = found.segments.cost
    return {
        "pays": found.pays,
        "saving_percent": 100 * found.saving(cost),
        "saving_over_single_percent": 100 * found.saving_over_single(cost),
        "slowdown_percent": 100 * found.slowdown(cost),
        "pays_below_s": found.pays_below_s,
        "sentence": verdict_sentence(found),
    }


def _cost(cost: Measurement) -> dict[str, float]:
    return {"time_s": cost.time_s, "energy_j": cost.energy_j}


def _strategy_document(found: LayerComparison, plans: StrategyPlans) -> dict[str, Any]:
    within = None
    if plans.within is not None:
        played = None if plans.name == IDEAL else _changes(found, plans.within.cost)
        within = {**_trial_document(found, plans.within.planned), "played": played}
    return {
        "upper_bound": plans.name == IDEAL,
        "within": within,
        "frontier": [_trial_document(found, trial) for trial in plans.frontier],
    }


def _trial_document(found: LayerComparison, trial: Trial[Plan]) -> dict[str, Any]:
    switches = switches_of(trial.choice)
    return {**_changes(found, trial.cost), "switches": switches, "bound_j": trial.choice.bound_j or None}


def _changes(found: LayerComparison, cost: Measurement) -> dict[str, float]:
    return {
        **_cost(cost),
        "saving_percent": 100 * found.saving(cost),
        "saving_over_single_percent": 100 * found.saving_over_single(cost),
        "slowdown_percent": 100 * found.slowdown(cost),
    }


def frontier_csv(found: LayerComparison) -> str:
    """Write the frontier of every strategy as CSV, fastest first."""
    rows = (
        f"{plans.name},{trial.cost.time_s!r},{trial.cost.energy_j!r},{switches_of(trial.choice)}\n"
        for plans in found.strategies
        for trial in plans.frontier
    )
    return "strategy,time_s,energy_j,switches\n" + "".join(rows)


def verdict_sentence(found: LayerComparison) -> str:
    """Say whether switching pays, how much it saves, and from which latency on it would pay."""
    gpu = labelled(found.costs.gpu, found.costs.simulated)
    latency = latency_words(found.switching.sm_latency_s)
    pays = "pays" if found.pays else "does not pay"
    cost = found.segments.cost
    return (
        f"Changing clocks between layers {pays} on {gpu} at a switching latency of {latency}: within a slowdown of "
        f"{100 * found.max_slowdown:g} %, the energy of a {SCOPE_WORDS[found.scope]} of {found.costs.workload} changes "
        f"by {percent(-100 * found.saving(cost))} against default clocks{_against_single(found)}; "
        f"{_from_latency(found)}."
    )


def _against_single(found: LayerComparison) -> str:
    """Compare with the best single setting; a saving that does not pay is called small."""
    saving = found.saving_over_single(found.segments.cost)
    if not found.segments.switches or abs(saving) < _NEARLY_NOTHING:
        return f", as with one setting for all layers ({found.single_setting})"
    only = "" if found.pays or saving < 0 else "only "
    return f" and by {only}{percent(-100 * saving)} against the best single setting ({found.single_setting})"


def _from_latency(found: LayerComparison) -> str:
    below_s, latency_s = found.pays_below_s, found.switching.sm_latency_s
    if found.pays:
        longest_s = max(below_s or 0.0, latency_s)
        least = "at least " if longest_s >= LATENCIES_S[-1] else "about "
        return f"it pays up to a latency of {least}{latency_words(longest_s)}"
    if below_s is None:
        return f"it would pay at no latency of {latency_words(LATENCIES_S[0])} or more"
    if below_s >= latency_s:
        return f"longer segments would pay, as at a latency of {latency_words(below_s)}"
    return f"it would begin to pay below about {latency_words(below_s)}"


def latency_words(seconds: float) -> str:
    """Return a latency in its usual unit: `80 ms`, `0.3 ms`, `1.2 s`."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
