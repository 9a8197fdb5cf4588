"""Fit of a GPU of the catalogue to a user's own sweep, with the model that simulates it.

The sweep has the columns that `wattune sweep --csv` writes: workload, sm_mhz, mem_mhz, power_limit_w, time_s, energy_j;
an empty setting is the driver's default. Errors name file, line and column.

Workloads whose phases are known (networks that wattune can make) determine rates and powers. For others, arithmetic,
traffic and waiting are fitted too, as one phase; they still determine how power rises with the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wattune.core.csv_input import SWEEP_COLUMNS, Row, parse_csv
from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog.sheet import Sourced
from wattune.physics.fit.prior import Estimate, Prior, logistic, logit, most_likely
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import power_limit_w
from wattune.physics.spend import tabulate

FEWEST = 5
"""Fewest settings of a workload: four determine the power curve, a fifth checks the fit."""

_TOO_MUCH = 3.0
"""Mean power beyond this many times the highest limit means that the unit is wrong."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One row of a sweep."""

    workload: str
    setting: Setting
    time_s: float
    energy_j: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s


def parse_points(text: str, *, file: str, model: GpuModel, workload: str | None = None) -> tuple[SweepPoint, ...]:
    """Read the rows of one workload or of all; each needs at least `FEWEST` settings."""
    rows = parse_csv(text, file=file, required=SWEEP_COLUMNS)
    points = [_point(row, model) for row in rows if workload in (None, row.text("workload"))]
    if not points:
        known = ", ".join(dict.fromkeys(row.text("workload") for row in rows))
        raise InputError(f"{file} has no workload {workload!r}", hint=f"it has {known}")
    _enough(points, file)
    return tuple(points)


def _enough(points: Iterable[SweepPoint], file: str) -> None:
    settings: dict[str, set[Setting]] = {}
    for point in points:
        settings.setdefault(point.workload, set()).add(point.setting)
    for name, distinct in settings.items():
        if len(distinct) < FEWEST:
            raise InputError(
                f"{file}: {name!r} has {len(distinct)} settings in sm_mhz and power_limit_w, a fit needs {FEWEST}",
                hint=f"measure more, for example with `wattune sweep --points {FEWEST * 2} --csv FILE`",
            )


def _point(row: Row, model: GpuModel) -> SweepPoint:
    setting = row.setting()
    _check_clocks(row, setting, model)
    point = SweepPoint(row.text("workload"), setting, row.positive("time_s"), row.positive("energy_j"))
    most_w = model.power_limits.max_w if model.power_limits else model.default_limit_w
    if point.power_w > _TOO_MUCH * most_w:
        raise row.wrong(
            "energy_j", f"{point.power_w:.0f} W is far beyond the {most_w:g} W of {model.name}: is it in J?"
        )
    return point


def _check_clocks(row: Row, setting: Setting, model: GpuModel) -> None:
    if setting.mem_mhz is not None and setting.mem_mhz not in model.mem_clocks_mhz:
        known = ", ".join(str(mhz) for mhz in model.mem_clocks_mhz)
        raise row.wrong("mem_mhz", f"{model.name} has no memory clock of {setting.mem_mhz} MHz, but {known}")
    table = model.clocks[0 if setting.mem_mhz is None else model.mem_clocks_mhz.index(setting.mem_mhz)]
    if setting.sm_mhz is not None and not table.sm_mhz[0] <= setting.sm_mhz <= table.sm_mhz[-1]:
        span = f"{table.sm_mhz[0]} to {table.sm_mhz[-1]} MHz"
        raise row.wrong("sm_mhz", f"{setting.sm_mhz} MHz lies outside of the {span} of {model.name}")
    limits = model.power_limits
    if setting.power_limit_w is not None and limits and not limits.min_w <= setting.power_limit_w <= limits.max_w:
        span = f"{limits.min_w:g} to {limits.max_w:g} W"
        raise row.wrong("power_limit_w", f"{setting.power_limit_w:g} W lies outside of the {span} of {model.name}")


