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
from typing import Any

from wattune.benchmarks.kernels.configurations import GPU, configuration_rows, truth_goals
from wattune.benchmarks.kernels.end_to_end import end_to_end_goals, end_to_end_rows, speed_goals, speed_rows
from wattune.benchmarks.kernels.simulated_search import NOTE, search_goals, search_rows
from wattune.benchmarks.kernels.table import bench_table
from wattune.benchmarks.result import Bench, Goal, Row
from wattune.core.errors import InputError
from wattune.physics.catalog import load_model

SECTIONS = ("truth", "end-to-end", "search", "speed", "table")


def bench_kernels_level(
    *,
    table: Path | None = None,
    sections: tuple[str, ...] = (),
    seeds: int = 20,
    processes: int = 2,
    on_step: Callable[[str, int, int], None],
) -> Bench:
    """Run the sections named, or all of them; that of a table needs a file."""
    for section in sections:
        if section not in SECTIONS:
            raise InputError(f"there is no section {section!r}", hint=f"there are {', '.join(SECTIONS)}")
    if "table" in sections and table is None:
        raise InputError("the section table needs a measured sweep", hint="add --table FILE.csv")
    rows: list[Row] = []
    goals: list[Goal] = []
    notes: list[str] = []
    figures: dict[str, Any] = {}
    # A table that is given stands alone unless other sections are named too.
    for section in sections or (("table",) if table is not None else SECTIONS):
        on_step(section, 0, 1)
        match section:
            case "truth":
                found = configuration_rows(load_model(GPU))
                rows.extend(found)
                goals.extend(truth_goals(found))
            case "end-to-end":
                found = end_to_end_rows(
                    seed=0, processes=processes, on_case=lambda done: on_step("end-to-end", done, 10)
                )
                rows.extend(found)
                goals.extend(end_to_end_goals(found))
            case "search":
                found = search_rows(seed=0, processes=processes, on_case=lambda done: on_step("search", done, 10))
                rows.extend(found)
                goals.extend(search_goals(found))
                notes.append(NOTE)
            case "speed":
                speeds = speed_rows()
                rows.extend(speeds)
                goals.extend(speed_goals(speeds))
            case "table" if table is not None:
                swept = bench_table(table, seeds=seeds, processes=processes, on_step=lambda text: on_step(text, 0, 1))
                rows.extend(swept.rows)
                goals.extend(swept.goals)
                notes.extend(swept.notes)
                figures.update(swept.figures)
    simulated = any(row.get("simulated", False) for row in rows)
    return Bench(
        bench="kernels",
        simulated=simulated,
        rows=tuple(rows),
        goals=tuple(goals),
        notes=tuple(notes),
        figures=figures,
    )
