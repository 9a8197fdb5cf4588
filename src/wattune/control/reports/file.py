"""Metrics in a file that a program writes as it goes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wattune.control.reports.form import LineForm
from wattune.control.reports.lines import LineBuffer
from wattune.control.reports.report import Told
from wattune.core.errors import InputError

_FINGERPRINT = 64
"""Bytes before the place we have read to that must still be there; a file written anew differs in them."""


class MetricFile:
    """A file that grows. What stands in it when this is made is of an earlier run and tells nothing.

    A file that is cut, written anew or replaced by another of its name is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._place = 0
        self._before = b""
        self._lines, self._form = LineBuffer(), LineForm()
        check_place(path)
        if path.exists():
            self.read()  # for the heading of a table that this run may go on with
            self._lines = LineBuffer()

    def read(self, *, ended: bool = False) -> tuple[Told, ...]:
        """What was written since this was asked last; a line without an end waits for it unless the program ended."""
        added = self._added()  # which may begin with other lines
        lines = list(self._lines.feed(added))
        if ended:
            lines.extend(self._lines.rest())
        told = []
        for line in lines:
            self._form, one = self._form.read(line)
            if one is not None:
                told.append(one)
        return tuple(told)

    def _start_afresh(self) -> None:
        self._place, self._before = 0, b""
        self._lines, self._form = LineBuffer(), LineForm()

    def _added(self) -> bytes:
        """The bytes behind the place we have read to; none where the file is not there (yet)."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or not self._is_continued(file.fileno()):
                    self._start_afresh()
                self._inode = inode
                file.seek(self._place)
                data = file.read()
        except OSError:
            return b""
        self._place += len(data)
        self._before = (self._before + data)[-_FINGERPRINT:]
        return data

    def _is_continued(self, descriptor: int) -> bool:
        """Whether what we have read last still stands where it stood."""
        return os.pread(descriptor, len(self._before), self._place - len(self._before)) == self._before


def check_place(path: Path) -> None:
    """Nothing, where a program can write its metrics to such a file and we can read them; else an error."""
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
