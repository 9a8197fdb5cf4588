"""How commands speak: JSON for programs, rich for people, progress on standard error."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """The --json flag that every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)


def console() -> Console:
    """Where people's output goes."""
    from rich.console import Console

    return Console(highlight=False)


def stderr_console() -> Console:
    """Where progress and remarks go."""
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


def check_writable(path: Path | None) -> None:
    """Nothing, where a file can be written there; better to know before measuring than after."""
    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InputError(f"cannot write {path}: no folder to write to", hint=f"make it first: mkdir -p {path.parent}")


def write_text(file: Path, text: str) -> None:
    """Nothing; the file holds the text. On failure what was there before still is."""
    partial = None
    try:
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, file)
    except OSError as error:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
        raise InputError(
            f"cannot write {file}: {error.strerror}", hint="choose a folder that exists, is writable and has room"
        ) from None
