"""`wattune export`: write the history as CSV, JSON or Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.history import open_history
from wattune.cli.output import json_option, print_json, remark, write_bytes
from wattune.core.errors import InputError

STDOUT = "-"


@click.command()
@click.option(
    "--format", "format_", type=click.Choice(["csv", "json", "parquet"]), help="Default: by the name of FILE, else csv."
)
@click.option(
    "--what",
    type=click.Choice(["runs", "gpus", "trials", "traces"]),
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
        _refuse_existing(Path(out), force)
    content, rows = _content(chosen, what)
    if out == STDOUT:
        click.echo(content, nl=False)
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


def _content(format_: str, what: str) -> tuple[bytes, int]:
    from wattune.store.export import FLATTENERS, FORMATS

    table = FLATTENERS[what](open_history())
    return FORMATS[format_](table), len(table.rows)


def _refuse_existing(path: Path, force: bool) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint=f"name a file in it: {path / 'history.csv'}")
    if path.exists() and not force:
        raise InputError(f"{path} exists already", hint="replace it with --force, or name another file")
