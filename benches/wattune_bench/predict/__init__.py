"""`wattune bench predict`: how well time and energy at other clocks are predicted from counters at one.

The boosted models of GPOEO are judged on networks and mixtures that they have not seen, and on the seventy-one jobs of
`bench run`, beside two that need no trees. Errors are means of |predicted/true − 1| over workloads and clocks.

Notation, relative to the reference clock: f the core clock, m the memory clock, c the share of time in which arithmetic
units are used, d the share of the memory bandwidth in use.
    a + b/f     T = 1 − c + c/f,  P = 1 − s + s·f;   T = 1 − d + d/m,  P = 1 − q + q·m
    mean curve  what the workloads of the training took on average
The two numbers s and q are fitted to the workloads of the training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from wattune.core.setting import Setting
from wattune.levels.run.gpoeo.models import FEATURES, GpoeoModels, PredictionTable, band_columns, train
from wattune.levels.run.gpoeo.training import prediction_table, programs_of, training_workloads
from wattune.levels.run.simulated_program import SimulatedProgram
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Floats
from wattune.response.boosted_trees import MISSING, MISSING_HINT, installed
from wattune_bench.family import family
from wattune_bench.result import Bench, Goal, Row, at_most

HELD_OUT, JUDGED = "held-out workloads", "the 71 jobs"
BOOSTED, LINE, MEAN = "gpoeo", "a + b/f", "mean curve"
BAND_NAMES = ("low core clocks", "middle core clocks", "high core clocks", "memory clocks")

_KEPT_BACK = 4
"""Every fourth network, at all its batch sizes, and every fourth mixture."""

_NOTES = (
    "All workloads are simulated. Those of the training are networks of the catalogue but for graph networks, and "
    "random mixtures of phases; a held-out network is so at all batch sizes. Counters are free of noise.",
)

Predictor = Callable[[PredictionTable], tuple[Floats, Floats, Floats, Floats]]
"""Time and energy at all core clocks, then at all memory clocks; (workloads, clocks) each."""


def bench_predict(gpu: str, *, seed: int = 0, on_step: Callable[[str], None] | None = None) -> Bench:
    """Compute errors by band of clocks, on held-out workloads and on the jobs of a seed."""
    report = on_step or _ignored
    model = load_model(gpu)
    report("tabulates the workloads of the training")
    table = prediction_table(model, programs_of(model, training_workloads()))
    seen, unseen = split(table)
    rows: list[Row] = []
    report("trains without the held-out workloads")
    for name, predictor in _predictors(_only(table, seen)):
        rows += _rows(name, HELD_OUT, predictor, _only(table, unseen))
    report("trains with all workloads")
    jobs = prediction_table(
        model, [SimulatedProgram.of(model, member.step, name=member.name) for member in family(seed=seed)]
    )
    for name, predictor in _predictors(table):
        rows += _rows(name, JUDGED, predictor, jobs)
    missing = () if installed() else (f"{BOOSTED} is left out: {MISSING}; {MISSING_HINT}",)
    return Bench(
        bench="predict",
        simulated=True,
        rows=tuple(rows),
        goals=_goals(rows),
        notes=(*_NOTES, *missing),
        figures={"gpu": model.name, "training_workloads": len(table.names), "held_out_workloads": len(unseen)},
    )


def split(table: PredictionTable) -> tuple[list[int], list[int]]:
    """Return the places of the workloads to train on, and of those that are held out."""
    groups = [name.partition(":")[0] for name in table.names]
    networks = sorted({group for group in groups if not group.startswith("mixture")})
    mixtures = [group for group in groups if group.startswith("mixture")]
    back = {*networks[_KEPT_BACK - 1 :: _KEPT_BACK], *mixtures[_KEPT_BACK - 1 :: _KEPT_BACK]}
    unseen = [place for place, group in enumerate(groups) if group in back]
    return [place for place in range(len(groups)) if place not in set(unseen)], unseen


def _only(table: PredictionTable, rows: list[int]) -> PredictionTable:
    """Return the table of some of the workloads."""
    return replace(
        table,
        names=tuple(table.names[row] for row in rows),
        features=table.features[rows],
        time=table.time[rows],
        energy=table.energy[rows],
        mem_time=table.mem_time[rows],
        mem_energy=table.mem_energy[rows],
    )


def _predictors(table: PredictionTable) -> Iterator[tuple[str, Predictor]]:
    if installed():
        models = train(table)
        yield BOOSTED, lambda other: _boosted(models, other)
    yield LINE, _line(table)
    yield MEAN, lambda other: _mean(table, other)


def _boosted(models: GpoeoModels, table: PredictionTable) -> tuple[Floats, Floats, Floats, Floats]:
    reference = table.reference
    cores = [Setting(mhz, reference.mem_mhz) for mhz in table.sm_mhz]
    memories = [Setting(reference.sm_mhz, mhz) for mhz in table.mem_mhz]
    found = []
    for counters in table.features:
        features = dict(zip(FEATURES, counters.tolist(), strict=True))
        core = models.predict(features, cores)
        # At the reference the core models give nearly 1, and the memory is judged relative to that.
        beside = models.predict(features, memories) if memories else None
        here = models.predict(features, [reference])
        memory = (beside.time / here.time, beside.energy / here.energy) if beside else (np.empty(0), np.empty(0))
        found.append((core.time, core.energy, *memory))
    time, energy, mem_time, mem_energy = (np.array(column) for column in zip(*found, strict=True))
    return time, energy, mem_time, mem_energy


def _line(training: PredictionTable) -> Predictor:
    clocks, memories = _relative(training)
    core = _share(training.energy / training.time, clocks)
    memory = _share(training.mem_energy / training.mem_time, memories) if len(memories) else 0.0
    return lambda table: _lines(table, core, memory)


def _share(power: Floats, relative: Floats) -> float:
    """Fit the s of P = 1 − s + s·f."""
    slope = np.broadcast_to(relative - 1.0, power.shape)
    return float(np.clip((slope * (power - 1.0)).sum() / (slope * slope).sum(), 0.0, 1.0))


def _lines(table: PredictionTable, core: float, memory: float) -> tuple[Floats, Floats, Floats, Floats]:
    clocks, memories = _relative(table)
    used = {name: table.features[:, place, np.newaxis] for place, name in enumerate(FEATURES)}
    busy = np.minimum(used["tensor"] + used["fp32"], 1.0)
    time = 1.0 - busy + busy / clocks
    mem_time = 1.0 - used["dram"] + used["dram"] / memories
    return time, time * (1.0 - core + core * clocks), mem_time, mem_time * (1.0 - memory + memory * memories)


def _mean(training: PredictionTable, table: PredictionTable) -> tuple[Floats, Floats, Floats, Floats]:
    curves = (training.time, training.energy, training.mem_time, training.mem_energy)
    first, second, third, fourth = (np.tile(curve.mean(axis=0), (len(table.names), 1)) for curve in curves)
    return first, second, third, fourth


def _relative(table: PredictionTable) -> tuple[Floats, Floats]:
    reference = table.reference
    memories = np.array(table.mem_mhz, dtype=np.float64) / float(reference.mem_mhz or 1)
    return np.array(table.sm_mhz) / float(reference.sm_mhz or 1), memories


def _rows(name: str, judged_on: str, predictor: Predictor, table: PredictionTable) -> list[Row]:
    time, energy, mem_time, mem_energy = predictor(table)
    cuts = [(band, inside) for band, (inside, _) in zip(BAND_NAMES, band_columns(table), strict=False)]
    pairs = [
        (quantity, band, predicted[:, inside], true[:, inside])
        for quantity, predicted, true in (("time", time, table.time), ("energy", energy, table.energy))
        for band, inside in cuts
    ]
    if table.mem_mhz:
        pairs.append(("time", BAND_NAMES[-1], mem_time, table.mem_time))
        pairs.append(("energy", BAND_NAMES[-1], mem_energy, table.mem_energy))
    return [
        {
            "judged_on": judged_on,
            "quantity": quantity,
            "band": band,
            "predictor": name,
            "workloads": len(true),
            "mape_percent": float(np.mean(np.abs(predicted / true - 1.0))) * 100,
            "worst_percent": float(np.max(np.abs(predicted / true - 1.0))) * 100,
        }
        for quantity, band, predicted, true in pairs
    ]


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    """Compare the boosted models with a line at the clocks that a program is likely to get."""
    goals = []
    for quantity in ("time", "energy"):
        errors = {
            row["predictor"]: row["mape_percent"]
            for row in rows
            if (row["judged_on"], row["quantity"], row["band"]) == (HELD_OUT, quantity, BAND_NAMES[2])
        }
        ratio = errors[BOOSTED] / errors[LINE] if BOOSTED in errors else None
        goals.append(at_most(f"{quantity} at high core clocks, error over that of {LINE}", ratio, 1.0))
    return tuple(goals)


def _ignored(step: str) -> None:
    del step
