"""The file to which a measurement of layers is appended, line by line, so that a run that was stopped can continue.

The first line is the header, each further line a cell, as JSON. A line that could not be finished is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from wattune.core.codec import JsonReader, to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError
from wattune.levels.layer.table_file import LayerCell

FORMAT = 1
_HINT = "measure into another file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFileHeader:
    """What a file of cells is about."""

    format: int = FORMAT
    workload: str
    gpu: str
    simulated: bool
    layers: tuple[str, ...]


def read_cells(file: Path, header: CellFileHeader) -> tuple[LayerCell, ...]:
    """Read the cells of an earlier run of the same measurement; none where there is no file."""
    if not file.exists():
        return ()
    found = []
    for number, line in enumerate(read_text(file, hint=_HINT).split("\n")[:-1], 1):
        reader = JsonReader(source=f"{file}, line {number}", hint=_HINT)
        try:
            document = json.loads(line)
        except ValueError:
            reader.fail("", "is no JSON")
        if number == 1:
            _check(reader.read(CellFileHeader, document), header, file)
        else:
            found.append(reader.read(LayerCell, document))
    return tuple(found)


@contextmanager
def appended(file: Path, header: CellFileHeader) -> Iterator[Callable[[LayerCell], None]]:
    """Yield a function that appends a cell, which is on disk when it returns."""
    try:
        opened = open(file, "ab+")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="choose another file") from None
    with opened as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)

        def append(value: CellFileHeader | LayerCell) -> None:
            stream.write(json.dumps(to_json(value)).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

        if stream.seek(0, os.SEEK_END) == 0:
            append(header)
        yield append


def _check(found: CellFileHeader, wanted: CellFileHeader, file: Path) -> None:
    for name in (field.name for field in fields(CellFileHeader)):
        before, now = getattr(found, name), getattr(wanted, name)
        if before != now:
            raise InputError(
                f"{file} is of another measurement: its {name} is {_short(before)}, and now {_short(now)}", hint=_HINT
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
