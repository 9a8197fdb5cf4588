"""`wattune history`: list earlier runs as a table, or show one."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from wattune.cli.output import console, json_option, print_json, print_line, remark
from wattune.config import load_config
from wattune.core.errors import StoreError
from wattune.core.gpu_spec import labelled
from wattune.core.tariff import NO_FOOTPRINT, Footprint, Tariff
from wattune.render.quantity import UNKNOWN, counted, duration, footprint_words, number, percent, quantity
from wattune.store.records import FullRun, Run, full_run_to_json, mean_power_w, run_to_json

if TYPE_CHECKING:
    from wattune.store.fallback import Recovered
    from wattune.store.sql_store import Store


NOT_MEASURED = "not measured"
SHOWN_ID = 8
_ROOMY = 40
"""Columns for name and device that are enough, even where they are cut."""
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that would move the cursor or break the line."""


def run_table(runs: tuple[Run, ...], *, width: int) -> Table:
    """Return a line per run; name and device are cut to fit, but never the word "simulated".

    Where they would be cut, power is left out: it is energy over time.
    """
    heads = ["id", "when", "kind", "energy", "power", "time", "Δ energy"]
    fixed = [_fixed_cells(run) for run in runs]
    names = max(cell_len(one_line(run.name)) for run in runs)
    devices = max(cell_len(one_line(_device(run))) for run in runs)
    taken = _taken(heads, fixed)
    if width - taken < min(names + devices, _ROOMY):
        place = heads.index("power")
        heads.pop(place)
        fixed = [(*cells[:place], *cells[place + 1 :]) for cells in fixed]
        taken = _taken(heads, fixed)
    table = _table(*heads[:3], "name", "device", numbers=tuple(heads[3:]))
    spare = max(width - taken, len("name") + len("simulated"))
    room = min(devices, max(spare - names, 5 * spare // 9, len("simulated")))
    table.collapse_padding = True
    for column in table.columns:
        column.no_wrap = True
    table.columns[3].max_width = max(spare - room, 4)
    for run, cells in zip(runs, fixed, strict=True):
        row = (*cells[:3], one_line(run.name), _short_device(run, room), *cells[3:])
        table.add_row(*(Text(cell) for cell in row))
    return table


def _taken(heads: Sequence[str], fixed: Sequence[tuple[str, ...]]) -> int:
    """Return the columns of a terminal that all but name and device take, with a space between all."""
    return sum(max(map(cell_len, cells)) for cells in zip(heads, *fixed, strict=True)) + len(heads) + 1


def _fixed_cells(run: Run) -> tuple[str, ...]:
    """Return the cells of a run that are never cut: id, when, kind, energy, power, time, change of energy."""
    when = run.started_at.astimezone()
    this_year = when.year == datetime.now().astimezone().year
    saving = run.details.get("saving_percent")
    return (
        run.id[:SHOWN_ID],
        when.strftime("%m-%d %H:%M" if this_year else "%Y-%m-%d"),
        one_line(run.kind),
        quantity(run.energy_j, "J"),
        quantity(run.power_w, "W"),
        duration(run.time_s),
        percent(-saving) if isinstance(saving, int | float) else UNKNOWN,
    )


def _short_device(run: Run, room: int) -> str:
    """Return the device in at most `room` columns: what must be cut is cut behind the word "simulated"."""
    whole = one_line(_device(run))
    if cell_len(whole) <= room:
        return whole
    short = whole.replace(" (simulated)", "").replace("NVIDIA ", "")
    short = f"simulated {short}" if run.simulated else short
    return short if cell_len(short) <= room else set_cell_size(short, room - 1).rstrip() + ("…" if room > 9 else "")


def run_facts(run: Run, tariff: Tariff) -> Table:
    """Return the facts of a run, a line each."""
    table = Table.grid(padding=(0, 2))
    footprint = _footprint(run, tariff)
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
        "energy": None if footprint is None else footprint_words(footprint),
        "source": "simulated" if run.simulated else "measured",
        "wattune": run.version,
        "note": run.note,
    } | {name: "unknown" if _is_unknown(name, value) else _detail(value) for name, value in run.details.items()}
    for name, value in facts.items():
        if value is not None:
            table.add_row(_cell(name), _cell(value))
    return table


def _footprint(run: Run, tariff: Tariff) -> Footprint | None:
    if run.energy_j is None:
        return None
    return tariff.footprint(run.energy_j, started_at=run.started_at, time_s=run.time_s)


def _document(run: Run, tariff: Tariff) -> dict[str, Any]:
    footprint = _footprint(run, tariff)
    return run_to_json(run) | (NO_FOOTPRINT if footprint is None else asdict(footprint))


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
        powers_w = (trace.mean_power_w, trace.min_power_w, trace.max_power_w, trace.p95_power_w)
        figures = (trace.duration_s, *powers_w, trace.mean_sm_mhz, trace.refresh_s)
        table.add_row(_cell(labelled(trace.gpu, trace.simulated)), str(trace.samples), *map(_number, figures))
    return table


def _table(*texts: str, numbers: tuple[str, ...]) -> Table:
    table = Table(*texts, box=None, pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _is_unknown(name: str, value: object) -> bool:
    """Return whether a detail is a share that was not measured; other details that are missing are left out."""
    return value is None and name.endswith("_percent") and name != "promise_percent"


def _device(run: Run) -> str:
    return labelled(run.device or "none", run.simulated)


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


_AGO = re.compile(r"(\d+)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a date, a date with time, or an age (30m, 12h, 7d, 2w); without a zone it is local."""
    if value is None:
        return None
    ago = _AGO.fullmatch(value)
    try:
        if ago:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither a date such as 2025-03-01 nor an age such as 12h, 7d", ctx, param
        ) from None


@click.command()
@click.argument("run_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="List at most so many runs.")
@click.option("--kind", help="List only runs of this command: measure, sweep …")
@click.option(
    "--since", metavar="WHEN", callback=moment, help="List only runs since a date (2025-03-01) or age (12h, 7d)."
)
@click.option("--name", help="List only runs with this text in their name or command.")
@click.option("--recover", is_flag=True, help="Store runs that could not be stored when they ended.")
@click.option("--forget", metavar="ID", help="Delete this run from the store.")
@json_option
def command(
    run_id: str | None,
    limit: int,
    kind: str | None,
    since: datetime | None,
    name: str | None,
    recover: bool,
    forget: str | None,
    as_json: bool,
) -> None:
    """List earlier runs, newest first, or show in full the run whose id begins with ID.

    Runs of recurring jobs have a list of their own: `wattune job list`, and `wattune job show NAME`.
    """
    if sum((run_id is not None, recover, forget is not None)) > 1:
        raise click.UsageError("ID, --recover and --forget cannot be used together")
    if recover:
        _recover_all(as_json)
    elif forget is not None:
        _forget(forget, as_json)
    elif run_id is not None:
        tariff = load_config().tariff
        _show(open_history().run(run_id), tariff, as_json)
    else:
        tariff = load_config().tariff
        runs = open_history().runs(limit=limit, kind=kind, since=since, name=name)
        _list(runs, tariff, as_json, chosen=any(option is not None for option in (kind, since, name)))


def open_history() -> Store:
    """Open the configured store, and store runs that could not be stored when they ended."""
    from wattune.store.fallback import fallback_folders, recover
    from wattune.store.sql_store import open_store

    config = load_config()
    store = open_store(config.store_url)
    try:
        done = recover(store, fallback_folders(config.state_dir), meant_for=store.place)
    except StoreError as error:
        remark(f"{error.message}; runs that could not be stored earlier stay in their file")
    else:
        if done.taken:
            remark(f"{counted(done.taken, 'run')} that could not be stored earlier: stored now")
        _remark_problems(done)
    return store


def _remark_problems(done: Recovered) -> None:
    for problem in done.problems:
        remark(f"warning: {problem}")


def _recover_all(as_json: bool) -> None:
    from wattune.store.fallback import fallback_folders, recover
    from wattune.store.sql_store import open_store

    config = load_config()
    folders = fallback_folders(config.state_dir)
    done = recover(open_store(config.store_url), folders, meant_for=None)
    _remark_problems(done)
    if as_json:
        print_json({"taken": done.taken, "left": done.left})
        return
    print_line(f"{counted(done.taken, 'run')} stored" if done.taken else "no runs to recover")
    if done.left:
        where = " or ".join(str(folder) for folder in folders if folder.exists())
        remark(f"damaged entries, which stay in unsaved-runs.* under {where}: {done.left}")


def _forget(prefix: str, as_json: bool) -> None:
    run = open_history().forget(prefix)
    if as_json:
        print_json({"forgotten": run_to_json(run)})
    else:
        print_line(f"deleted {run.id} ({run.kind}, {one_line(run.name)})")


def _list(runs: tuple[Run, ...], tariff: Tariff, as_json: bool, *, chosen: bool) -> None:
    if as_json:
        print_json({"runs": [_document(run, tariff) for run in runs]})
        return
    if not runs:
        nothing = "no run matches; list all with: wattune history"
        print_line(nothing if chosen else "no runs yet; try: wattune measure -- COMMAND")
        return
    out = console()
    out.print(run_table(runs, width=out.width))


def _show(full: FullRun, tariff: Tariff, as_json: bool) -> None:
    if as_json:
        print_json(full_run_to_json(full) | {"run": _document(full.run, tariff)})
        return
    out = console()
    out.print(run_facts(full.run, tariff))
    for title, table in (("GPUs", gpu_table(full)), ("trials", trial_table(full)), ("power traces", trace_table(full))):
        if table.row_count:
            out.print(f"\n{title}", style="bold")
            out.print(table)
