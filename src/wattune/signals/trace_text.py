"""Read power traces from text: wattune's own CSV, logs of nvidia-smi and DCGM, exports of Weights & Biases.

A log of several GPUs has their rows in turn, with or without a column that names the GPU, or a column for each.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite

import numpy as np

from wattune.core.bounds import LARGEST
from wattune.core.errors import InputError
from wattune.signals.samples import Floats, Ints, PowerSamples, median, quantiles

FORMS = "time_s,power_w[,sm_util,mem_util] or nvidia-smi's --format=csv with timestamp and power.draw"
# Names of columns, without units, in lower case and with underscores; the first that is present counts.
_TIMES = (
    *("time_s", "t_est_s", "t_s", "timestamp_s", "elapsed_s", "time", "t", "timestamp", "datetime", "elapsed"),
    *("relative_time", "runtime"),
    *("time_ms", "timestamp_ms", "elapsed_ms", "time_us", "timestamp_us", "time_ns", "timestamp_ns"),
)
_POWERS = (
    *("power_w", "power_draw_instant", "power_draw", "power_draw_average", "power", "power_draw_w", "gpu_power_w"),
    *("gpu_power", "power_watts", "power_usage", "power_mw", "power_draw_mw", "gpu_power_mw"),
    *("dcgm_fi_dev_power_usage", "pwr"),
)
_SM_UTILS = (
    *("sm_util", "gpu_util_pct", "utilization_gpu", "gpu_util", "utilization_gpu_pct", "gpu_utilization"),
    *("dcgm_fi_dev_gpu_util", "sm", "gputl"),
)
_MEM_UTILS = (
    *("mem_util", "mem_util_pct", "utilization_memory", "utilization_memory_pct", "memory_utilization"),
    *("dcgm_fi_dev_mem_copy_util", "mem", "mcutl"),
)
_GPUS = ("index", "gpu", "gpu_index", "gpu_id", "uuid", "gpu_uuid", "pci_bus_id", "gpu_bus_id", "serial", "entity")
# A column of one of several GPUs, such as system.gpu.0.powerWatts and gpu1_power_w.
_POWER_OF = re.compile(r"(?:^|[^a-z])gpu[^a-z0-9]?(\d+)[^a-z0-9]?power(?:[^a-z]?(?:watts|draw|usage|w))?\W*$", re.I)
_UTIL_OF = re.compile(r"(?:^|[^a-z])gpu[^a-z0-9]?(\d+)[^a-z0-9]?(?:gpu|util|utilization)\W*$", re.I)
_MOST_NAMED = 12
_UNIT = re.compile(r"\s*[\[(]([^\])]*)[\])]$|_(mw|ms|us|ns)$")
_PARTS = {"ms": 1e3, "us": 1e6, "ns": 1e9, "mw": 1e3}
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
# The most unreadable rows, as a share, in a valid file.
_MOST_BROKEN = 0.5
_MOST_GPUS = 16
# Rows of one poll of several GPUs follow each other within this share of the time to the next poll.
_TOGETHER = 0.25
# The least share of polls with the same number of rows.
_REGULAR = 0.9


def parse_traces(text: str, *, file: str) -> tuple[PowerSamples, ...]:
    """Parse the samples of each GPU in a trace, in the order of their first rows."""
    header, rows = _table(text, file)
    columns = {name: _column(header, names) for name, names in _KINDS.items()}
    apart = {found[1]: place for place, cell in enumerate(header) if (found := _POWER_OF.search(cell))}
    if columns["time"] is None or (columns["power"] is None and not apart):
        raise _missing("power" if columns["time"] is not None else "time", header, file)
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if wrong is not None or not rows:
        where = f", line {wrong}" if wrong else ""
        raise InputError(f"{file}{where}: a row needs as many cells as the header", hint="fix or remove that line")
    time_s = _times_s([row[columns["time"]] for row in rows], header[columns["time"]])
    if columns["power"] is None:
        utils = {found[1]: place for place, cell in enumerate(header) if (found := _UTIL_OF.search(cell))}
        return tuple(
            _samples(rows, header, time_s, place, (utils.get(gpu), None), file) for gpu, place in apart.items()
        )
    samples = _samples(rows, header, time_s, columns["power"], (columns["sm"], columns["mem"]), file)
    gpus = _by_column(rows, columns["gpu"]) if columns["gpu"] is not None else _by_turns(time_s)
    return tuple(samples.where(gpus == gpu) for gpu in range(int(gpus.max()) + 1))


def _samples(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    time_s: Floats,
    power: int,
    utils: tuple[int | None, int | None],
    file: str,
) -> PowerSamples:
    power_w = _numbers([row[power] for row in rows]) / _PARTS.get(_unit(header[power]), 1.0)
    power_w = np.where(np.abs(power_w) <= LARGEST["W"], power_w, np.nan)
    known = np.isfinite(time_s) & np.isfinite(power_w)
    if known.sum() < (1 - _MOST_BROKEN) * len(rows):
        raise InputError(
            f"{file}: {len(rows) - int(known.sum())} of {len(rows)} rows have no time or no power", hint=f"use {FORMS}"
        )
    sm_util, mem_util = (_shares(rows, header, column) for column in utils)
    return PowerSamples(time_s - float(time_s[known][0]), power_w, sm_util, mem_util)


def _missing(kind: str, header: Sequence[str], file: str) -> InputError:
    """Return the error for a table without a column of time or power."""
    if any(np.isfinite(_number(cell)) for cell in header):
        hint = "log with --format=csv, without noheader, or write a line such as time_s,power_w above the values"
        return InputError(f"{file}: the first line does not name the columns", hint=hint)
    more = f" and {len(header) - _MOST_NAMED} more" if len(header) > _MOST_NAMED else ""
    hint = f"use {FORMS}"
    if kind == "time" and {"pwr", "entity"} & set(header):
        hint += "; dmon of nvidia-smi writes times with -o DT, that of dcgmi does not"
    return InputError(f"{file}: there is no {kind} column; it has {', '.join(header[:_MOST_NAMED])}{more}", hint=hint)


def busiest(traces: Sequence[PowerSamples]) -> int:
    """Return the number of the GPU that drew the most power."""
    known = [trace.power_w[np.isfinite(trace.power_w)] for trace in traces]
    return int(np.argmax([float(power_w.mean()) if len(power_w) else -np.inf for power_w in known]))


_KINDS = {"time": _TIMES, "power": _POWERS, "sm": _SM_UTILS, "mem": _MEM_UTILS, "gpu": _GPUS}


def _table(text: str, file: str) -> tuple[list[str], list[list[str]]]:
    """Return header and rows; a last row that was cut off is left out."""
    text = _monitored(text.removeprefix("\ufeff"))
    while text.startswith("#"):
        text = text.partition("\n")[2]
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    # Where semicolons separate cells, commas separate decimals.
    text = text.replace(",", ".") if delimiter == ";" else text
    try:
        lines = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter, strict=True) if any(row)]
    except csv.Error as error:
        raise InputError(f"{file}: {error}", hint=f"the file is not CSV; use {FORMS}") from None
    if len(lines) < 2:
        raise InputError(f"{file} {'has a header and no rows' if lines else 'is empty'}", hint=f"use {FORMS}")
    header = [cell.strip() for cell in lines[0]]
    rows = [[cell.strip() for cell in row] for row in lines[1:]]
    if len(rows[-1]) < len(header):
        rows.pop()
    # nvidia-smi writes its header again where a log was appended to.
    return header, [row for row in rows if row != header]


def _monitored(text: str) -> str:
    """Return a table of `nvidia-smi dmon` or `dcgmi dmon` as CSV; any other text as it is."""
    first = text.partition("\n")[0]
    names = first.lstrip("# ").lower().split()
    if not first.startswith("#") or "," in first or not {"pwr", "power"} & set(names):
        return text
    lines = [",".join(names)]
    for line in text.splitlines():
        # The names come again with every page, with units below them.
        cells = line.replace("GPU ", "GPU", 1).split()
        if cells and cells[0] not in ("#", "ID", "Id") and not cells[0].startswith("#"):
            lines.append(",".join(cells))
    if names[:2] == ["date", "time"]:
        lines = [lines[0].replace("date,time", "timestamp"), *(line.replace(",", " ", 1) for line in lines[1:])]
    return "\n".join(lines)


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the place of the first of the names that is present, without units."""
    plain = [re.sub(r"[^a-z0-9]+", "_", re.sub(r"\s*[\[(].*[\])]$", "", cell).lower()).strip("_") for cell in header]
    return next((plain.index(name) for name in names if name in plain), None)


