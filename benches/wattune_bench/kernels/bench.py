"""`wattune bench kernels`: all its parts, in one outcome.

truth       Megatron, Perseus and nanobatching of ten configurations beside their published iterations
end-to-end  the same with searched partitions, by Kareus's rule and by ours
search      measurements until the composed frontier is right, on simulated partitions
speed       CPU time of composing frontiers and of planning a model of 70 billion parameters
table       measurements until the frontier of a measured sweep is right, with a file of it
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wattune.core.errors import InputError
from wattune.physics.catalog import load_model
from wattune_bench.kernels.configurations import (
    CONFIGURATIONS,
    GPU,
    KAREUS,
    MEASURED_GAINS,
    configuration_rows,
    truth_goals,
)
from wattune_bench.kernels.end_to_end import end_to_end_goals, end_to_end_rows, speed_goals, speed_rows
from wattune_bench.kernels.simulated_search import NOTE, SEARCH_CASES, search_goals, search_rows
from wattune_bench.kernels.table import bench_table
from wattune_bench.result import Bench, check_sections, joined, part

_GAINS = MEASURED_GAINS[KAREUS]
_MEASURED_NOTE = (
    f"Measured, not predicted, for Kareus on {CONFIGURATIONS[0].name}: {_GAINS.energy_percent:g} % less energy at "
    f"equal time and {_GAINS.time_percent:g} % less time at equal energy than Megatron+Perseus."
)

SECTIONS = ("truth", "end-to-end", "search", "speed", "table")


OnStep = Callable[[str, int, int], None]


def bench_kernels_level(
    *,
    table: Path | None = None,
    sections: tuple[str, ...] = (),
    seeds: int = 20,
    processes: int = 2,
    on_step: OnStep,
) -> Bench:
    """Run the sections named, or all of them; that of a table needs a file."""
    check_sections(sections, SECTIONS)
    if "table" in sections and table is None:
        raise InputError("the section table needs a measured sweep", hint="add --table FILE.csv")
    runs: dict[str, Callable[[], Bench]] = {
        "truth": _truth,
        "end-to-end": lambda: _end_to_end(processes, on_step),
        "search": lambda: _search(processes, on_step),
        "speed": _speed,
        "table": lambda: part() if table is None else _table(table, seeds, processes, on_step),
    }
    found = []
    # A table that is given stands alone unless other sections are named too.
    for section in sections or (("table",) if table is not None else SECTIONS):
        on_step(section, 0, 1)
        found.append(runs[section]())
    return joined("kernels", found)


def _truth() -> Bench:
    rows = configuration_rows(load_model(GPU))
    return part(rows, truth_goals(rows))


def _end_to_end(processes: int, on_step: OnStep) -> Bench:
    rows = end_to_end_rows(seed=0, processes=processes, on_case=lambda done: on_step("end-to-end", done, 10))
    return part(rows, end_to_end_goals(rows), (_MEASURED_NOTE,))


def _search(processes: int, on_step: OnStep) -> Bench:
    rows = search_rows(seed=0, processes=processes, on_case=lambda done: on_step("search", done, SEARCH_CASES))
    return part(rows, search_goals(rows), (NOTE,))


def _speed() -> Bench:
    rows = speed_rows()
    return part(rows, speed_goals(rows))


def _table(table: Path, seeds: int, processes: int, on_step: OnStep) -> Bench:
    return bench_table(table, seeds=seeds, processes=processes, on_step=on_step)
