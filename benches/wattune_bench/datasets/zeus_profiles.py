"""Power-limit sweeps of Zeus's optimizer: one window of 40 steps per limit, with the energy of every GPU.

Source: ml-energy/zeus, profile data of its tests; files are named GPU+NETWORK+gpuN[,M].csv. One short window per limit
is noisy: repeated limits differ by up to 10 %.
"""

from __future__ import annotations

import re
from pathlib import Path

from wattune.core.csv_input import Row, parse_csv
from wattune_bench.datasets.find import ascending, text_of
from wattune_bench.datasets.zeus_tables import LimitCurve

COLUMNS = ("start_time", "window_name", "elapsed_time", "gpu0_energy")
SOURCE = "ml-energy/zeus, profile data of its tests"

_LIMIT = re.compile(r"_(\d+(?:\.\d+)?)$")
_ENERGY = re.compile(r"gpu\d+_energy$")


def read_limit_profile(file: Path) -> LimitCurve:
    """Read the sweep as a curve: seconds of a window, and mean power of one GPU."""
    points = []
    for row in parse_csv(text_of(file), file=str(file), required=COLUMNS):
        limit = _LIMIT.search(row.text("window_name"))
        if limit is None:
            raise row.wrong("window_name", "does not end in _ and a power limit")
        elapsed_s = row.positive("elapsed_time")
        points.append((float(limit.group(1)), elapsed_s, _energy_j(row) / elapsed_s))
    return LimitCurve(file.stem, 1, *ascending(points))


def _energy_j(row: Row) -> float:
    """Return the mean over the GPUs."""
    energies = [row.positive(column) for column in row.cells if _ENERGY.match(column)]
    return sum(energies) / len(energies)
