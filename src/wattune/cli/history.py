"""`wattune history`: list earlier runs, or show one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from wattune.cli.output import console, json_option, print_json, print_line, remark
from wattune.config import load_config
from wattune.core.errors import StoreError
from wattune.render.quantity import counted

if TYPE_CHECKING:
    from wattune.store.protocol import Store
    from wattune.store.records import FullRun, Run

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
    "--since",
    metavar="WHEN",
    callback=moment,
    help="List only runs since a date (2025-03-01) or age (12h, 7d).",
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
    """List earlier runs, newest first, or show in full the run whose id begins with ID."""
    if sum((run_id is not None, recover, forget is not None)) > 1:
        raise click.UsageError("ID, --recover and --forget exclude each other")
    if recover:
        _recover_all(as_json)
    elif forget is not None:
        _forget(forget, as_json)
    elif run_id is not None:
        _show(open_history().run(run_id), as_json)
    else:
        _list(open_history().runs(limit=limit, kind=kind, since=since, name=name), as_json)


def open_history() -> Store:
    """Open the configured store, and store runs that could not be stored when they ended."""
    from wattune.store.fallback import fallback_folders, recover
    from wattune.store.sql_store import open_store

    config = load_config()
    store = open_store(config.store_url)
    try:
        taken = recover(store, fallback_folders(config.state_dir), meant_for=store.place).taken
    except StoreError as error:
        remark(f"{error.message}; they stay there")
    else:
        if taken:
            remark(f"{counted(taken, 'run')} that could not be stored earlier: stored now")
    return store


def _recover_all(as_json: bool) -> None:
    from wattune.store.fallback import fallback_folders, recover
    from wattune.store.sql_store import open_store

    config = load_config()
    folders = fallback_folders(config.state_dir)
    done = recover(open_store(config.store_url), folders, meant_for=None)
    if as_json:
        print_json({"taken": done.taken, "left": done.left})
        return
    print_line(f"{counted(done.taken, 'run')} stored" if done.taken else "no runs to recover")
    if done.left:
        where = " or ".join(str(folder) for folder in folders)
        remark(f"damaged lines, which stay in unsaved-runs.jsonl under {where}: {done.left}")


def _forget(prefix: str, as_json: bool) -> None:
    from wattune.cli.run_tables import one_line
    from wattune.store.records import run_to_json

    run = open_history().forget(prefix)
    if as_json:
        print_json({"forgotten": run_to_json(run)})
    else:
        print_line(f"deleted {run.id} ({run.kind}, {one_line(run.name)})")


def _list(runs: tuple[Run, ...], as_json: bool) -> None:
    from wattune.cli.run_tables import run_table
    from wattune.store.records import run_to_json

    if as_json:
        print_json({"runs": [run_to_json(run) for run in runs]})
        return
    if not runs:
        print_line("no runs yet; try: wattune measure -- COMMAND")
        return
    out = console()
    out.print(run_table(runs, width=out.width))


def _show(full: FullRun, as_json: bool) -> None:
    from wattune.cli.run_tables import gpu_table, run_facts, trace_table, trial_table
    from wattune.store.records import full_run_to_json

    if as_json:
        print_json(full_run_to_json(full))
        return
    out = console()
    out.print(run_facts(full.run))
    for title, table in (("GPUs", gpu_table(full)), ("trials", trial_table(full)), ("power traces", trace_table(full))):
        if table.row_count:
            out.print(f"\n{title}", style="bold")
            out.print(table)
