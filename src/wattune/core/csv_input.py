"""Reading files of users, CSV above all: errors name the file, the line and the column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from wattune.core.bounds import SMALLEST, too_large
from wattune.core.errors import InputError
from wattune.core.setting import Setting

LARGEST_BYTES = 400_000_000
"""More than any file that wattune reads."""

SWEEP_COLUMNS = ("workload", "sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j")
"""The columns of a sweep: `wattune sweep --csv` writes them; tables of GPUs and fits are read from them."""


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula."""
_LINE_END = "\r\n"


def text_cell(text: str) -> str:
    """Return a cell of CSV that no spreadsheet runs as a formula: an apostrophe marks it as text."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV that `parse_csv` and spreadsheets read back, whatever their texts hold."""
    lines: list[str] = []
    # With this line end the writer also quotes a lone carriage return, which would split the row in two.
    writer = csv.writer(_Lines(lines), lineterminator=_LINE_END)
    for row in rows:
        writer.writerow(text_cell(cell) if isinstance(cell, str) else cell for cell in row)
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class _Lines:
    lines: list[str]

    def write(self, line: str) -> None:
        self.lines.append(f"{line.removesuffix(_LINE_END)}\n")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file."""

    file: str
    line: int
    cells: Mapping[str, str]

    def wrong(self, column: str, problem: str) -> InputError:
        return InputError(f"{self.file}, line {self.line}, column {column}: {problem}", hint="correct that cell")

    def text(self, column: str) -> str:
        """Return the cell, which must not be empty, without the mark of `text_cell`."""
        value = self.cells.get(column, "").strip()
        if not value:
            raise self.wrong(column, "is empty")
        return value[1:] if value.startswith("'") and value[1:].startswith(_FORMULA) else value

    def positive(self, column: str) -> float:
        """Return the cell as a finite number above 0 within the bounds of its quantity."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is not a number") from None
        if not isfinite(value) or value <= 0:
            raise self.wrong(column, f"{text} is not a finite number above 0")
        if value < SMALLEST:
            raise self.wrong(column, f"{text} is too small; the least is {SMALLEST:g}")
        problem = too_large(column, value)
        if problem is not None:
            raise self.wrong(column, problem)
        return value

    def positive_or_none(self, column: str) -> float | None:
        """Return the same, or None if the cell is empty or the column is missing."""
        return self.positive(column) if self.cells.get(column, "").strip() else None

    def whole_or_none(self, column: str) -> int | None:
        """Return the cell as a whole number above 0, or None if it is empty or the column is missing."""
        value = self.positive_or_none(column)
        if value is not None and value != int(value):
            raise self.wrong(column, f"{self.text(column)} is not a whole number")
        return None if value is None else int(value)

    def setting(self, *, core: str = "sm_mhz") -> Setting:
        """Return the setting of the row; an empty cell leaves a knob to the driver."""
        return Setting(self.whole_or_none(core), self.whole_or_none("mem_mhz"), self.positive_or_none("power_limit_w"))


def read_text(file: Path, *, hint: str) -> str:
    """Read a file of the user, or raise an error with the hint."""
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1) if file.stat().st_size <= LARGEST_BYTES else None
        if content is None or len(content) > LARGEST_BYTES:  # a device such as /dev/zero has no size and no end
            raise InputError(f"{file} is larger than {LARGEST_BYTES} bytes", hint=hint)
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read {file}: {reason}", hint=hint) from None


def parse_csv(text: str, *, file: str, required: tuple[str, ...]) -> tuple[Row, ...]:
    """Parse CSV text with at least one row. Other columns than the required ones are kept, blank lines skipped."""
    header: tuple[str, ...] = ()
    rows: list[Row] = []
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _header(cells, file, reader.line_num, required)
            else:
                rows.append(_row(cells, header, file, reader.line_num))
    except csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: {error}", hint="the file is not CSV") from None
    if not rows:
        what = "has a header and no rows" if header else "is empty"
        raise InputError(f"{file} {what}", hint=f"its columns are {','.join(required)}")
    return tuple(rows)


def _header(cells: list[str], file: str, line: int, required: tuple[str, ...]) -> tuple[str, ...]:
    header = tuple(cell.strip() for cell in cells)
    for column in required:
        if column not in header:
            raise InputError(f"{file}, line {line}: there is no column {column}", hint=f"it has {', '.join(header)}")
    for place, column in enumerate(header):
        if column in header[:place]:
            raise InputError(f"{file}, line {line}: column {column} appears twice", hint="rename or remove one")
    return header


def _row(cells: list[str], header: tuple[str, ...], file: str, line: int) -> Row:
    if len(cells) != len(header):
        first_wrong = header[len(cells)] if len(cells) < len(header) else f"number {len(header) + 1}"
        raise InputError(
            f"{file}, line {line}, column {first_wrong}: {len(cells)} cells for {len(header)} columns",
            hint="every line has as many cells as the header",
        )
    return Row(file, line, dict(zip(header, cells, strict=True)))
