"""Tables of measured layers: CSV files with the columns layer, sm_mhz, mem_mhz, time_s and energy_j.

A row is one run of one layer at one setting; an empty clock is left to the driver. Layers are listed in the order in
which they run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattune.core.csv_input import Row, csv_text, parse_csv, read_text
from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.levels.layer.costs import Floats, LayerCosts

COLUMNS = ("layer", "sm_mhz", "mem_mhz", "time_s", "energy_j")
_REQUIRED = ("layer", "sm_mhz", "time_s", "energy_j")

_YES = "yes"
_NAMED = 3
"""Missing cells that an error names; it counts the others."""


@dataclass(frozen=True, slots=True)
class LayerCell:
    """One run of one layer at one setting, as measured."""

    layer: str
    setting: Setting
    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True, eq=False)
class LayerTable:
    """Measured layers at some settings; nan where a layer was not measured at a setting."""

    names: tuple[str, ...]
    settings: tuple[Setting, ...]
    """Highest first; the driver's default is above all."""
    time_s: Floats
    """(layers, settings)"""
    energy_j: Floats
    """(layers, settings)"""
    simulated: bool = False

    @classmethod
    def of(cls, cells: Iterable[LayerCell], *, names: Iterable[str] = (), simulated: bool = False) -> LayerTable:
        """Arrange cells in a table; layers in the order of `names`, then in that of the cells."""
        found = tuple(cells)
        rows = {name: row for row, name in enumerate(dict.fromkeys((*names, *(cell.layer for cell in found))))}
        settings = tuple(sorted({cell.setting for cell in found}, reverse=True))
        columns = {setting: column for column, setting in enumerate(settings)}
        time_s, energy_j = (np.full((len(rows), len(columns)), np.nan) for _ in range(2))
        for cell in found:
            place = rows[cell.layer], columns[cell.setting]
            time_s[place], energy_j[place] = cell.time_s, cell.energy_j
        return cls(tuple(rows), settings, time_s, energy_j, simulated)

    @property
    def missing(self) -> tuple[tuple[str, Setting], ...]:
        """Layers and settings that were not measured."""
        return tuple((self.names[row], self.settings[column]) for row, column in np.argwhere(np.isnan(self.time_s)))

    def costs(self, *, workload: str, gpu: str, simulated: bool, waiting_w: float) -> LayerCosts:
        """Return the table as costs to plan with; raise with the missing cells if there are any."""
        missing = self.missing
        if missing:
            listed = "; ".join(f"{layer} at {setting}" for layer, setting in missing[:_NAMED])
            rest = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise InputError(
                f"{len(missing)} of {self.time_s.size} measurements are missing: {listed}{rest}",
                hint="measure them, or let the transfer predict them from those that are there",
            )
        return LayerCosts(
            workload=workload,
            gpu=gpu,
            simulated=simulated,
            names=self.names,
            settings=self.settings,
            time_s=self.time_s,
            energy_j=self.energy_j,
            waiting_w=waiting_w,
        )


def read_table(file: Path) -> LayerTable:
    """Read a table of measured layers, which may have gaps."""
    text = read_text(file, hint=f"its columns are {','.join(COLUMNS)}")
    return parse_table(text, file=str(file))


def parse_table(text: str, *, file: str) -> LayerTable:
    """Parse the text of such a file."""
    lines: dict[tuple[str, Setting], int] = {}
    cells, simulated = [], False
    for row in parse_csv(text, file=file, required=_REQUIRED):
        simulated |= row.cells.get("simulated", "") == _YES
        cell = _cell(row)
        before = lines.setdefault((cell.layer, cell.setting), row.line)
        if before != row.line:
            raise row.wrong("layer", f"{cell.layer} at {cell.setting} is in line {before} already")
        cells.append(cell)
    return LayerTable.of(cells, simulated=simulated)


def cost_table(file: Path, *, gpu: str, waiting_w: float, workload: str | None = None) -> LayerCosts:
    """Read a complete table of measured layers as costs to plan with; raise with the cells that are missing.

    `waiting_w` is the power of the GPU while it waits, at its default setting.
    """
    table = read_table(file)
    return table.costs(workload=workload or file.stem, gpu=gpu, simulated=table.simulated, waiting_w=waiting_w)


def table_text(cells: Iterable[LayerCell], *, simulated: bool = False) -> str:
    """Write measured layers as CSV; those of a simulated GPU have a further column that says so."""
    rows: list[tuple[object, ...]] = [(*COLUMNS, "simulated") if simulated else COLUMNS]
    for cell in cells:
        clocks = ("" if mhz is None else mhz for mhz in (cell.setting.sm_mhz, cell.setting.mem_mhz))
        row = (cell.layer, *clocks, cell.time_s, cell.energy_j)
        rows.append((*row, _YES) if simulated else row)
    return csv_text(rows)


def _cell(row: Row) -> LayerCell:
    setting = Setting(row.whole_or_none("sm_mhz"), row.whole_or_none("mem_mhz"))
    return LayerCell(row.text("layer"), setting, row.positive("time_s"), row.positive("energy_j"))
