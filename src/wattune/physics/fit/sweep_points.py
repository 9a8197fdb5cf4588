"""Reads a user's own sweep and checks it against its GPU; errors name file, line and column.

Columns as `wattune sweep --csv` writes them: workload, sm_mhz, mem_mhz, power_limit_w, time_s, energy_j; an empty
setting is the driver's default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wattune.core.csv_input import Row, parse_csv
from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.physics.gpu_model import GpuModel

COLUMNS = ("workload", "sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j")
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
    rows = parse_csv(text, file=file, required=COLUMNS)
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
    setting = Setting(row.whole_or_none("sm_mhz"), row.whole_or_none("mem_mhz"), row.positive_or_none("power_limit_w"))
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