_JUST_BELOW = 0.999
"""A share of exactly 1 has no logit."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number, under its key in a catalogue file."""

    key: str
    base: float
    sd: float
    """Standard deviation of the fitted value: a logarithm, or a logit where there is a maximum."""
    offset: float = 0.0
    most: float | None = None

    @property
    def prior(self) -> Prior:
        if self.most is not None:
            return Prior(logit(min(self.base / self.most, _JUST_BELOW)), self.sd)
        return Prior(float(np.log(max(self.base - self.offset, 1e-3))), self.sd)

    def value(self, fitted: float) -> float:
        """Convert a fitted value to the number."""
        if self.most is not None:
            return self.most * float(logistic(fitted))
        return self.offset + float(np.exp(fitted))

    def value_sd(self, fitted: float, sd: float) -> float:
        """Return the standard deviation of the number, to first order."""
        return abs(self.value(fitted + sd) - self.value(fitted - sd)) / 2.0


def parameters_of(model: GpuModel, pipes: Iterable[Pipe]) -> tuple[Parameter, ...]:
    """Return the parameters that a sweep with work on these pipes determines."""
    core, memory = model.core, model.memory
    units = sorted({model.unit(pipe) for pipe in pipes}, key=lambda unit: unit.pipe.value)
    return (
        Parameter("core.voltage_knee_mhz", core.voltage_knee_mhz, 0.4, most=float(model.max_mhz)),
        Parameter("core.voltage_ratio", core.voltage_ratio, 0.5, offset=1.0),
        Parameter("core.board_w", core.board_w, 0.5),
        Parameter("core.busy_clock_w_per_ghz", core.busy_clock_w_per_ghz, 0.3),
        Parameter("memory.pj_per_byte", memory.j_per_byte * 1e12, 0.3),
        Parameter("memory.efficiency", memory.efficiency, 0.4, most=1.0),
        *(Parameter(f"unit.{unit.pipe.value}.w_per_ghz", unit.w_per_ghz, 0.5) for unit in units),
        *(Parameter(f"unit.{unit.pipe.value}.efficiency", unit.efficiency, 0.6, most=1.0) for unit in units),
    )


def with_values(model: GpuModel, values: Mapping[str, float]) -> GpuModel:
    """Return the GPU with these values replaced."""
    core = replace(
        model.core,
        voltage_knee_mhz=values["core.voltage_knee_mhz"],
        voltage_ratio=values["core.voltage_ratio"],
        board_w=values["core.board_w"],
        busy_clock_w_per_ghz=values["core.busy_clock_w_per_ghz"],
    )
    memory = replace(
        model.memory, j_per_byte=values["memory.pj_per_byte"] * 1e-12, efficiency=values["memory.efficiency"]
    )
    units = tuple(
        replace(
            unit,
            w_per_ghz=values.get(f"unit.{unit.pipe.value}.w_per_ghz", unit.w_per_ghz),
            efficiency=values.get(f"unit.{unit.pipe.value}.efficiency", unit.efficiency),
        )
        for unit in model.units
    )
    return replace(model, core=core, memory=memory, units=units)


_TIME_SD = 0.01
_POWER_SD = 0.01
"""Careful sweeps repeat to about 1 %."""

_UNKNOWN = (Prior(-0.5, 1.0), Prior(-0.9, 1.0), Prior(-3.0, 1.0))
"""Arithmetic, traffic and waiting of an unknown workload, each as the logarithm of its share of the shortest time."""


class FittedParameter(NamedTuple):
    """A number before and after, with its standard deviation."""

    key: str
    before: float
    value: float
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class ModelFit:
    """The fitted GPU and its predictions for every point of the sweep."""

    model: GpuModel
    workloads: Mapping[str, Workload]
    parameters: tuple[FittedParameter, ...]
    points: tuple[SweepPoint, ...]
    time_s: Floats
    power_w: Floats
    before_time_s: Floats | None
    """Prediction of the catalogue; None where the phases of a workload are not known."""
    before_power_w: Floats | None

    def sourced(self, source: str) -> tuple[Sourced, ...]:
        """Return the fitted values for a catalogue file, with their source."""
        return tuple(
            Sourced(one.key, float(f"{one.value:.6g}"), "measured", f"{source}; ± {one.sd:.3g}")
            for one in self.parameters
        )


