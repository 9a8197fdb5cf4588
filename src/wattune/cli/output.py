"""Output of commands: JSON for programs, rich for people, progress on standard error; and files."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.core.codec import to_json
from wattune.core.errors import InputError, WattuneError
from wattune.core.output_file import check_writable as check_writable
from wattune.core.output_file import is_replaced
from wattune.core.output_file import write_bytes as write_bytes
from wattune.core.output_file import write_text as write_text
from wattune.render.text import shown as shown

if TYPE_CHECKING:
    from rich.console import Console

    from wattune.core.trust import Trust
    from wattune.render.table import Table


F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
"""The type of an option that names a file."""


def made_line() -> str:
    """Return when, where and by which version and command a page is made."""
    from datetime import UTC, datetime
    from socket import gethostname

    from wattune._version import __version__

    context = click.get_current_context(silent=True)
    words = () if context is None or context.obj is None else context.obj
    by = f": {shlex.join(words)}" if words else ""
    return f"Made on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on {gethostname()}, by wattune {__version__}{by}"


def check_report(file: Path | None, *, suffixes: Sequence[str] = (".html",)) -> None:
    """Raise where a report cannot be written there, or its suffix names no form of it, before the work starts."""
    check_writable(file)
    if file is not None and is_replaced(file) and file.suffix.lower() not in suffixes:
        forms = " or ".join(str(file.with_suffix(suffix)) for suffix in suffixes)
        raise InputError(f"a report cannot be written as {file.name}", hint=f"name it {forms}")


def json_option(function: F) -> F:
    """Add the --json flag that every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)


def console() -> Console:
    """Return the console on standard output."""
    from wattune.cli.plain_console import PlainConsole

    return PlainConsole(highlight=False)


def stderr_console() -> Console:
    """Return the console on standard error, for progress and remarks."""
    from wattune.cli.plain_console import PlainConsole

    return PlainConsole(stderr=True, highlight=False)


@contextmanager
def progress_bar(what: str = "") -> Iterator[Callable[..., None]]:
    """Show a bar on standard error, updated by what is yielded; without a terminal there is none.

    What is yielded takes what is done now and, where they are known, how many of how many steps are done.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    screen = stderr_console()

    def update(step: str, done: int = 0, of: int | None = None) -> None:
        bar.update(task, description=step, completed=done, total=of, count="" if of is None else f"{done}/{of}")

    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=None, count="")
        yield update


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document to standard output."""
    click.echo(json.dumps(document, default=_plain, indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Enum):
        return value.name.lower() if value.name else str(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # NumPy scalars
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def marked(simulated: bool, *gpus: str | None) -> dict[str, Any]:
    """Return the fields `simulated` and `trust` of a JSON document with figures of these GPUs."""
    return {"simulated": simulated, "trust": to_json(_trust(simulated, *gpus))}


def trust_lines(simulated: bool, *gpus: str | None) -> tuple[str, ...]:
    """Return what goes with the first figure of simulated GPUs, a line for each model; nothing for real ones."""
    models = dict.fromkeys(gpus)
    found = [(model, trust) for model in models if (trust := _trust(simulated, model)) is not None]
    return tuple(trust.words if len(found) == 1 else f"{model}: {trust.words}" for model, trust in found)


def _trust(simulated: bool, *gpus: str | None) -> Trust | None:
    if not simulated:
        return None
    from wattune.physics.catalog import trust_of

    return trust_of(simulated, *gpus)


def print_error(error: WattuneError, *, kind: str = "error") -> None:
    """Print one line and a hint to standard error."""
    click.echo(shown(f"{kind}: {error.message}"), err=True)
    if error.hint:
        click.echo(shown(f"hint: {error.hint}"), err=True)


def print_line(text: str, *, style: str | None = None) -> None:
    """Print one line of plain text to standard output."""
    if style is None or not sys.stdout.isatty():
        # Importing rich takes longer than most commands.
        click.echo(shown(text))
    else:
        console().print(text, style=style, markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Print one line of plain text to standard error."""
    stderr_console().print(text, markup=False, soft_wrap=True)


def print_table(
    table: Table, *, left_out: Collection[int] = (), whole: Collection[int] = (), gap: int = 2, err: bool = False
) -> None:
    """Print a table to standard output, or to standard error, in the form that `screen_table` describes."""
    from wattune.render.table import screen_table

    screen = stderr_console() if err else console()
    screen.print(screen_table(table, left_out=left_out, whole=whole, gap=gap))


def print_written(*paths: Path | None) -> None:
    """Name the files that were written."""
    for path in paths:
        if path is not None:
            print_line(f"written to {path}")


def try_to_write(file: Path, text: str) -> bool:
    """Write a text file after the work is done: print a failure, and return whether the file was written."""
    try:
        write_text(file, text)
    except InputError as error:
        print_error(error)
        return False
    return True


def write_each(file: Path, texts: Sequence[str]) -> bool:
    """Write each text as `try_to_write` does, to a file with its number where there are several.

    A stream or a device gets them one after the other.
    """
    if len(texts) == 1 or not is_replaced(file):
        return try_to_write(file, "".join(texts))
    files = [file.with_stem(f"{file.stem}-{index}") for index in range(len(texts))]
    written = [try_to_write(own, text) for own, text in zip(files, texts, strict=True)]
    return all(written)
