"""`wattune export`: the history as CSV, JSON or Parquet."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from wattune.cli.history import open_history
from wattune.cli.output import json_option, print_json, stderr_console
from wattune.core.errors import InputError

STDOUT = "-"


@click.command()
@click.option(
    "--format", "format_", type=click.Choice(["csv", "json", "parquet"]), help="Default: as FILE is called, else csv."
)
@click.option(
    "--what",
    type=click.Choice(["runs", "gpus", "trials", "traces"]),
    default="runs",
    show_default=True,
    help="Runs, the GPUs of runs, what was tried, or summaries of power traces.",
)
@click.option("--out", metavar="FILE", default=STDOUT, help="Where to write; - or nothing is standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@json_option
def command(format_: str | None, what: str, out: str, force: bool, as_json: bool) -> None:
    """Write the history as CSV, JSON or Parquet.

    A file appears whole or not at all. --json prints what was written where; without --out it is the same as
    --format json.
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
    _write_whole(Path(out), content)
    if as_json:
        print_json({"file": out, "format": chosen, "what": what, "rows": rows})
    else:
        stderr_console().print(f"wrote {rows} rows of {what} to {out}", markup=False, soft_wrap=True)


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
        raise InputError(f"{path} is there already", hint="replace it with --force, or name another file")


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file beside the target and rename it, so that nobody sees half of it."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from None
        raise


def _umask() -> int:
    """The process's file mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror}", hint="name a file that can be written with --out")
