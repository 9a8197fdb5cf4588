"""The tables of the Zeus traces: an epoch's time and mean power by workload, batch size and power limit, and the
number of epochs that recorded trainings took to reach each of several metrics.

Source: ml-energy/zeus, traces of the NSDI 2023 paper, `summary_power_GPU.csv` and `summary_train.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wattune.core.csv_input import Row, parse_csv
from wattune.physics.gpu_parts import Floats
from wattune_bench.datasets.find import ascending, text_of

COLUMNS = ("dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")
TRAIN_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "run", "target_metric", "target_epoch")
SOURCE = "ml-energy/zeus, traces of the NSDI 2023 paper"


@dataclass(frozen=True, slots=True, eq=False)
class LimitCurve:
    """One workload at one batch size under several power limits, ascending."""

    workload: str
    batch_size: int
    limit_w: Floats
    time_s: Floats
    """Time of an epoch, or of any other fixed amount of work."""
    power_w: Floats
    """Mean over that time."""


@dataclass(frozen=True, slots=True)
class RecordedTraining:
    """One recorded training: the number of epochs after which it reached each metric."""

    workload: str
    batch_size: int
    run: str
    epochs: tuple[tuple[float, int | None], ...]
    """Metrics, ascending, each with the first epoch that reached it, or None."""


def read_power_table(file: Path) -> tuple[LimitCurve, ...]:
    """Read a curve for each workload and batch size, limits ascending."""
    points: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for row in parse_csv(text_of(file), file=str(file), required=COLUMNS):
        curve = points.setdefault((_workload(row), _batch_size(row)), [])
        curve.append((row.positive("power_limit"), row.positive("time_per_epoch"), row.positive("average_power")))
    return tuple(
        LimitCurve(workload, batch_size, *ascending(curve)) for (workload, batch_size), curve in sorted(points.items())
    )


def read_train_table(file: Path) -> tuple[RecordedTraining, ...]:
    """Read the recorded trainings, by workload and batch size."""
    found: dict[tuple[str, int, str], dict[float, int | None]] = {}
    for row in parse_csv(text_of(file), file=str(file), required=TRAIN_COLUMNS):
        # Runs differ by their learning rate too, where the table has one.
        run = f"{row.cells.get('learning_rate', '').strip()} {row.text('run')}".strip()
        training = found.setdefault((_workload(row), _batch_size(row), run), {})
        training[row.positive("target_metric")] = _epoch(row)
    return tuple(
        RecordedTraining(workload, batch_size, run, tuple(sorted(epochs.items())))
        for (workload, batch_size, run), epochs in sorted(found.items())
    )


def _epoch(row: Row) -> int | None:
    """Return the epoch, or None where the cell is empty or nan: the metric was never reached."""
    if row.cells["target_epoch"].strip().lower() in ("", "nan"):
        return None
    return row.whole_or_none("target_epoch")


def _workload(row: Row) -> str:
    return " ".join(row.text(column) for column in ("dataset", "network", "optimizer"))


def _batch_size(row: Row) -> int:
    size = row.whole_or_none("batch_size")
    if size is None:
        raise row.wrong("batch_size", "is empty")
    return size
