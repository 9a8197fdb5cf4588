"""Output of commands: JSON for programs, rich for people, progress on standard error; and files."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.core.errors import InputError, WattuneError

if TYPE_CHECKING:
    from rich.console import Console


F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
"""The type of an option that names a file."""


def json_option(function: F) -> F:
    """Add the --json flag that every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)


def console() -> Console:
    """Return the console on standard output."""
    from rich.console import Console

    return Console(highlight=False)


def stderr_console() -> Console:
    """Return the console on standard error, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


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


def print_error(error: WattuneError, *, kind: str = "error") -> None:
    """Print one line and a hint to standard error."""
    click.echo(f"{kind}: {error.message}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)


def print_line(text: str, *, style: str | None = None) -> None:
    """Print one line of plain text to standard output."""
    console().print(text, style=style, markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Print one line of plain text to standard error."""
    stderr_console().print(text, markup=False, soft_wrap=True)


def print_written(*paths: Path | None) -> None:
    """Name the files that were written."""
    for path in paths:
        if path is not None:
            print_line(f"written to {path}")


def check_writable(path: Path | None) -> None:
    """Raise where a file cannot be written there, before a measurement rather than after it."""
    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InputError(f"cannot write {path}: no folder to write to", hint=f"make it first: mkdir -p {path.parent}")


def write_text(file: Path, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(file, text.encode())


def try_to_write(file: Path, text: str) -> bool:
    """Write a text file after the work is done: print a failure, and return whether the file was written."""
    try:
        write_text(file, text)
    except InputError as error:
        print_error(error)
        return False
    return True


def write_each(file: Path, texts: Sequence[str]) -> bool:
    """Write each text as `try_to_write` does, to a file with its number where there are several."""
    files = [file] if len(texts) == 1 else [file.with_stem(f"{file.stem}-{index}") for index in range(len(texts))]
    written = [try_to_write(own, text) for own, text in zip(files, texts, strict=True)]
    return all(written)


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file beside the target and rename it; on failure the target is as before."""
    partial = None
    try:
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, file)
    except BaseException as error:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
        if isinstance(error, OSError):
            hint = "choose a folder that exists, is writable and has room"
            raise InputError(f"cannot write {file}: {error.strerror}", hint=hint) from None
        raise


def _umask() -> int:
    """Return the process's file mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