def fit_model(model: GpuModel, points: Sequence[SweepPoint], known: Mapping[str, Workload]) -> ModelFit:
    """Fit a GPU to a sweep, given the phases of the workloads that are known."""
    problem = _SweepProblem(model, tuple(points), dict(known))
    estimate = most_likely(problem.errors, problem.priors)
    time_s, power_w = problem.predict(estimate.values)
    before = spent(model, known, points) if len(problem.unknown) == 0 else (None, None)
    return ModelFit(
        model=problem.model_of(estimate.values),
        workloads=problem.workloads_of(estimate.values),
        parameters=problem.fitted(estimate),
        points=problem.points,
        time_s=time_s,
        power_w=power_w,
        before_time_s=before[0],
        before_power_w=before[1],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SweepProblem:
    model: GpuModel
    points: tuple[SweepPoint, ...]
    known: dict[str, Workload]

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.workload for point in self.points if point.workload not in self.known))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        pipes = {phase.pipe for workload in self.known.values() for phase in workload.phases if phase.flops}
        return parameters_of(self.model, pipes | ({Pipe.FP32} if self.unknown else set()))

    @property
    def priors(self) -> tuple[Prior, ...]:
        return (*(parameter.prior for parameter in self.parameters), *_UNKNOWN * len(self.unknown))

    def model_of(self, values: Floats) -> GpuModel:
        pairs = zip(self.parameters, values, strict=False)
        return with_values(self.model, {parameter.key: parameter.value(value) for parameter, value in pairs})

    def workloads_of(self, values: Floats) -> dict[str, Workload]:
        own = values[len(self.parameters) :].reshape(-1, len(_UNKNOWN))
        made = {name: self._unknown(name, shares) for name, shares in zip(self.unknown, own, strict=True)}
        return {**self.known, **made}

    def _unknown(self, name: str, shares: Floats) -> Workload:
        shortest_s = min(point.time_s for point in self.points if point.workload == name)
        compute_s, memory_s, stall_s = np.exp(shares) * shortest_s
        unit, memory = self.model.unit(Pipe.FP32), self.model.memory
        phase = Phase(
            name="all",
            flops=float(compute_s * unit.flops(np.array([float(self.model.max_mhz)]))[0]),
            dram_bytes=float(memory_s * memory.bandwidth_bytes_per_s * memory.efficiency),
            host_stall_s=float(stall_s),
        )
        return Workload(name=name, phases=(phase,))

    def predict(self, values: Floats) -> tuple[Floats, Floats]:
        return spent(self.model_of(values), self.workloads_of(values), self.points)

    def errors(self, values: Floats) -> Floats:
        time_s, power_w = self.predict(values)
        time = np.log(time_s / np.array([point.time_s for point in self.points])) / _TIME_SD
        power = np.log(power_w / np.array([point.power_w for point in self.points])) / _POWER_SD
        return np.concatenate([time, power])

    def fitted(self, estimate: Estimate) -> tuple[FittedParameter, ...]:
        rows = zip(self.parameters, estimate.values, estimate.sd, strict=False)
        return tuple(
            FittedParameter(parameter.key, parameter.base, parameter.value(value), parameter.value_sd(value, sd))
            for parameter, value, sd in rows
        )


def spent(model: GpuModel, workloads: Mapping[str, Workload], points: Sequence[SweepPoint]) -> tuple[Floats, Floats]:
    """Predict seconds and mean watts at the setting of every point."""
    tables = {name: tabulate(model, workload) for name, workload in workloads.items()}
    spent = np.array([_at(model, tables[point.workload], point) for point in points])
    return spent[:, 0], spent[:, 1]


def _at(model: GpuModel, tables: tuple[LoadTable, ...], point: SweepPoint) -> tuple[float, float]:
    """Interpolate between the clocks of the table, so that a limit moves the clock without steps."""
    setting = point.setting
    table = tables[0 if setting.mem_mhz is None else model.mem_clocks_mhz.index(setting.mem_mhz)]
    clocks = np.array(table.sm_mhz, dtype=np.float64)
    requested = clocks[-1] if setting.sm_mhz is None else float(setting.sm_mhz)
    limit_w = power_limit_w(model, setting)
    clock = min(requested, float(np.interp(limit_w, np.maximum.accumulate(table.mean_power_w), clocks)))
    return float(np.interp(clock, clocks, table.iteration_s)), float(np.interp(clock, clocks, table.mean_power_w))
