"""Plans made from few measurements of simulated layers beside plans made from all of them.

The measurements have the noise of a real counter. A plan counts with what it really costs: a plan that is made from
predictions can miss the slowdown limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattune.core.workload import Pipe
from wattune.levels.layer.costs import STEP, Ints, LayerCosts, simulated_costs
from wattune.levels.layer.planner import EXHAUSTIVE, IDEAL, RooflineTimes, plan_layers
from wattune.levels.layer.switching import FREE, charged
from wattune.levels.layer.transfer import columns_to_measure, transferred
from wattune.physics.catalog import load_model
from wattune.plans.plan import Plan
from wattune.workloads.catalog import make_layers
from wattune_bench.layers.thesis import BATCH_SIZE, MODELS, chosen, percent
from wattune_bench.result import Goal, Row, at_most

NOISE = 0.01
"""Relative standard deviation of a measured time and energy."""
PAIRS = (3, 5, 10)
"""Settings measured; the goals are for the most of them that stay below 5 % of all measurements."""
SLOWDOWN = 0.05
STRATEGIES = (EXHAUSTIVE, IDEAL)
_GPU = "a4000"


def transfer_rows(*, seed: int = 0) -> list[Row]:
    """Return one row per network, number of settings and strategy."""
    rows: list[Row] = []
    for name in MODELS:
        model = load_model(_GPU)
        workload = make_layers(name, batch_size=BATCH_SIZE, pipe=Pipe.FP32)
        true = simulated_costs(model, workload).only(STEP)
        roofline = RooflineTimes.of(model, workload, true)
        for pairs in PAIRS:
            columns = columns_to_measure(true.clocks_mhz, pairs)
            found = transferred(_measured(true, seed), _known(true, columns), roofline=roofline)
            for strategy in STRATEGIES:
                rows.append(
                    {
                        "model": name,
                        "gpu": model.name,
                        "strategy": strategy,
                        "settings_measured": pairs,
                        "measured": found.measured,
                        "measured_percent": 100 * found.share,
                        "time_mape_percent": _mape(found.costs.time_s, true.time_s, true.time_s),
                        "energy_mape_percent": _mape(found.costs.energy_j, true.energy_j, true.time_s),
                        "expected_time_error_percent": 100 * found.time_error,
                        **_compared(true, found.costs, strategy),
                        "simulated": True,
                    }
                )
    return rows


def _measured(true: LayerCosts, seed: int) -> LayerCosts:
    random = np.random.default_rng(seed)
    shape = true.time_s.shape
    return replace(
        true,
        time_s=true.time_s * np.exp(NOISE * random.standard_normal(shape)),
        energy_j=true.energy_j * np.exp(NOISE * random.standard_normal(shape)),
    )


def _known(true: LayerCosts, columns: tuple[int, ...]) -> Ints:
    known = np.zeros(true.time_s.shape, dtype=np.intp)
    known[:, list(columns)] = 1
    return known


def _mape(predicted: np.ndarray, true: np.ndarray, weights: np.ndarray) -> float:
    return 100 * float((np.abs(predicted / true - 1) * weights).sum() / weights.sum())


def _compared(true: LayerCosts, predicted: LayerCosts, strategy: str) -> Row:
    """Return the true cost of the plan from predictions beside that of the plan from everything."""
    limit_s = true.default.time_s * (1 + SLOWDOWN)
    frontier = plan_layers(true, FREE, strategy)
    full, _ = chosen(frontier, limit_s)
    made, _ = chosen(plan_layers(predicted, FREE, strategy), predicted.default.time_s * (1 + SLOWDOWN))
    real = charged(true, _columns(true, made.choice), FREE)
    as_fast, _ = chosen(frontier, real.cost.time_s)
    return {
        "full_energy_percent": percent(full.cost.energy_j, true.default.energy_j),
        "plan_energy_percent": percent(real.cost.energy_j, true.default.energy_j),
        "plan_time_percent": percent(real.cost.time_s, true.default.time_s),
        "energy_points_off": 100 * (real.cost.energy_j - full.cost.energy_j) / true.default.energy_j,
        "equal_time_points_off": 100 * (real.cost.energy_j - as_fast.cost.energy_j) / true.default.energy_j,
        "over_limit_points": max(100 * (real.cost.time_s / limit_s - 1), 0.0),
    }


def _columns(costs: LayerCosts, plan: Plan) -> Ints:
    places = {setting: column for column, setting in enumerate(costs.settings)}
    return np.array([places[choice.setting] for choice in plan.choices])


def transfer_goals(rows: list[Row]) -> list[Goal]:
    """Compare shares measured and distances from the full plan, time and energy, with their goals."""
    most = [row for row in rows if row["settings_measured"] == max(PAIRS)]

    def worst(name: str) -> float:
        return max(float(row[name]) for row in most)

    return [
        at_most("transfer: share of all measurements that were taken, per cent", worst("measured_percent"), 5.0),
        at_most(
            "transfer: plan above the one from all measurements, points of energy", worst("energy_points_off"), 1.0
        ),
        at_most("transfer: the same at equal time, points of energy", worst("equal_time_points_off"), 1.0),
        at_most("transfer: slower than the slowdown limit, points of time", worst("over_limit_points"), 1.0),
    ]
