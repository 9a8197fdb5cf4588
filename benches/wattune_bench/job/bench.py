"""`wattune bench job`: batch size and power limit of recurring jobs, replayed from recorded tables.

Policies: `default` (the owner's batch size at the highest limit), `grid` (search over all), `zeus` (as published),
`zeus-package` (by its authors' own simulator, where installed), `wattune` (ours), `wattune-safe` (ours, which risks no
more than a job can lose), `oracle` (the best fixed choice).
Zeus is played in the conditions of its published simulator, which knows limits without noise and may call a run off
before it starts; `wattune` measures in noisy windows and pays for all it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from wattune.core.errors import InputError
from wattune_bench.datasets.zeus_tables import SOURCE
from wattune_bench.job import zeus_package as job_zeus_package
from wattune_bench.job.cases import SECTIONS, cases_of, run_case
from wattune_bench.job.figures import (
    OURS,
    Outcomes,
    beside,
    energy_saving,
    goals_of,
    mean_row,
    policy_rows,
    seed_rows,
    speed_goal,
)
from wattune_bench.job.trace import TraceWorkload, read_workloads
from wattune_bench.parallel import in_processes
from wattune_bench.result import Bench, Row

PUBLISHED_SAVING_PERCENT = (15.3, 75.8)
"""Energy that Zeus saves against the default (You et al., NSDI'23, abstract)."""

OnStep = Callable[[str, int, int], None]
"""Receives what is going on, how many cases are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlayed:
    """The outcomes of all cases, and the time they took."""

    outcomes: Outcomes
    workloads: tuple[TraceWorkload, ...]
    sections: tuple[str, ...]
    seeds: int
    whole: bool
    """True where all workloads and sections were played."""
    elapsed_s: float


def play_job_bench(
    data: Path,
    gpus: Sequence[str] = (),
    *,
    seeds: int = 20,
    eta: float = 0.5,
    workloads: Sequence[str] = (),
    sections: Sequence[str] = (),
    processes: int = 2,
    on_step: OnStep | None = None,
) -> JobPlayed:
    """Play every case of the sections; `workloads` are parts of their names; none of either means all."""
    start = perf_counter()
    parts = _sections(sections)
    every = read_workloads(data, gpus)
    chosen = _named(every, workloads)
    cases = [
        case
        for section in parts
        for case in cases_of(section, chosen, eta=eta, seeds=seeds, package=job_zeus_package.installed())
    ]
    say = on_step or _silent
    say("replaying", 0, len(cases))
    played = in_processes(run_case, cases, processes=processes, on_case=lambda done: say("replaying", done, len(cases)))
    return JobPlayed(
        outcomes=tuple(zip(cases, played, strict=True)),
        workloads=chosen,
        sections=parts,
        seeds=seeds,
        whole=len(chosen) == len(every) and parts == SECTIONS,
        elapsed_s=perf_counter() - start,
    )


def bench_of(played: JobPlayed) -> Bench:
    """Return the rows, figures and goals of what was played."""
    gpus = len({workload.gpu.name for workload in played.workloads})
    horizon = [pair for pair in played.outcomes if pair[0].section == "horizon"]
    return Bench(
        bench="job",
        simulated=False,
        rows=tuple(row for case, outcome in horizon for row in seed_rows(case, outcome, horizon)),
        goals=(
            *goals_of(played.outcomes),
            speed_goal(played.elapsed_s, gpus=gpus, seeds=played.seeds, whole=played.whole),
        ),
        notes=_notes(played, horizon),
        figures=_figures(played, horizon),
    )


def _silent(step: str, done: int, of: int) -> None:
    del step, done, of


def _sections(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in SECTIONS:
            raise InputError(f"the bench has no section {name!r}", hint=f"it has {', '.join(SECTIONS)}")
    return tuple(section for section in SECTIONS if not names or section in names)


def _named(workloads: tuple[TraceWorkload, ...], words: Sequence[str]) -> tuple[TraceWorkload, ...]:
    for word in words:
        if not any(word in workload.name for workload in workloads):
            known = ", ".join(dict.fromkeys(workload.name.split()[0] for workload in workloads))
            raise InputError(f"the tables have no workload {word!r}", hint=f"they have {known}")
    return tuple(work for work in workloads if not words or any(word in work.name for word in words))


def _figures(played: JobPlayed, horizon: Outcomes) -> dict[str, Any]:
    """Return the summary: means per policy and workload, the other sections, and the time."""
    found: dict[str, Any] = {"policies": policy_rows(horizon), "workloads": _mean_rows(horizon)}
    for section in played.sections:
        if section != "horizon":
            found[section] = _mean_rows([pair for pair in played.outcomes if pair[0].section == section])
    found["published_energy_saving_percent"] = PUBLISHED_SAVING_PERCENT
    found["energy_saving_percent"] = _saving_range(horizon)
    found["cpu_s"] = sum(outcome.cpu_s for _, outcome in played.outcomes)
    found["elapsed_s"] = played.elapsed_s
    return found


def _mean_rows(outcomes: Outcomes) -> list[Row]:
    return [mean_row(case, played, outcomes) for case, played in outcomes]


def _saving_range(horizon: Outcomes) -> tuple[float, float] | None:
    """Return the least and the most energy that ours saves on a workload against the default."""
    savings = [
        energy_saving(played, default)
        for case, played in horizon
        if case.policy == OURS and (default := beside(horizon, case, "default")) is not None
    ]
    return (min(savings), max(savings)) if savings else None


def _notes(played: JobPlayed, horizon: Outcomes) -> tuple[str, ...]:
    notes = [
        f"replayed from {SOURCE}; a policy sees what a live job would see.",
        *dict.fromkeys(note for workload in played.workloads for note in workload.notes),
    ]
    ours = _saving_range(horizon)
    if ours is not None:
        notes.append(
            f"energy saved against the default over the horizon: {ours[0]:.1f} to {ours[1]:.1f} % by wattune; "
            f"published for Zeus: {PUBLISHED_SAVING_PERCENT[0]} to {PUBLISHED_SAVING_PERCENT[1]} %."
        )
    made = [case.workload for case, _ in played.outcomes if case.section == "unseen"]
    if made:
        notes.append("made-up tables are public ones that were changed: limits, cost of an iteration, and in each job:")
        notes += dict.fromkeys(note for workload in made for note in workload.notes)
    if not job_zeus_package.installed():
        notes.append("the zeus package is not installed here, so it is not shown: pip install './benches[peers]'")
    notes.append(f"{played.elapsed_s:.0f} s, {sum(outcome.cpu_s for _, outcome in played.outcomes):.0f} s of CPU.")
    return tuple(notes)
