"""Fit of a GPU of the catalogue to a user's own sweep, with the model that simulates it, and its catalogue file.

Workloads whose phases are known (networks that wattune can make) determine rates and powers. For others, arithmetic,
traffic and waiting are fitted too, as one phase; they still determine how power rises with the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.fit.prior import Estimate, Prior, logistic, logit, most_likely
from wattune.physics.fit.sweep_points import SweepPoint
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.spend import tabulate

_JUST_BELOW = 0.999
"""A share of exactly 1 has no logit."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number, under its key in a catalogue file."""

    key: str
    base: float
    sd: float
    """Of the fitted value: a logarithm, or a logit where there is a maximum."""
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
        """The standard deviation of the number, to first order."""
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
    """By the catalogue; None where the phases of a workload are not known."""
    before_power_w: Floats | None


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
    limit_w = model.default_limit_w if setting.power_limit_w is None else setting.power_limit_w
    clock = min(requested, float(np.interp(limit_w, np.maximum.accumulate(table.mean_power_w), clocks)))
    return float(np.interp(clock, clocks, table.iteration_s)), float(np.interp(clock, clocks, table.mean_power_w))


def fitted_document(
    document: Mapping[str, Any], parameters: Iterable[FittedParameter], *, key: str, source: str
) -> dict[str, Any]:
    """Return a catalogue document with the fitted values, marked measured, under a key of its own."""
    made = deepcopy(dict(document))
    made["key"] = key
    made.pop("aliases", None)
    for parameter in parameters:
        place = made
        *sections, last = parameter.key.split(".")
        for section in sections:
            place = place[section]
        words = f"{source}; ± {parameter.sd:.3g}"
        place[last] = {"value": float(f"{parameter.value:.6g}"), "mark": "measured", "source": words}
    return made


def document_text(document: Mapping[str, Any]) -> str:
    """Write TOML in the layout of the catalogue: plain values, then lists of tables, then sections."""
    lines = [
        "# mark: measured (by others, or by fit to a measured sweep), published (by the maker), estimated (by us)."
    ]
    lines += [f"{name} = {_value(value)}" for name, value in document.items() if not _is_table(value)]
    for name, value in document.items():
        if _is_tables(value):
            lines += [line for table in value for line in ("", f"[[{name}]]", *_entries(table))]
    for name, value in document.items():
        if isinstance(value, Mapping):
            lines += _section(name, value)
    return "\n".join(lines) + "\n"


def _section(name: str, section: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in section.items() if not _holds_entries(value)}
    lines = ["", f"[{name}]", *_entries(plain)] if plain else []
    for key, value in section.items():
        if _holds_entries(value):
            lines += _section(f"{name}.{key}", value)
    return lines


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_tables(value)


def _holds_entries(value: Any) -> bool:
    """Whether a value is a section, such as unit.fp32, and not one sourced number."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(item, Mapping) for item in value.values())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + " }"
    return _text(str(value))


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    plain = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped)
    return f'"{plain}"'