def _unit(name: str) -> str:
    """Return the unit in the name of a column, in lower case; empty where it has none."""
    found = _UNIT.search(name.lower())
    return (found[1] or found[2] or "").strip() if found else ""


def _numbers(cells: Sequence[str]) -> Floats:
    """Parse cells as numbers, without units; NaN where a cell has none."""
    found = _NUMBER.match(cells[0]) if cells else None
    unit = cells[0][found.end() :] if found else ""
    try:
        # Several times faster, where all cells have the same unit or none.
        values = np.array([float(cell.removesuffix(unit)) for cell in cells], dtype=np.float64)
    except ValueError:
        return np.array(list(map(_number, cells)), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _number(cell: str) -> float:
    found = _NUMBER.match(cell)
    value = float(found[0]) if found else np.nan
    return value if isfinite(value) else np.nan


def _shares(rows: Sequence[Sequence[str]], header: Sequence[str], column: int | None) -> Floats | None:
    """Parse utilisation as 0 to 1; a column in percent is recognised by its name, unit or values."""
    if column is None:
        return None
    values = _numbers([row[column] for row in rows])
    percent = "%" in header[column] or "pct" in header[column].lower() or bool(np.nanmax(values, initial=0.0) > 1.5)
    return values / 100 if percent else values


def _times_s(cells: Sequence[str], name: str) -> Floats:
    """Parse seconds from numbers or dates; milli-, micro- and nanoseconds since 1970 are recognised by their size."""
    first = next((cell for cell in cells if cell), "")
    values = _numbers(cells) if np.isnan(_stamp_s(first)) else np.array([_stamp_s(cell) for cell in cells])
    if _unit(name) in _PARTS:
        return values / _PARTS[_unit(name)]
    known = np.isfinite(values)
    size = median(np.abs(values[known])) if known.any() else 0.0
    # Seconds since 1970 have ten digits; each thirteen, sixteen and nineteen digits a thousand times finer.
    for least, scale in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if size > least:
            return values / scale
    return values


def _stamp_s(cell: str) -> float:
    """Return the seconds of a date; one without a time zone is taken as UTC, which a change to summer time disturbs."""
    # `nvidia-smi dmon -o T` writes the time of day alone.
    cell = f"1970-01-01 {cell}" if _CLOCK.fullmatch(cell) else cell
    try:
        # nvidia-smi writes slashes.
        date = datetime.fromisoformat(cell.replace("/", "-"))
    except ValueError:
        return np.nan
    return (date - (_EPOCH if date.tzinfo is None else _EPOCH_UTC)).total_seconds()


def _by_column(rows: Sequence[Sequence[str]], column: int) -> Ints:
    order: dict[str, int] = {}
    return np.array([order.setdefault(row[column], len(order)) for row in rows], dtype=np.int64)


def _by_turns(time_s: Floats) -> Ints:
    """Return which GPU each row belongs to, by their times: rows of one poll come close together."""
    alone = np.zeros(len(time_s), dtype=np.int64)
    steps_s = np.diff(time_s)
    known_s = steps_s[np.isfinite(steps_s)]
    usual_s = quantiles(known_s, 0.9)[0] if len(known_s) else 0.0
    if usual_s <= 0:
        return alone
    first = np.append(True, ~(steps_s < _TOGETHER * usual_s))
    sizes = np.diff(np.append(np.flatnonzero(first), len(time_s)))
    size = int(median(sizes))
    if not 1 < size <= _MOST_GPUS or float(np.mean(sizes == size)) < _REGULAR:
        return alone
    place = np.arange(len(time_s)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    return np.asarray(np.minimum(place, size - 1), dtype=np.int64)
