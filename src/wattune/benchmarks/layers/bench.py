"""`wattune bench layers`: all its parts, in one outcome.

thesis      strategies beside the findings of the Chalmers thesis
language    free switching in a language model beside published figures
chain       the time to plan a long chain
transfer    plans from few measurements
hooks       overhead of playing a plan on a PyTorch program
kernels     real kernels predicted at pairs of clocks that were not measured, with a file of them
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wattune.benchmarks.layers.kernels import bench_kernels
from wattune.benchmarks.layers.switching import chain_goal, chain_rows, language_rows
from wattune.benchmarks.layers.thesis import cases, thesis_goals, thesis_rows
from wattune.benchmarks.layers.transfer import transfer_goals, transfer_rows
from wattune.benchmarks.result import Bench, Goal, Row
from wattune.core.errors import InputError

SECTIONS = ("thesis", "language", "chain", "transfer", "hooks", "kernels")

_LANGUAGE_NOTE = (
    "Published for GPT-3 with free switching: 14.6 % less energy at 0.6 % slowdown per kernel, 2 % per pass (arXiv "
    "2601.08539). Ours are lower per kernel: in our description of GPT-3 large matrix products, which the core clock "
    "limits, take nearly all of the time, and data-centre GPUs have one memory clock."
)


def bench_layers(
    *,
    kernels: Path | None = None,
    sections: tuple[str, ...] = (),
    seeds: int = 10,
    processes: int = 2,
    on_step: Callable[[str, int, int], None],
) -> Bench:
    """Run the sections named, or all of them; that of kernels needs a file."""
    for section in sections:
        if section not in SECTIONS:
            raise InputError(f"there is no section {section!r}", hint=f"there are {', '.join(SECTIONS)}")
    if "kernels" in sections and kernels is None:
        raise InputError("the section kernels needs a file of kernels", hint="add --kernels FILE.csv")
    rows: list[Row] = []
    goals: list[Goal] = []
    notes: list[str] = []
    figures: dict[str, Any] = {}

    def add(found: Bench) -> None:
        rows.extend(found.rows)
        goals.extend(found.goals)
        notes.extend(found.notes)
        figures.update(found.figures)

    for section in sections or SECTIONS:
        on_step(section, 0, 1)
        match section:
            case "thesis":
                found = thesis_rows(processes, lambda done: on_step("thesis", done, len(cases())))
                rows.extend(found)
                goals.extend(thesis_goals(found))
            case "language":
                rows.extend(language_rows())
                notes.append(_LANGUAGE_NOTE)
            case "chain":
                chains = chain_rows()
                rows.extend(chains)
                goals.append(chain_goal(chains))
            case "transfer":
                transfers = transfer_rows()
                rows.extend(transfers)
                goals.extend(transfer_goals(transfers))
            case "hooks":
                if find_spec("torch") is None:
                    notes.append("hooks: not measured, since PyTorch is not installed (pip install 'wattune[torch]')")
                    continue
                from wattune.benchmarks.layers.hooks import bench_hooks

                add(bench_hooks())
            case "kernels" if kernels is not None:
                add(bench_kernels(kernels, seeds=seeds))
    simulated = any(row.get("simulated", False) for row in rows)
    return Bench(
        bench="layers",
        simulated=simulated,
        rows=tuple(rows),
        goals=tuple(goals),
        notes=tuple(notes),
        figures=figures,
    )
