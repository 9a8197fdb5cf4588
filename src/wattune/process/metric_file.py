"""Metrics in a file that a program writes while it runs."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wattune.core.errors import InputError
from wattune.process.output import LineBuffer
from wattune.process.patterns import (
    LARGEST_NUMBER,
    AnyReport,
    NoMemory,
    Report,
    StepReport,
    Unreadable,
    finite,
    number_of,
)

OUT_OF_MEMORY = "out_of_memory"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class LineForm:
    """The columns of a table, by its heading if it has one."""

    columns: tuple[str, ...] = ("epoch", "metric")

    def read(self, line: str) -> tuple[LineForm, AnyReport | None]:
        """Parse a line; return the form of the next lines, and the report or None, as for a heading."""
        line = line.strip().removeprefix("\ufeff")
        if not line or line.startswith("#"):
            return self, None
        if line.startswith("{"):
            return self, read_object(line)
        fields = [field.strip() for field in line.split(",")]
        named = tuple(field.strip('"').lower() for field in fields)
        if "metric" in named:
            return replace(self, columns=named), None
        if len(fields) == 1:
            return self, _number(line)
        return self, self._row(fields, line)

    def _row(self, fields: list[str], line: str) -> AnyReport:
        if len(fields) != len(self.columns):
            return _unreadable(line, f"it has {len(fields)} fields where {','.join(self.columns)} has another number")
        found = dict(zip(self.columns, fields, strict=True))
        if not found["metric"] and found.get("step"):
            return _step(found["step"], line)
        epoch = found.get("epoch") or None
        if epoch is not None and _whole(epoch) is None:
            return _unreadable(line, f"{epoch[:_SHOWN]!r} is no epoch")
        return Report(number_of(found["metric"]), None if epoch is None else _whole(epoch))


def read_object(text: str) -> AnyReport:
    """Parse a JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _unreadable(text, "it is no JSON")
    if not isinstance(document, dict):
        return _unreadable(text, "it is no JSON object")
    if "error" in document:
        return NoMemory() if document["error"] == OUT_OF_MEMORY else _unreadable(text, "its error is not known")
    if "metric" in document:
        return _report(document, text)
    if "step" in document:
        return _step(document["step"], text)
    return _unreadable(text, "it has neither metric nor step")


def _report(document: dict[str, Any], text: str) -> AnyReport:
    metric, epoch = document["metric"], document.get("epoch")
    if metric is not None and (isinstance(metric, bool) or not isinstance(metric, int | float)):
        return _unreadable(text, "its metric is no number")
    if epoch is not None and _whole(epoch) is None:
        return _unreadable(text, "its epoch is no whole number")
    try:
        value = None if metric is None else finite(float(metric))
    except OverflowError:
        value = None
    return Report(value, None if epoch is None else _whole(epoch))


def _step(step: object, text: str) -> AnyReport:
    number = _whole(step)
    return _unreadable(text, "its step is no whole number") if number is None or number < 0 else StepReport(number)


def _number(line: str) -> AnyReport:
    try:
        return Report(finite(float(line)))
    except ValueError:
        return _unreadable(line, "it is neither JSON, a number nor a row of a table")


def _whole(value: object) -> int | None:
    """Return the whole number that a value is, 3.0 and "3" included; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
        return int(number) if number == int(number) and abs(number) <= LARGEST_NUMBER else None
    except (ValueError, OverflowError):
        return None


def _unreadable(text: str, reason: str) -> Unreadable:
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return Unreadable(f"{shown!r} is no metric: {reason}")


_FINGERPRINT = 64
"""Bytes before the read position that are compared, to notice a file that was rewritten."""


class MetricFile:
    """Follows a file that grows; what it contains at first is of an earlier run and ignored.

    A file that is truncated, rewritten or replaced is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._place, self._before = 0, b""
        self._lines, self._form = LineBuffer(), LineForm()
        check_place(path)
        if path.exists():
            self.read()  # for the heading of a table that this run may go on with
            self._lines = LineBuffer()

    def read(self, *, ended: bool = False) -> tuple[AnyReport, ...]:
        """Return the reports since the last call; a line without an end waits for it unless the program ended."""
        added = self._added()  # before feeding, since it may reset the lines
        lines = list(self._lines.feed(added))
        if ended:
            lines.extend(self._lines.rest())
        reports = []
        for line in lines:
            self._form, one = self._form.read(line)
            if one is not None:
                reports.append(one)
        return tuple(reports)

    def _restart(self) -> None:
        self._place, self._before = 0, b""
        self._lines, self._form = LineBuffer(), LineForm()

    def _added(self) -> bytes:
        """Return the bytes after the read position; none where the file does not exist (yet)."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or not self._is_continued(file.fileno()):
                    self._restart()
                self._inode = inode
                file.seek(self._place)
                data = file.read()
        except OSError:
            return b""
        self._place += len(data)
        self._before = (self._before + data)[-_FINGERPRINT:]
        return data

    def _is_continued(self, descriptor: int) -> bool:
        """Return True where the bytes before the read position are unchanged."""
        return os.pread(descriptor, len(self._before), self._place - len(self._before)) == self._before


def check_place(path: Path) -> None:
    """Raise an error unless a program can write its metrics to such a file and we can read them."""
    if not path.parent.is_dir():
        raise InputError(
            f"there is no folder for the metric file {path}", hint=f"make it first: mkdir -p {path.parent}"
        )
    if not path.exists():
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(
            f"the metric file {path} is no plain file",
            hint="name a file that the program writes, or use --metric-pattern for what it prints",
        )
    if not os.access(path, os.R_OK):
        raise InputError(f"the metric file {path} cannot be read", hint="check its permissions")
