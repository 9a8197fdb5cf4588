"""The power tables of the Zeus traces: an epoch's time and mean power by workload, batch size and power limit.

Source: ml-energy/zeus, traces of the NSDI 2023 paper, `summary_power_GPU.csv`.
"""

from __future__ import annotations

from pathlib import Path

from wattune.benchmarks.datasets.find import ascending, text_of
from wattune.core.csv_input import Row, parse_csv
from wattune.physics.fit.limit_prior import LimitCurve

COLUMNS = ("dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")
SOURCE = "ml-energy/zeus, traces of the NSDI 2023 paper"


def read_power_table(file: Path) -> tuple[LimitCurve, ...]:
    """A curve for each workload and batch size, limits ascending."""
    points: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for row in parse_csv(text_of(file), file=str(file), required=COLUMNS):
        curve = points.setdefault((_workload(row), _batch_size(row)), [])
        curve.append((row.positive("power_limit"), row.positive("time_per_epoch"), row.positive("average_power")))
    return tuple(
        LimitCurve(workload, batch_size, *ascending(curve)) for (workload, batch_size), curve in sorted(points.items())
    )


def _workload(row: Row) -> str:
    return " ".join(row.text(column) for column in ("dataset", "network", "optimizer"))


def _batch_size(row: Row) -> int:
    size = row.whole_or_none("batch_size")
    if size is None:
        raise row.wrong("batch_size", "is empty")
    return size
