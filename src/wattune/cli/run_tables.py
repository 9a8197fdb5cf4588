"""Runs of the history as tables for the terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from wattune.render.quantity import UNKNOWN, number
from wattune.store.records import FullRun, Run, mean_power_w

NOT_MEASURED = "not measured"
SHOWN_ID = 8
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that would move the cursor or break the line."""


def run_table(runs: tuple[Run, ...], *, width: int) -> Table:
    """Return a line per run: the name is cut to fit, and only the device may wrap, since it contains "simulated"."""
    rows = [_run_row(run) for run in runs]
    table = _table("id", "when", "kind", "name", "device", numbers=("joules", "watts", "seconds"))
    table.collapse_padding = True
    for column in table.columns:
        column.no_wrap = column.header != "device"
    name, device = table.columns[3:5]
    widths = [
        max(map(cell_len, cells)) for cells in zip(*rows, ("",) * 5 + ("joules", "watts", "seconds"), strict=True)
    ]
    spare = width - sum(widths) + widths[3] + widths[4] - len(widths) + 1
    device.min_width = device.max_width = min(widths[4], max(spare - 24, len("(simulated)")))
    name.max_width = max(spare - device.max_width, 8)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _run_row(run: Run) -> tuple[str, ...]:
    texts = (run.id[:SHOWN_ID], _when(run)[:-3], run.kind, run.name, _device(run))
    figures = (run.energy_j, run.power_w, run.time_s)
    return (*map(one_line, texts), *(number(figure, digits=4) for figure in figures))


def run_facts(run: Run) -> Table:
    """Return the facts of a run, a line each."""
    table = Table.grid(padding=(0, 2))
    facts = {
        "id": run.id,
        "kind": run.kind,
        "name": run.name,
        "when": _when(run),
        "host": run.host,
        "device": _device(run),
        "seconds": _number(run.time_s),
        "joules": _with_error(run.energy_j, run.energy_error_j),
        "watts": _number(run.power_w),
        "source": "simulated" if run.simulated else "measured",
        "wattune": run.version,
        "note": run.note,
    } | {name: _detail(value) for name, value in run.details.items()}
    for name, value in facts.items():
        if value is not None:
            table.add_row(_cell(name), _cell(value))
    return table


def gpu_table(full: FullRun) -> Table:
    """Return a line per GPU of the run."""
    table = _table("GPU", "uuid", numbers=("joules", "watts", "seconds"))
    for gpu in full.run.gpus:
        energy = _with_error(gpu.energy_j, gpu.energy_error_j)
        table.add_row(_cell(gpu.label), _cell(gpu.uuid), energy, _number(gpu.power_w), _number(gpu.time_s))
    return table


def trial_table(full: FullRun) -> Table:
    """Return a line per trial of the run."""
    table = _table("workload", "GPU", "choice", numbers=("joules", "watts", "seconds"))
    for trial in full.trials:
        choice = trial.choice_kind if trial.setting is None else str(trial.setting)
        cost = trial.cost
        power_w = mean_power_w(cost.energy_j, cost.time_s)
        energy = _with_error(cost.energy_j, cost.energy_error_j)
        texts = (trial.workload, trial.label, choice)
        table.add_row(*map(_cell, texts), energy, _number(power_w), _number(cost.time_s))
    return table


def trace_table(full: FullRun) -> Table:
    """Return a line per power trace of the run."""
    table = _table("GPU", numbers=("samples", "seconds", "mean W", "min W", "max W", "95 % W", "core MHz", "refresh s"))
    for trace in full.traces:
        label = f"{trace.gpu} (simulated)" if trace.simulated else trace.gpu
        powers_w = (trace.mean_power_w, trace.min_power_w, trace.max_power_w, trace.p95_power_w)
        figures = (trace.duration_s, *powers_w, trace.mean_sm_mhz, trace.refresh_s)
        table.add_row(_cell(label), str(trace.samples), *map(_number, figures))
    return table


def _table(*texts: str, numbers: tuple[str, ...]) -> Table:
    table = Table(*texts, box=None, pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _device(run: Run) -> str:
    """Return the run's GPUs, marked where the run is simulated."""
    device = run.device or "none"
    return device if not run.simulated or "simulated" in device else f"{device} (simulated)"


def _when(run: Run) -> str:
    return run.started_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None) -> str:
    return NOT_MEASURED if value is None else number(value, digits=4)


def _with_error(value: float | None, error: float | None) -> str:
    return _number(value) if value is None or error is None else f"{_number(value)} ± {number(error, digits=2)}"


def one_line(text: str) -> str:
    """Return the text without line breaks and terminal controls, which a command line may contain."""
    return "".join(" " if unicodedata.category(letter) in _UNFIT else letter for letter in text)


def _detail(value: Any) -> str:
    return UNKNOWN if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(text: str) -> Text:
    return Text(one_line(text))
