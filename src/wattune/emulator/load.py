"""A load made ready for the library: one table for each memory clock of the GPU, all with the same phases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wattune.core.errors import InputError
from wattune.physics.load_table import Floats, LoadTable

MOST_PHASES = 64
"""As many as fit into the node's tables."""


def fitted(tables: Sequence[LoadTable], clocks: Sequence[tuple[int, tuple[int, ...]]]) -> list[LoadTable]:
    """The tables in the order of the GPU's memory clocks, neighbouring phases merged alike where there are too many."""
    by_mem = {table.mem_mhz: table for table in tables}
    found = []
    for mem_mhz, sm_mhz in clocks:
        table = by_mem.get(mem_mhz)
        if table is None or table.sm_mhz != sm_mhz:
            raise InputError(
                f"the load has no table for this GPU at a memory clock of {mem_mhz} MHz",
                hint="tabulate it for this kind of GPU",
            )
        found.append(table)
    if len({table.duration_s.shape[0] for table in found}) != 1:
        raise InputError("the tables of the load differ in phases", hint="tabulate them all from one workload")
    starts = found[0].stretches(MOST_PHASES)
    return [table.merged(starts) for table in found]


def pack(tables: Sequence[LoadTable]) -> tuple[Floats, ...]:
    """Durations, powers, use of core, memory, tensor and plain units of all tables, each as one array.

    One table after another; units whose use is not told are not used.
    """
    return (
        _joined(table.duration_s for table in tables),
        _joined(table.power_w for table in tables),
        _joined(table.sm_util for table in tables),
        _joined(table.mem_util for table in tables),
        _joined(_or_none(table.tensor_util, table) for table in tables),
        _joined(_or_none(table.fp32_util, table) for table in tables),
    )


def limited_w(tables: Sequence[LoadTable], clocks: Sequence[tuple[int, tuple[int, ...]]]) -> Floats:
    """What power limits act on, at every clock, one table after another in the order of the GPU's memory clocks."""
    by_mem = {table.mem_mhz: table for table in tables}
    return _joined(by_mem[mem_mhz].limited_power_w for mem_mhz, _ in clocks)


def _or_none(util: Floats | None, table: LoadTable) -> Floats:
    return np.zeros_like(table.duration_s) if util is None else util


def _joined(arrays: Iterable[Floats]) -> Floats:
    return np.ascontiguousarray(np.concatenate([np.ravel(array) for array in arrays]), dtype=np.float64)
