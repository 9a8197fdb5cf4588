"""Tables of kernel times over core and memory clocks, with what the names of the kernels give away.

A profiler writes a name such as `(392 4 1) (256 1 1) void cudnn::detail::activation_fw_4d_kernel<float`: grid, block,
function. Kernels of one function form a class. What a function does is known from its name for common libraries; the
arithmetic intensities behind the demands are in docs/explanation/layer-curves.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattune.core.csv_input import Row, parse_csv, read_text
from wattune.core.errors import InputError
from wattune.response.statistics import Floats

_COLUMNS = ("kernel", "sm_mhz", "mem_mhz", "count", "time_s")
_HINT = f"a table of kernels is a CSV file with the columns {','.join(_COLUMNS)}"

_MOST_LEFT_OUT = 0.05
"""Share of the time that may be left out because pairs are missing."""

_UNKNOWN = (np.nan, np.nan)
_DEMANDS = (
    (r"memcpy (HtoD|DtoH)", (0.0, 0.0)),
    (r"generate|offsets|pointers|flip_filter|sync_", _UNKNOWN),
    (r"bias|im2col|col2im|fft", (0.1, 1.0)),
    (r"gemm|scudnn|winograd|convol|conv_|dgrad|wgrad|xmma|cutlass", (1.0, 0.2)),
    (
        r"activation|relu|pool|add_|op_tensor|lrn|norm|softmax|dropout|concat|slice|axpy|scal|copy|memcpy|memset|fill"
        r"|elementwise|reduce|update|transpose",
        (0.1, 1.0),
    ),
)
"""Compute and memory time of functions, up to a factor: the first pattern that matches counts."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable:
    """Kernels that were measured at every pair of clocks."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    demand: Floats
    """(kernels, 2), nan where a name says nothing."""
    sm_mhz: Floats
    mem_mhz: Floats
    time_s: Floats
    """(kernels, pairs)"""
    calls: Floats
    """(kernels, pairs)"""
    left_out: tuple[str, ...]
    """A line for each kernel that was not measured at every pair."""

    @property
    def total_s(self) -> Floats:
        """(kernels, pairs): time of all calls."""
        return self.calls * self.time_s

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.sm_mhz.astype(int).tolist(), self.mem_mhz.astype(int).tolist(), strict=True))


def read_kernels(file: Path) -> KernelTable:
    """Read a table; kernels that lack a pair are left out by name, where they hardly matter."""
    rows = parse_csv(read_text(file, hint=_HINT), file=file.name, required=_COLUMNS)
    cells: dict[str, dict[tuple[int, int], tuple[float, float]]] = {}
    for row in rows:
        own, pair = cells.setdefault(row.text("kernel"), {}), (_clock(row, "sm_mhz"), _clock(row, "mem_mhz"))
        if pair in own:
            raise row.wrong("kernel", f"appears twice at {_text(pair)}")
        own[pair] = (row.positive("time_s"), row.positive("count"))
    seen = {pair for own in cells.values() for pair in own}
    pairs = sorted({(core, memory) for core, _ in seen for _, memory in seen}, reverse=True)
    missing = {name: [pair for pair in pairs if pair not in own] for name, own in cells.items()}
    left_out = tuple(f"{name} has no time at {_listed(lacking)}" for name, lacking in missing.items() if lacking)
    names = tuple(name for name in cells if not missing[name])
    _check_left_out(file, cells, names, left_out)
    table = np.array([[cells[name][pair] for pair in pairs] for name in names])
    clocks = np.array(pairs, dtype=np.float64)
    return KernelTable(
        names=names,
        classes=tuple(kernel_class(name) for name in names),
        demand=np.array([_demand(name) for name in names]),
        sm_mhz=clocks[:, 0],
        mem_mhz=clocks[:, 1],
        time_s=table[:, :, 0],
        calls=table[:, :, 1],
        left_out=left_out,
    )


def kernel_class(name: str) -> str:
    """Return the function of a kernel, without grid, block, return type, template and arguments."""
    function = re.sub(r"^(\([\d ]+\) )*(void )?", "", name)
    return re.split(r"[<(]", function)[0].strip() or name


def _demand(name: str) -> tuple[float, float]:
    function = kernel_class(name)
    return next((demand for pattern, demand in _DEMANDS if re.search(pattern, function, re.IGNORECASE)), _UNKNOWN)


def _clock(row: Row, column: str) -> int:
    clock = row.whole_or_none(column)
    if clock is None:
        raise row.wrong(column, "is empty")
    return clock


def _check_left_out(
    file: Path,
    cells: dict[str, dict[tuple[int, int], tuple[float, float]]],
    names: tuple[str, ...],
    left_out: tuple[str, ...],
) -> None:
    mean_s = {name: sum(time * count for time, count in own.values()) / len(own) for name, own in cells.items()}
    if sum(mean_s[name] for name in names) < (1.0 - _MOST_LEFT_OUT) * sum(mean_s.values()):
        raise InputError(f"{file.name}: {left_out[0]}", hint="every kernel needs a time at every pair of clocks")


def _listed(pairs: list[tuple[int, int]]) -> str:
    shown = ", ".join(_text(pair) for pair in pairs[:3])
    return shown if len(pairs) <= 3 else f"{shown} and {len(pairs) - 3} more pairs"


def _text(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]} MHz"
