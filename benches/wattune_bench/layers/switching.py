"""Free switching in a large language model beside published figures, and the time to plan a long chain.

Spaan, Chen and Varbanescu (arXiv 2601.08539, 2026) choose a clock per kernel of GPT-3 training, with switching free:
14.6 % less energy at 0.6 % slowdown. With one clock per pass: 2 % without loss.
"""

from __future__ import annotations

import time

import numpy as np

from wattune.core.setting import Setting
from wattune.levels.layer.costs import Floats, LayerCosts, simulated_costs
from wattune.levels.layer.planner import IDEAL, SEGMENTS, plan_layers
from wattune.levels.layer.switching import SwitchCost, switches_of
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_layers
from wattune_bench.layers.thesis import chosen, percent
from wattune_bench.result import Goal, Row, at_most

LANGUAGE_MODEL, SHARDS, LANGUAGE_GPUS = "gpt3-175b@2/8", 8, ("a100-80gb", "h100", "3080ti")
PUBLISHED = {"kernel": (0.006, -14.6), "pass": (0.0, -2.0)}
"""Grain of switching → (slowdown, change of energy in per cent)."""

_HALF_PERCENT = 0.005

CHAIN_LAYERS, CHAIN_CORES, CHAIN_MEMORIES, CHAIN_POINTS = 1000, 80, 5, 50
CHAIN_LATENCIES_S = (0.1e-3, 1e-3, 10e-3, 50e-3)


def language_rows() -> list[Row]:
    """Return one row per GPU and grain of switching: each kernel, or each pass, with switching free."""
    rows: list[Row] = []
    for gpu in LANGUAGE_GPUS:
        model = load_model(gpu)
        costs = simulated_costs(model, make_layers(LANGUAGE_MODEL, shards=SHARDS))
        switching = SwitchCost.of(model.spec(), model.change)
        for grain, own in (("kernel", costs), ("pass", costs.by_pass)):
            slowdown, published = PUBLISHED[grain]
            limit_s = own.default.time_s * (1 + max(slowdown, _HALF_PERCENT))
            free, _ = chosen(plan_layers(own, switching, IDEAL), limit_s)
            real, _ = chosen(plan_layers(own, switching, SEGMENTS), limit_s)
            rows.append(
                {
                    "model": LANGUAGE_MODEL,
                    "gpu": model.name,
                    "grain": grain,
                    "slowdown_limit_percent": 100 * (limit_s / own.default.time_s - 1),
                    "published_energy_percent": published,
                    "free_energy_percent": percent(free.cost.energy_j, own.default.energy_j),
                    "free_switches": switches_of(free.choice),
                    "real_energy_percent": percent(real.cost.energy_j, own.default.energy_j),
                    "real_switches": switches_of(real.choice),
                    "simulated": True,
                }
            )
    return rows


def chain_rows() -> list[Row]:
    """Return the CPU time of planning a chain of 1,000 layers at 80 core and 5 memory clocks, per latency."""
    costs = chain(seed=1)
    rows: list[Row] = []
    for latency_s in CHAIN_LATENCIES_S:
        switching = SwitchCost(
            sm_latency_s=latency_s,
            mem_latency_s=1.25 * latency_s,
            sm_stall_s=min(latency_s, 0.1e-3),
            mem_stall_s=min(1.25 * latency_s, 10e-3),
        )
        begin_s = time.process_time()
        frontier = plan_layers(costs, switching, SEGMENTS, points=CHAIN_POINTS)
        plan_s = time.process_time() - begin_s
        gaps = [100 * (trial.cost.energy_j / trial.choice.bound_j - 1) for trial in frontier]
        rows.append(
            {
                "layers": CHAIN_LAYERS,
                "settings": len(costs.settings),
                "chain_latency_s": latency_s,
                "plans": len(frontier),
                "plan_s": plan_s,
                "gap_mean_percent": float(np.mean(gaps)),
                "gap_worst_percent": max(gaps),
            }
        )
    return rows


def chain_goal(rows: list[Row]) -> Goal:
    """Compare the longest planning time with its goal."""
    return at_most(
        f"planning {CHAIN_LAYERS} layers × {CHAIN_CORES * CHAIN_MEMORIES} settings, slowest latency, CPU seconds",
        max(row["plan_s"] for row in rows),
        2.0,
        unit=" s",
    )


def chain(*, seed: int) -> LayerCosts:
    """Make a random chain whose layers follow a rounded roofline with a voltage that rises above a knee."""
    random = np.random.default_rng(seed)
    cores_mhz = [1800 - 15 * number for number in range(CHAIN_CORES)]
    memories_mhz = [7001 - 500 * number for number in range(CHAIN_MEMORIES)]
    settings = tuple(Setting(core, memory) for memory in memories_mhz for core in cores_mhz)
    f = np.array([float(setting.sm_mhz or 0) for setting in settings]) / cores_mhz[0]
    m = np.array([float(setting.mem_mhz or 0) for setting in settings]) / memories_mhz[0]
    compute = random.uniform(0.05, 1.0, (CHAIN_LAYERS, 1))
    alone_s = random.lognormal(-7.5, 1.0, (CHAIN_LAYERS, 1))
    time_s: Floats = alone_s * ((compute / f) ** 4 + ((1.05 - compute) / m) ** 4) ** 0.25
    voltage = 1.0 + 0.5 * np.clip((f - 0.65) / 0.35, 0.0, None)
    busy = compute * alone_s / f / time_s
    power_w = 25.0 + 15.0 * m + f * voltage**2 * (20.0 + 80.0 * busy) + 40.0 * (1.05 - compute) * alone_s / time_s
    return LayerCosts(
        workload="random chain",
        gpu="made up",
        simulated=True,
        names=tuple(f"forward/layer{number}" for number in range(CHAIN_LAYERS)),
        settings=settings,
        time_s=time_s,
        energy_j=power_w * time_s,
        waiting_w=40.0,
    )
