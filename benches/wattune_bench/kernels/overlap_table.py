"""Measured overlap sweeps as spaces to search: reading, checking, and what every setting takes.

Two forms are read. The plain one has the columns `partition,sm_mhz,comm_sms,launch,time_s,energy_j`, any further knobs
as columns of numbers, and one row per setting or several that repeat it; a launch is `none` (communication follows
computation), the name of an operator, or the share of the computation after which communication starts. Names are
ranked by where they first appear. That of Kareus is converted: `overlap_start` and `overlap_end` are the window, and
energy is divided by the GPUs of which it has columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import isfinite
from pathlib import Path

import numpy as np

from wattune.core.csv_input import Row, parse_csv, read_text
from wattune.levels.overlap.search import COMM_BLOCK, COMM_SMS, END, LAUNCH, SM_MHZ, Floats, PartitionSpace
from wattune_bench.datasets.overlap_sweep import COLUMNS as KAREUS_COLUMNS

PLAIN_COLUMNS = ("partition", SM_MHZ, COMM_SMS, LAUNCH, "time_s", "energy_j")
_HINT = f"an overlap sweep has the columns {','.join(PLAIN_COLUMNS)}, or those of Kareus"
_SHOWN = 3

Setting = tuple[str, ...]
"""The cells of the knobs, in the order of the columns."""


@dataclass(frozen=True, slots=True, eq=False)
class OverlapTable:
    """A partition with everything that was measured of it."""

    partition: str
    space: PartitionSpace[Setting]
    costs: Floats
    """(settings, 2): mean seconds and joules."""
    noise: Floats
    """(2,): relative standard deviation of one measurement; 0 without repeats."""
    missing: tuple[str, ...]
    """Combinations of the clocks, SMs and launches that appear, but not together."""


@dataclass(frozen=True, slots=True)
class _Line:
    partition: str
    setting: Setting
    numbers: tuple[float, ...]
    repeats: tuple[tuple[float, float], ...]


def read_overlap_tables(file: Path) -> tuple[OverlapTable, ...]:
    """Read the partitions of a sweep, in the order of the file."""
    text = read_text(file, hint=_HINT)
    header = text.removeprefix("\ufeff").lstrip().partition("\n")[0]
    if all(column in header for column in KAREUS_COLUMNS[:4]):
        rows = parse_csv(text, file=str(file), required=KAREUS_COLUMNS)
        names: tuple[str, ...] = (LAUNCH, END, COMM_SMS, COMM_BLOCK)
        lines = [_kareus_line(row, file.stem) for row in rows]
    else:
        rows = parse_csv(text, file=str(file), required=PLAIN_COLUMNS)
        names = tuple(column for column in rows[0].cells if column not in ("partition", "time_s", "energy_j"))
        ranks = _ranks(rows)
        lines = [_plain_line(row, names, ranks) for row in rows]
    partitions = dict.fromkeys(line.partition for line in lines)
    return tuple(_table(name, names, [line for line in lines if line.partition == name]) for name in partitions)


def _kareus_line(row: Row, partition: str) -> _Line:
    columns = KAREUS_COLUMNS[:4]
    places = tuple(_number(row, column) for column in columns)
    gpus = max(sum(column.startswith("0:rank") for column in row.cells), 1)
    runs = [column.partition(":")[0] for column in row.cells if column.endswith(":time (s)")]
    repeats = tuple((row.positive(f"{run}:time (s)"), row.positive(f"{run}:total energy (J)") / gpus) for run in runs)
    return _Line(partition, tuple(row.text(column) for column in columns), places, repeats)


def _plain_line(row: Row, names: tuple[str, ...], ranks: dict[str, float]) -> _Line:
    numbers = tuple(
        ranks[row.text(name)]
        if name == LAUNCH
        else row.positive(name)
        if name in (SM_MHZ, COMM_SMS)
        else _number(row, name)
        for name in names
    )
    repeat = (row.positive("time_s"), row.positive("energy_j"))
    return _Line(row.text("partition"), tuple(row.text(name) for name in names), numbers, (repeat,))


def _ranks(rows: tuple[Row, ...]) -> dict[str, float]:
    """Give every launch its place: -1 for none, numbers by size, names by first appearance."""
    texts = list(dict.fromkeys(row.text(LAUNCH) for row in rows))
    launches = [text for text in texts if text != "none"]
    if all(_is_number(text) for text in launches):
        launches.sort(key=float)
    return {"none": -1.0, **{text: float(place) for place, text in enumerate(launches)}}


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _number(row: Row, column: str) -> float:
    text = row.text(column)
    if not _is_number(text):
        raise row.wrong(column, f"{text!r} is not a number")
    return float(text)


def _table(partition: str, names: tuple[str, ...], lines: list[_Line]) -> OverlapTable:
    repeats: dict[Setting, list[tuple[float, float]]] = {}
    numbers: dict[Setting, tuple[float, ...]] = {}
    for line in lines:
        repeats.setdefault(line.setting, []).extend(line.repeats)
        numbers[line.setting] = line.numbers
    costs = np.array([np.mean(runs, axis=0) for runs in repeats.values()])
    space = PartitionSpace(tuple(repeats), np.array(list(numbers.values())), names)
    return OverlapTable(partition, space, costs, _noise(list(repeats.values())), _missing(names, tuple(repeats)))


def _noise(repeats: list[list[tuple[float, float]]]) -> Floats:
    """Return the relative standard deviations within settings that were repeated."""
    several = [np.array(runs) for runs in repeats if len(runs) > 1]
    if not several:
        return np.zeros(2)
    squares = [(np.std(runs, axis=0, ddof=1) / runs.mean(axis=0)) ** 2 for runs in several]
    return np.asarray(np.sqrt(np.mean(squares, axis=0)))


def _missing(names: tuple[str, ...], settings: tuple[Setting, ...]) -> tuple[str, ...]:
    """List what a full grid would have; windows (launch and end) and sequential execution count as one knob."""
    window = [place for place, name in enumerate(names) if name in (LAUNCH, END)]
    others = [place for place in range(len(names)) if place not in window]
    seen = {(tuple(row[place] for place in window), *(row[place] for place in others)) for row in settings}
    axes = [list(dict.fromkeys(row[axis] for row in seen)) for axis in range(1 + len(others))]
    labels = ("launch", *(names[place] for place in others))
    absent = [cell for cell in product(*axes) if cell not in seen]
    return tuple(
        ", ".join(
            f"{label} {'-'.join(value) if isinstance(value, tuple) else value}"
            for label, value in zip(labels, cell, strict=True)
        )
        for cell in absent
    )


def missing_note(table: OverlapTable) -> str | None:
    """Say what the sweep lacks, or None if it is complete."""
    if not table.missing:
        return None
    more = f" and {len(table.missing) - _SHOWN} more" if len(table.missing) > _SHOWN else ""
    return (
        f"{table.partition}: {len(table.missing)} of the combinations of its knobs were not measured: "
        f"{'; '.join(table.missing[:_SHOWN])}{more}{_clocks_note(table.missing)}. "
        f"The frontier is that of the {len(table.space)} that were."
    )


def _clocks_note(missing: tuple[str, ...]) -> str:
    """Name all clocks at which something is missing."""
    parts = {part for cell in missing for part in cell.split(", ") if part.startswith(f"{SM_MHZ} ")}
    clocks = sorted((part.removeprefix(f"{SM_MHZ} ") for part in parts), key=float)
    return f", at {', '.join(clocks)} MHz" if clocks else ""
