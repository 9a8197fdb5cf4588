"""The numbers of a GPU that a sweep can tell, and a GPU with other such numbers.

A parameter is fitted free of bounds: as a logarithm above an offset, or as a logit below a most. Its prior is what the
catalogue says; the standard deviation says how well that is known for a part that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.workload import Pipe
from wattune.physics.fit.prior import Prior, logistic, logit
from wattune.physics.gpu_model import GpuModel

_JUST_BELOW = 0.999
"""A share of exactly 1 has no logit."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number, under its key in a catalogue file."""

    key: str
    base: float
    sd: float
    """Of what is fitted: a logarithm, or a logit where there is a most."""
    offset: float = 0.0
    most: float | None = None

    @property
    def prior(self) -> Prior:
        """Around the catalogue's value."""
        if self.most is not None:
            return Prior(logit(min(self.base / self.most, _JUST_BELOW)), self.sd)
        return Prior(float(np.log(max(self.base - self.offset, 1e-3))), self.sd)

    def value(self, fitted: float) -> float:
        """The number itself."""
        if self.most is not None:
            return self.most * float(logistic(fitted))
        return self.offset + float(np.exp(fitted))

    def value_sd(self, fitted: float, sd: float) -> float:
        """The standard deviation of the number, to first order."""
        return abs(self.value(fitted + sd) - self.value(fitted - sd)) / 2.0


def parameters_of(model: GpuModel, pipes: Iterable[Pipe]) -> tuple[Parameter, ...]:
    """What a sweep with work on these pipes can tell."""
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
    """The GPU with these numbers under their keys, and the catalogue's under all others."""
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
