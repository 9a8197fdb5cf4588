"""A GPU played from a table of measurements: it has the settings that were measured, and no others.

Its numbers are recorded, so it counts as simulated, and its name includes the file. Time passes when work is run.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path
from statistics import fmean

import numpy as np

from wattune.core.csv_input import SWEEP_COLUMNS, parse_csv, read_text
from wattune.core.errors import InputError, SettingRefused
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload


@dataclass(frozen=True)
class SweepTable:
    """Costs of one iteration, by workload and setting."""

    file: str
    costs: dict[str, dict[Setting, Measurement]]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting that was measured with any workload, lowest first."""
        return tuple(sorted(set(chain.from_iterable(self.costs.values()))))

    @property
    def clocks(self) -> tuple[ClockTable, ...]:
        """The clocks that were measured; rows without a memory clock belong to the highest one."""
        mem_mhz = sorted({setting.mem_mhz for setting in self.settings if setting.mem_mhz is not None}, reverse=True)
        default = mem_mhz[0] if mem_mhz else None
        rows: dict[int | None, set[int]] = {mhz: set() for mhz in mem_mhz}
        for setting in self.settings:
            if setting.sm_mhz is not None:
                rows.setdefault(setting.mem_mhz or default, set()).add(setting.sm_mhz)
        return tuple(ClockTable(mhz, tuple(sorted(sm_mhz))) for mhz, sm_mhz in rows.items())

    @property
    def power_limits(self) -> PowerLimits | None:
        """The range of limits that were measured, the highest being the default; None if there are none."""
        limits_w = [setting.power_limit_w for setting in self.settings if setting.power_limit_w is not None]
        return PowerLimits(min(limits_w), max(limits_w), max(limits_w)) if limits_w else None

    def measured_as(self, setting: Setting) -> Setting | None:
        """Return the row's setting that this one corresponds to, or None if it was not measured.

        A knob left to the driver corresponds to rows that leave it to the driver too or, if there are none, to the
        highest clock or limit that was measured: settings are ordered so that this is the largest that matches.
        """

        def agrees(known: Setting) -> bool:
            return (
                setting.sm_mhz in (None, known.sm_mhz)
                and setting.mem_mhz in (None, known.mem_mhz)
                and setting.power_limit_w in (None, known.power_limit_w)
            )

        return next(filter(agrees, reversed(self.settings)), None)


def read_sweep(file: Path) -> SweepTable:
    """Read a table; an error names the file, the line and the column."""
    text = read_text(file, hint="give a sweep CSV, as `wattune sweep --csv` writes")
    return parse_sweep(text, file=str(file))


def parse_sweep(text: str, *, file: str) -> SweepTable:
    """Parse a table from CSV text."""
    measured: dict[str, dict[Setting, list[tuple[float, float]]]] = {}
    for row in parse_csv(text, file=file, required=SWEEP_COLUMNS):
        repeats = measured.setdefault(row.text("workload"), {}).setdefault(row.setting(), [])
        repeats.append((row.positive("time_s"), row.positive("energy_j")))
    costs = {
        workload: {setting: Measurement(*map(fmean, zip(*repeats, strict=True))) for setting, repeats in rows.items()}
        for workload, rows in measured.items()
    }
    return SweepTable(file, costs)


class TableGpu:
    """A GPU played from a table of measurements.

    `noise` is the relative standard deviation of the time and energy of each run.
    """

    def __init__(self, table: SweepTable, *, noise: float = 0.0, seed: int = 0) -> None:
        if not 0 <= noise < 0.5:
            raise InputError(f"noise is a share from 0 to 0.5, not {noise}", hint="0.01 is a noise of 1 %")
        self._table = table
        self.spec = _spec(table)
        self._noise = noise
        self._random = np.random.default_rng(seed)
        # The counter of a table moves with every iteration, so there is nothing to wait for.
        self.refresh: Refresh | None = Refresh(1e-6, 0.0, 0.0, 1e-6)
        self._setting = DRIVER_DEFAULT
        self._measured = table.measured_as(DRIVER_DEFAULT)
        self._count = Count(0.0, 0.0)
        self._power_w: float | None = None

    @classmethod
    def load(cls, file: Path, *, noise: float = 0.0, seed: int = 0) -> TableGpu:
        return cls(read_sweep(file), noise=noise, seed=seed)

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(self._table.costs)

    @property
    def settings(self) -> tuple[Setting, ...]:
        return self._table.settings

    @property
    def setting(self) -> Setting:
        return self._setting

    def read(self) -> Reading:
        """Read the counter, the mean power of the last run and the limit; a table has no effective clocks."""
        return Reading(
            time_s=self._count.time_s,
            energy_j=self._count.energy_j,
            power_w=self._power_w,
            power_limit_w=self._setting.power_limit_w,
        )

    def count(self) -> Count:
        return self._count

    def apply(self, setting: Setting) -> None:
        self.spec.check(setting)
        measured = self._table.measured_as(setting)
        if measured is None:
            raise SettingRefused(f"{self._table.file} has no row for {setting}", hint=_nearest(setting, self.settings))
        self._setting, self._measured = setting, measured

    def restore(self) -> None:
        self.apply(DRIVER_DEFAULT)

    def run(self, workload: Workload | str, *, iterations: float = 1) -> None:
        if not iterations > 0:
            raise InputError(f"the number of iterations is above 0, not {iterations}", hint="run at least one")
        cost = self._cost(workload if isinstance(workload, str) else workload.name)
        slower, costlier = np.maximum(1.0 + self._noise * self._random.standard_normal(2), 0.1)
        time_s, energy_j = cost.time_s * iterations * slower, cost.energy_j * iterations * costlier
        self._count = Count(self._count.time_s + float(time_s), self._count.energy_j + float(energy_j))
        self._power_w = float(energy_j / time_s)

    def prepare_workload(self, name: str | None) -> tuple[str, Callable[[int], Measurement]]:
        workload = name or self.workloads[0]

        def measure(iterations: int) -> Measurement:
            before = self.count()
            self.run(workload, iterations=iterations)
            return Measurement.between(before, self.count())

        return workload, measure

    def _cost(self, workload: str) -> Measurement:
        costs = self._table.costs.get(workload)
        if costs is None:
            near = difflib.get_close_matches(workload, self.workloads, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"{self._table.file} has no workload {workload!r}", hint=f"{guess}it has {', '.join(self.workloads)}"
            )
        if self._measured not in costs:
            raise InputError(
                f"{self._table.file} has no row for {workload} at {self._setting}", hint=_nearest(self._setting, costs)
            )
        return costs[self._measured]


def _spec(table: SweepTable) -> GpuSpec:
    file = Path(table.file)
    clocks = table.clocks
    fingerprint = hashlib.sha256(repr(sorted(table.costs.items())).encode()).hexdigest()
    return GpuSpec(
        name=f"{file.stem} (played from {file.name})",
        uuid=f"TABLE-{fingerprint[:32]}",
        clocks=clocks,
        power_limits=table.power_limits,
        can_lock_mem=len(clocks) > 1,
        simulated=True,
    )


def _nearest(setting: Setting, known: Iterable[Setting]) -> str:
    """Name up to three settings of the table that are closest to this one."""

    def distance(other: Setting) -> tuple[float, ...]:
        pairs = zip(astuple(setting), astuple(other), strict=True)
        return tuple(0.0 if a == b else inf if a is None or b is None else abs(a - b) for a, b in pairs)

    return f"nearest in the table: {'; '.join(str(near) for near in sorted(known, key=distance)[:3])}"
