"""Real kernels: their times at pairs of clocks that were not measured, predicted from few that were.

Notation: f core clock, m memory clock; a kernel counts with the time of all its calls.
    a + b/f + c/m   non-negative least squares of relative errors, each kernel alone
    nearest pair    the time at the measured pair that is nearest in log clocks
    error           Σ calls·|predicted − true| / Σ calls·true over kernels and pairs that were not measured
    bound           by the elasticities of time to both clocks, from a line through log time over all pairs: core-bound
                    where that to the core clock is the larger, memory-bound where the other is, and neither where
                    their sum is below 0.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from wattune.core.errors import InputError
from wattune.response.layer_curves import LayerMeasurements, next_layer, pairs_to_measure, predict_layers
from wattune.response.statistics import Floats
from wattune_bench.layers.kernel_table import KernelTable, read_kernels
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

OURS, WITHOUT_NAMES, LINE, NEAREST = "wattune", "wattune without names", "a + b/f + c/m", "nearest pair"
THREE, FEW = "3 pairs", "3 pairs for 1 in 10, else 1"
RANDOM_PAIRS, RANDOM_KERNELS = "3 random pairs", "3 pairs for 1 in 10 at random, else 1"

BOUND = (
    "log time is fitted by a line in both log clocks over all pairs; a kernel is core-bound where its elasticity to "
    "the core clock is the larger one, memory-bound where that to the memory clock is, and neither where their sum is "
    "below 0.1"
)
_INSENSITIVE = 0.1
_FEWEST_PAIRS = 3

_NOTES = (
    "Errors are weighted by calls × time and taken at the pairs that were not measured.",
    "wattune chooses the pairs and, for 1 in 10, the kernels; the others get the same ones. Rows at random show what "
    "the choice is worth.",
    f"Bound: {BOUND}.",
)

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _KernelCase:
    """What is measured: (kernels, pairs)."""

    measured: str
    seed: int | None
    seen: Mask


def bench_kernels(file: Path, *, seeds: int, on_step: Callable[[str], None] | None = None) -> Bench:
    """Predict the kernels of a table from few of its pairs."""
    table = read_kernels(file)
    if len(table.pairs) <= _FEWEST_PAIRS:
        raise InputError(
            f"{file.name} has {len(table.pairs)} pairs of clocks",
            hint=f"more than {_FEWEST_PAIRS} are needed: some to measure, others to predict",
        )
    rows: list[Row] = []
    for case in _cases(table, seeds):
        if on_step is not None:
            on_step(case.measured if case.seed is None else f"{case.measured}, seed {case.seed}")
        rows += [{"kernels": file.name, **row} for row in _rows(table, case)]
    return Bench(
        bench="layers",
        simulated=False,
        rows=tuple(rows),
        goals=_goals(rows),
        notes=(*_NOTES, *(f"Left out: {line}." for line in table.left_out)),
        figures={
            "kernel_count": len(table.names),
            "pair_count": len(table.pairs),
            "measured_pairs": [list(pair) for pair in _chosen_pairs(table, 3)],
            "bound_definition": BOUND,
        },
    )


def _chosen_pairs(table: KernelTable, count: int) -> tuple[tuple[int, int], ...]:
    cores, memories = zip(*table.pairs, strict=True)
    return pairs_to_measure(sorted(set(cores)), sorted(set(memories)), count)


def _cases(table: KernelTable, seeds: int) -> Iterator[_KernelCase]:
    kernels, pairs = table.time_s.shape
    three = [table.pairs.index(pair) for pair in _chosen_pairs(table, 3)]
    (one,) = [table.pairs.index(pair) for pair in _chosen_pairs(table, 1)]
    few = max(1, kernels // 10)
    everywhere = tuple(range(kernels))
    yield _KernelCase(THREE, None, _mask(table, everywhere, three, one))
    yield _KernelCase(FEW, None, _mask(table, _chosen_kernels(table, few, three, one), three, one))
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        drawn = rng.choice(pairs, 3, replace=False).tolist()
        yield _KernelCase(RANDOM_PAIRS, seed, _mask(table, everywhere, drawn, drawn[0]))
        some = tuple(rng.choice(kernels, few, replace=False).tolist())
        yield _KernelCase(RANDOM_KERNELS, seed, _mask(table, some, three, one))


def _chosen_kernels(table: KernelTable, count: int, three: list[int], one: int) -> tuple[int, ...]:
    """Choose kernels one by one, each with the largest expected error after the others were measured."""
    chosen: list[int] = []
    for _ in range(count):
        measured = _measured(table, _mask(table, tuple(chosen), three, one))
        place = next_layer(measured, predict_layers(measured), table.calls[:, one])
        chosen += [] if place is None else [place]
    return tuple(chosen)


def _mask(table: KernelTable, kernels: tuple[int, ...], pairs: list[int], one: int) -> Mask:
    """Measure these kernels at these pairs, the others at one."""
    seen = np.zeros(table.time_s.shape, dtype=np.bool_)
    seen[:, one] = True
    seen[list(kernels)] = False
    seen[np.ix_(kernels, pairs)] = True
    return seen


def _rows(table: KernelTable, case: _KernelCase) -> Iterator[Row]:
    for predictor, (predicted_s, expected) in _predictions(table, case.seen):
        weights = np.where(case.seen, 0.0, table.total_s)
        errors = np.abs(predicted_s / table.time_s - 1.0)
        yield {
            "predictor": predictor,
            "measured": case.measured,
            "seed": case.seed,
            "measured_share_percent": float(case.seen.mean()) * 100,
            "mape_percent": float(np.average(errors, weights=weights)) * 100,
            "expected_error_percent": None if expected is None else float(np.average(expected, weights=weights)) * 100,
            "bound_share_percent": _bound_share(table, predicted_s) * 100,
        }


def _predictions(table: KernelTable, seen: Mask) -> Iterator[tuple[str, tuple[Floats, Floats | None]]]:
    named = _measured(table, seen)
    unnamed = replace(named, classes=("",) * len(table.names), demand=None)
    for predictor, measured in ((OURS, named), (WITHOUT_NAMES, unnamed)):
        found = predict_layers(measured)
        yield predictor, (found.time_s, found.time_error)
    if (seen.sum(axis=1) >= 3).all():
        yield LINE, (_lines(table, seen), None)
    yield NEAREST, (_nearest(table, seen), None)


def _measured(table: KernelTable, seen: Mask) -> LayerMeasurements:
    return LayerMeasurements(
        names=table.names,
        classes=table.classes,
        sm_mhz=table.sm_mhz,
        mem_mhz=table.mem_mhz,
        time_s=np.where(seen, table.time_s, np.nan),
        energy_j=np.full_like(table.time_s, np.nan),
        demand=table.demand,
    )


def _lines(table: KernelTable, seen: Mask) -> Floats:
    terms = np.column_stack(
        [np.ones_like(table.sm_mhz), table.sm_mhz.max() / table.sm_mhz, table.mem_mhz.max() / table.mem_mhz]
    )
    fits = []
    for time_s, own in zip(table.time_s, seen, strict=True):
        coefficients, _ = nnls(terms[own] / time_s[own, np.newaxis], np.ones(int(own.sum())))
        fits.append(terms @ coefficients)
    return np.array(fits)


def _nearest(table: KernelTable, seen: Mask) -> Floats:
    clocks = _log_clocks(table)
    apart = ((clocks[:, np.newaxis] - clocks) ** 2).sum(axis=2)
    nearest = np.where(seen[:, np.newaxis], apart, np.inf).argmin(axis=2)
    return np.asarray(np.take_along_axis(table.time_s, nearest, axis=1))


def _log_clocks(table: KernelTable) -> Floats:
    return np.log(np.column_stack([table.sm_mhz, table.mem_mhz]))


def bound_by(time_s: Floats, log_clocks: Floats) -> NDArray[np.str_]:
    """(kernels,): "core", "memory" or "neither"; times are (kernels, pairs), clocks (pairs, 2)."""
    terms = np.column_stack([np.ones(len(log_clocks)), log_clocks])
    core, memory = -np.linalg.lstsq(terms, np.log(time_s).T)[0][1:]
    return np.where(core + memory < _INSENSITIVE, "neither", np.where(core > memory, "core", "memory"))


def _bound_share(table: KernelTable, predicted_s: Floats) -> float:
    """Return the share of time whose kernels are bound by what the full table shows."""
    clocks = _log_clocks(table)
    same = bound_by(predicted_s, clocks) == bound_by(table.time_s, clocks)
    return float(np.average(same, weights=table.total_s.sum(axis=1)))


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    figures = {(row["predictor"], row["measured"]): row for row in rows if row["seed"] is None}
    ours, line = figures[OURS, THREE], figures[LINE, THREE]
    return (
        at_most("kernels, error from 3 pairs", ours["mape_percent"], 1.3, unit=" %"),
        at_most(f"kernels, error from 3 pairs over that of {LINE}", ours["mape_percent"] / line["mape_percent"], 1.0),
        at_most("kernels, error from 3 pairs for 1 in 10, else 1", figures[OURS, FEW]["mape_percent"], 3.0, unit=" %"),
        at_least("kernels, time classified as by all pairs", ours["bound_share_percent"], 95.0, unit=" %"),
    )
