"""A file to which measurements are appended, one JSON line each, so that a run that was stopped can continue.

The first line is a header that says what the file is about. A line that could not be finished is removed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from wattune.core.codec import JsonReader, to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError
from wattune.core.output_file import check_plain

H = TypeVar("H")
R = TypeVar("R")

HINT = "measure into another file"
_LONGEST = 60


def read_records(file: Path, header: Any, kind: type[R], *others: type[Any]) -> tuple[R, ...]:
    """Read the records of an earlier run of the same measurement; none where there is no file.

    Lines of one of the other kinds, which differ in their fields, are left out.
    """
    if not file.exists():
        return ()
    check_plain(file)
    found = []
    skipped = [{field.name for field in fields(other)} for other in others]
    for number, line in enumerate(read_text(file, hint=HINT).split("\n")[:-1], 1):
        reader = JsonReader(source=f"{file}, line {number}", hint=HINT)
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            reader.fail("", "is no JSON")
        if number == 1:
            header_reader = replace(reader, missing_fields="default")
            _check(header_reader.read(type(header), document), header, file)
        elif not isinstance(document, dict) or set(document) not in skipped:
            found.append(reader.read(kind, document))
    return tuple(found)


def read_record_header(file: Path, kind: type[H], *, hint: str) -> H | None:
    """Read what a file is about; None where there is no file, or an empty one."""
    if not file.exists():
        return None
    check_plain(file)
    line, end, _ = read_text(file, hint=HINT).partition("\n")
    reader = JsonReader(source=f"{file}, line 1", hint=hint, missing_fields="default")
    try:
        return reader.read(kind, json.loads(line)) if end else None
    except (ValueError, RecursionError):
        reader.fail("", "is no JSON")


@contextmanager
def appended_records(file: Path, header: Any) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a record, which is on disk when it returns; one process at a time can do so."""
    check_plain(file)
    try:
        opened = open(file, "ab+")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="choose another file") from None
    with opened as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process measures into {file}", hint="let it end, or " + HINT) from None
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)

        def append(value: Any) -> None:
            stream.write(json.dumps(to_json(value)).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

        if stream.seek(0, os.SEEK_END) == 0:
            append(header)
        yield append


def _check(found: Any, wanted: Any, file: Path) -> None:
    for name in (field.name for field in fields(wanted)):
        before, now = getattr(found, name), getattr(wanted, name)
        if before != now:
            raise InputError(
                f"{file} is of another measurement: its {name} is {_short(before)}, and now {_short(now)}", hint=HINT
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
