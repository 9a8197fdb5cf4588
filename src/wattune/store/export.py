"""The history as flat tables for export, one column per quantity."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattune.core.codec import to_json
from wattune.core.errors import StoreError
from wattune.core.setting import Setting
from wattune.store.protocol import Store
from wattune.store.records import Run, RunGpu, TraceSummary, TrialRecord, mean_power_w

Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True)
class FlatTable:
    """Rows of plain values; `columns` names each column and its type, and missing values are None."""

    columns: Mapping[str, type]
    rows: tuple[tuple[Cell, ...], ...]


RUN_COLUMNS: Mapping[str, type] = {
    "id": str,
    "kind": str,
    "name": str,
    "started_at": str,
    "time_s": float,
    "energy_j": float,
    "energy_error_j": float,
    "power_w": float,
    "device": str,
    "gpus": int,
    "simulated": bool,
    "host": str,
    "version": str,
    "note": str,
    "details": str,
}
GPU_COLUMNS: Mapping[str, type] = {
    "run_id": str,
    "started_at": str,
    "uuid": str,
    "gpu": str,
    "simulated": bool,
    "time_s": float,
    "energy_j": float,
    "energy_error_j": float,
    "power_w": float,
}
TRIAL_COLUMNS: Mapping[str, type] = {
    "run_id": str,
    "started_at": str,
    "workload": str,
    "gpu": str,
    "simulated": bool,
    "choice_kind": str,
    "choice": str,
    "sm_mhz": int,
    "mem_mhz": int,
    "power_limit_w": float,
    "time_s": float,
    "energy_j": float,
    "time_error_s": float,
    "energy_error_j": float,
    "power_w": float,
}
TRACE_COLUMNS: Mapping[str, type] = {
    "run_id": str,
    "started_at": str,
    "gpu": str,
    "simulated": bool,
    "samples": int,
    "duration_s": float,
    "mean_power_w": float,
    "min_power_w": float,
    "max_power_w": float,
    "p95_power_w": float,
    "mean_sm_mhz": float,
    "mean_mem_mhz": float,
    "refresh_s": float,
}


def flat_runs(store: Store) -> FlatTable:
    """Return a row per run, newest first."""
    return FlatTable(RUN_COLUMNS, tuple(_run_row(run) for run in store.runs()))


def flat_gpus(store: Store) -> FlatTable:
    """Return a row per GPU of every run, newest first."""
    return FlatTable(GPU_COLUMNS, tuple(_gpu_row(run, gpu) for run in store.runs() for gpu in run.gpus))


def flat_trials(store: Store) -> FlatTable:
    """Return a row per trial, oldest first; its setting is in the columns that a sweep CSV has too."""
    return FlatTable(TRIAL_COLUMNS, tuple(_trial_row(run, trial) for run, trial in store.trial_records()))


def flat_traces(store: Store) -> FlatTable:
    """Return a row per trace summary, oldest first."""
    return FlatTable(TRACE_COLUMNS, tuple(_trace_row(run, trace) for run, trace in store.traces()))


FLATTENERS: Mapping[str, Callable[[Store], FlatTable]] = {
    "runs": flat_runs,
    "gpus": flat_gpus,
    "trials": flat_trials,
    "traces": flat_traces,
}


def _run_row(run: Run) -> tuple[Cell, ...]:
    derived: dict[str, Cell] = {
        "started_at": run.started_at.isoformat(),
        "gpus": len(run.gpus),
        "details": json.dumps(dict(run.details)),
    }
    return _row(RUN_COLUMNS, run, derived)


def _gpu_row(run: Run, gpu: RunGpu) -> tuple[Cell, ...]:
    return _row(GPU_COLUMNS, gpu, _of_run(run) | {"gpu": gpu.name})


def _trace_row(run: Run, trace: TraceSummary) -> tuple[Cell, ...]:
    return _row(TRACE_COLUMNS, trace, _of_run(run))


def _trial_row(run: Run, trial: TrialRecord) -> tuple[Cell, ...]:
    cost = trial.cost
    derived = _of_run(run) | to_json(trial.setting or Setting()) | to_json(cost)
    derived |= {"choice": json.dumps(dict(trial.choice)), "power_w": mean_power_w(cost.energy_j, cost.time_s)}
    return _row(TRIAL_COLUMNS, trial, derived)


def _of_run(run: Run) -> dict[str, Cell]:
    return {"run_id": run.id, "started_at": run.started_at.isoformat()}


def _row(columns: Mapping[str, type], record: Any, derived: Mapping[str, Cell]) -> tuple[Cell, ...]:
    """Return a cell per column: the derived value, otherwise the record's field of that name."""
    return tuple(derived[name] if name in derived else getattr(record, name) for name in columns)


def csv_bytes(table: FlatTable) -> bytes:
    """Format the table as CSV: a header, empty fields for unknown values, true and false in lower case."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_field(cell) for cell in row] for row in table.rows)
    return text.getvalue().encode()


def json_bytes(table: FlatTable) -> bytes:
    """Format the table as one JSON document: `{"columns": [...], "rows": [{...}, ...]}`."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    document = {"columns": list(table.columns), "rows": rows}
    return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"


def parquet_bytes(table: FlatTable) -> bytes:
    """Format the table as Parquet; every column has its type even if no row has a value."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise StoreError(
            "Parquet needs the pyarrow package, which is not installed", hint="pip install 'wattune[parquet]'"
        ) from None
    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in table.columns.items()])
    columns = {name: [row[place] for row in table.rows] for place, name in enumerate(table.columns)}
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), sink)
    return sink.getvalue()


FORMATS: Mapping[str, Callable[[FlatTable], bytes]] = {
    "csv": csv_bytes,
    "json": json_bytes,
    "parquet": parquet_bytes,
}


def _field(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return repr(cell) if isinstance(cell, float) else str(cell)
