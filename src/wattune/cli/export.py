"""`wattune export`: write the history as CSV, JSON or Parquet."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.history import open_history
from wattune.cli.output import check_writable, json_option, print_json, remark, shown, write_bytes
from wattune.core.codec import to_json
from wattune.core.csv_input import csv_text
from wattune.core.errors import InputError, StoreError
from wattune.core.output_file import is_replaced
from wattune.core.setting import Setting
from wattune.store.records import Run, TrialRecord, mean_power_w

if TYPE_CHECKING:
    from wattune.store.sql_store import Store

STDOUT = "-"

Cell = str | float | int | bool | None

_COLUMNS = {
    "runs": "id kind name started_at time_s energy_j energy_error_j power_w device gpus simulated host version note "
    "details",
    "gpus": "run_id started_at uuid gpu simulated time_s energy_j energy_error_j power_w",
    "trials": "run_id started_at workload gpu simulated choice_kind choice sm_mhz mem_mhz power_limit_w time_s "
    "energy_j time_error_s energy_error_j power_w",
    "traces": "run_id started_at gpu simulated samples duration_s mean_power_w min_power_w max_power_w p95_power_w "
    "mean_sm_mhz mean_mem_mhz refresh_s",
}
_BOOLEANS, _NUMBERS, _UNITS = ("simulated",), ("gpus", "samples", "sm_mhz", "mem_mhz"), ("_s", "_j", "_w", "_mhz")


@dataclass(frozen=True, slots=True)
class FlatTable:
    """Rows of plain values by column; missing values are None."""

    columns: list[str]
    rows: list[dict[str, Cell]]


@click.command()
@click.option(
    "--format", "format_", type=click.Choice(["csv", "json", "parquet"]), help="Default: by the name of FILE, else csv."
)
@click.option(
    "--what",
    type=click.Choice(list(_COLUMNS)),
    default="runs",
    show_default=True,
    help="What to export: runs, their GPUs, their trials, or summaries of power traces.",
)
@click.option("--out", metavar="FILE", default=STDOUT, help="The file to write; standard output without it or with -.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
def command(format_: str | None, what: str, out: str, force: bool, as_json: bool) -> None:
    """Write the history as CSV, JSON or Parquet.

    FILE is written completely or not at all. --json prints what was written; without --out it is the same as --format
    json.
    """
    chosen = _chosen_format(format_, out, as_json)
    if out == STDOUT and chosen == "parquet":
        raise click.UsageError("Parquet goes to a file: give --out FILE.parquet")
    if out != STDOUT:
        check_writable(Path(out))
        _refuse_existing(Path(out), force)
    table = flat_table(open_history(), what)
    content, rows = FORMATS[chosen](table), len(table.rows)
    if out == STDOUT:
        click.echo(shown(content.decode()) if sys.stdout.isatty() else content, nl=False)
        return
    write_bytes(Path(out), content)
    if as_json:
        print_json({"file": out, "format": chosen, "what": what, "rows": rows})
    else:
        remark(f"wrote {rows} rows of {what} to {out}")


def _chosen_format(format_: str | None, out: str, as_json: bool) -> str:
    if out == STDOUT and as_json:
        if format_ not in (None, "json"):
            raise click.UsageError(f"--json and --format {format_} cannot share standard output; give --out FILE")
        return "json"
    suffix = Path(out).suffix.lower().removeprefix(".")
    return format_ or (suffix if suffix in ("csv", "json", "parquet") else "csv")


def _refuse_existing(path: Path, force: bool) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint=f"name a file in it: {path / 'history.csv'}")
    if path.exists() and is_replaced(path) and not force:
        raise InputError(f"{path} exists already", hint="replace it with --force, or name another file")


def flat_table(store: Store, what: str) -> FlatTable:
    """Return a row per run or GPU, newest first, or per trial or trace summary, oldest first."""
    columns = _COLUMNS[what].split()
    records: list[tuple[Any, dict[str, Any]]]
    match what:
        case "runs":
            records = [(run, _run_cells(run)) for run in store.runs()]
        case "gpus":
            records = [(gpu, _of_run(run) | {"gpu": gpu.name}) for run in store.runs() for gpu in run.gpus]
        case "trials":
            records = [(trial, _of_run(run) | _trial_cells(trial)) for run, trial in store.trial_records()]
        case _:
            records = [(trace, _of_run(run)) for run, trace in store.traces()]
    rows = [
        {name: derived[name] if name in derived else getattr(record, name) for name in columns}
        for record, derived in records
    ]
    return FlatTable(columns, rows)


def _run_cells(run: Run) -> dict[str, Any]:
    return _of_run(run) | {"gpus": len(run.gpus), "details": json.dumps(dict(run.details))}


def _trial_cells(trial: TrialRecord) -> dict[str, Any]:
    cells: dict[str, Any] = to_json(trial.setting or Setting()) | to_json(trial.cost)
    power_w = mean_power_w(trial.cost.energy_j, trial.cost.time_s)
    return cells | {"choice": json.dumps(dict(trial.choice)), "power_w": power_w}


def _of_run(run: Run) -> dict[str, Any]:
    return {"run_id": run.id, "started_at": run.started_at.isoformat()}


def csv_bytes(table: FlatTable) -> bytes:
    """Format the table as CSV: a header, empty fields for unknown values, true and false in lower case.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    return csv_text([table.columns, *(map(_field, row.values()) for row in table.rows)]).encode("utf-8", "replace")


def json_bytes(table: FlatTable) -> bytes:
    """Format the table as one JSON document: `{"columns": [...], "rows": [{...}, ...]}`."""
    return json.dumps(asdict(table), indent=2, allow_nan=False).encode() + b"\n"


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
    schema = pyarrow.schema([(name, types[_kind(name)]) for name in table.columns])
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table.rows, schema=schema), sink)
    return sink.getvalue()


FORMATS: Mapping[str, Callable[[FlatTable], bytes]] = {"csv": csv_bytes, "json": json_bytes, "parquet": parquet_bytes}


def _kind(column: str) -> type:
    if column in _BOOLEANS:
        return bool
    if column in _NUMBERS:
        return int
    return float if column.endswith(_UNITS) else str


def _field(cell: Cell) -> Cell:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return cell
