"""Overlap sweeps of Kareus: a partition with its communication at many SM counts, block sizes and windows.

Source: ml-energy/kareus, history of the repository. Repeats have the columns "0:time (s)", "0:total energy (J)" and so
on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from wattune.core.csv_input import Row, parse_csv
from wattune.physics.fit.overlap_curve import OverlapSettings
from wattune.physics.gpu_parts import Floats
from wattune_bench.datasets.find import text_of

COLUMNS = ("overlap_start", "overlap_end", "comm_sm_number", "comm_block_size", "0:time (s)", "0:total energy (J)")
SOURCE = "ml-energy/kareus, history of the repository"


@dataclass(frozen=True, slots=True, eq=False)
class OverlapSweep:
    """Means over the repeats, a row per setting."""

    settings: OverlapSettings
    time_s: Floats
    energy_j: Floats


def read_overlap_sweep(file: Path) -> OverlapSweep:
    """Read the sweep in a file."""
    rows = parse_csv(text_of(file), file=str(file), required=COLUMNS)
    settings = OverlapSettings(
        start=np.array([_edge(row, "overlap_start") for row in rows]),
        end=np.array([_edge(row, "overlap_end") for row in rows]),
        comm_sms=np.array([row.positive("comm_sm_number") for row in rows]),
        comm_block=np.array([row.positive("comm_block_size") for row in rows]),
    )
    time_s, energy_j = ([_mean(row, quantity) for row in rows] for quantity in ("time (s)", "total energy (J)"))
    return OverlapSweep(settings, np.array(time_s), np.array(energy_j))


def _edge(row: Row, column: str) -> float:
    """Read the place of an operation, or -1."""
    text = row.text(column)
    try:
        place = int(text)
    except ValueError:
        raise row.wrong(column, f"{text!r} is not a whole number") from None
    if not -1 <= place <= 1000:
        raise row.wrong(column, f"{place} is not the place of an operation, nor -1 for none")
    return float(place)


def _mean(row: Row, quantity: str) -> float:
    columns = [column for column in row.cells if column.partition(":")[2] == quantity]
    return fmean(row.positive(column) for column in columns)
