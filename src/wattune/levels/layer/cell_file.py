"""The file to which a measurement of layers is appended, so that a run that was stopped can continue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from wattune.control.record_file import appended_records, read_records
from wattune.levels.layer.table_file import LayerCell

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFileHeader:
    """What a file of cells is about."""

    format: int = FORMAT
    workload: str
    gpu: str
    simulated: bool
    layers: tuple[str, ...]


def read_cells(file: Path, header: CellFileHeader) -> tuple[LayerCell, ...]:
    """Read the cells of an earlier run of the same measurement; none where there is no file."""
    return read_records(file, header, LayerCell)


def appended(file: Path, header: CellFileHeader) -> AbstractContextManager[Callable[[LayerCell], None]]:
    """Open the file; the function that its block gets appends a cell, which is on disk when it returns."""
    return appended_records(file, header)
