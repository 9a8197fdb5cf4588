"""The file to which trials of partitions are appended, one JSON line each, so that a run that was stopped continues.

The first line is the header. A line that could not be finished is removed.
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
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.kernel.partition_space import PartitionChoice

FORMAT = 1
_HINT = "measure into another file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHeader:
    """What a file of trials is about."""

    format: int = FORMAT
    layout: str
    """Model, parallel layout and sizes, in any form; trials of another layout are refused."""
    gpu: str
    simulated: bool
    ranks: int
    nanobatches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTrial:
    """A partition under a choice, and what one run of it takes on each GPU."""

    partition: str
    choice: PartitionChoice
    cost: Measurement
    repeats: int
    """Runs that were measured."""
    cooling_s: float
    window_s: float
    """Of all windows, also of those that do not count."""
    start_c: float | None
    """Temperature of the warmest GPU before the windows; None where one has no sensor."""
    end_c: float | None
    """The same behind the windows: energy at another temperature differs, by about 0.2 % per degree."""
    simulated: bool

    @property
    def trial(self) -> Trial[PartitionChoice]:
        return Trial(self.choice, self.cost)

    @property
    def key(self) -> tuple[str, PartitionChoice]:
        return self.partition, self.choice


def read_trials(file: Path, header: TrialHeader) -> tuple[PartitionTrial, ...]:
    """Read the trials of an earlier run of the same measurement; none where there is no file."""
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
            _check(reader.read(TrialHeader, document), header, file)
        else:
            found.append(reader.read(PartitionTrial, document))
    return tuple(found)


@contextmanager
def appended_trials(file: Path, header: TrialHeader) -> Iterator[Callable[[PartitionTrial], None]]:
    """Yield a function that appends a trial, which is on disk when it returns."""
    try:
        opened = open(file, "ab+")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="choose another file") from None
    with opened as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)

        def append(value: TrialHeader | PartitionTrial) -> None:
            stream.write(json.dumps(to_json(value)).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

        if stream.seek(0, os.SEEK_END) == 0:
            append(header)
        yield append


def _check(found: TrialHeader, wanted: TrialHeader, file: Path) -> None:
    for name in (field.name for field in fields(TrialHeader)):
        before, now = getattr(found, name), getattr(wanted, name)
        if before != now:
            raise InputError(f"{file} is of another measurement: its {name} is {before}, and now {now}", hint=_HINT)
