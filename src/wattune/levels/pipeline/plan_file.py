"""The plan file of a pipeline: the common form of plan files, with the shape of the pipeline and its profile.

The file lists the instructions of each rank once, and once per kind of instruction the options that any plan uses, with
the time and energy that the profile gives them. A plan is then, rank by rank, one option number per instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from wattune.core.codec import JsonReader
from wattune.core.csv_input import read_text
from wattune.levels.pipeline.planned import PlannedPipeline, Source
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.levels.pipeline.solver.switching import ClockSwitching
from wattune.plans.plan import WorkGraph
from wattune.plans.plan_file import PIPELINE_PLAN, PlanReader, PlanSet, check_range, parse_plan_file, plan_file_text
from wattune.plans.schedules import Piece
from wattune.plans.shape import LISTED, PipelineShape
from wattune.plans.stage_profile import HIGHEST

ORIGINS = {
    "options": "the profile",
    "time_s": "the options, each instruction started as soon as the schedule lets it",
    "energy_j": "the options, and blocking_power_w while a rank waits",
    "bound_j": "the linear relaxation: no plan of this time spends less",
    "blocking_power_w": "given to the planner",
    "switching": "latency and stall of a change of clocks by their source; null where it was taken to be free",
    "default": "what plans are compared with, by baseline",
}


@dataclass(frozen=True, slots=True)
class _PipelineEntry:
    schedule: str
    stages: int
    ranks: int
    microbatches: int
    chunks: int
    extras: tuple[str, ...]

    def __post_init__(self) -> None:
        check_range(self, "stages", most=100_000)
        check_range(self, "microbatches", most=100_000)
        check_range(self, "chunks", most=1_000)
        if self.stages * self.microbatches > 10_000_000:
            raise ValueError("a pipeline has at most 10 million forwards")


@dataclass(frozen=True, slots=True)
class _ProfileEntry:
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class _Head:
    """The members of the JSON object before the plans, in the order of the file."""

    simulated: bool
    made_by: str
    pipeline: _PipelineEntry
    blocking_power_w: float
    profile: _ProfileEntry
    origins: Mapping[str, str]
    instructions: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not 0 <= self.blocking_power_w <= 1e300:
            raise ValueError(f"blocking_power_w is {self.blocking_power_w:g}, which is negative or too large")


@dataclass(frozen=True, slots=True)
class _SwitchingEntry:
    """The member `switching`, which files without it leave out: there clocks change at once."""

    latency_s: float
    stall_s: float
    source: str
    free_energy_j: tuple[float, ...]

    @property
    def value(self) -> ClockSwitching:
        return ClockSwitching(self.latency_s, self.stall_s, self.source)


@dataclass(frozen=True, slots=True)
class _SwitchedHead(_Head):
    switching: _SwitchingEntry | None
    gpu: str | None
    baseline: str
    gpus_per_rank: int


@dataclass(frozen=True, slots=True)
class _Later:
    """Members that older files lack."""

    gpu: str | None = None
    baseline: str = HIGHEST
    gpus_per_rank: int = 1

    def __post_init__(self) -> None:
        check_range(self, "gpus_per_rank", most=1_000_000)


def plan_text(planned: PlannedPipeline) -> str:
    """Write the plan file: one line per plan and per rank's instructions, so that two files can be compared by eye."""
    shape, switching = planned.shape, planned.switching
    head = _SwitchedHead(
        planned.source.simulated,
        planned.made_by,
        _PipelineEntry(shape.schedule, shape.stages, shape.ranks, shape.microbatches, shape.chunks, shape.extras),
        planned.blocking_power_w,
        _ProfileEntry(planned.source.file, planned.source.sha256),
        ORIGINS,
        _names(planned.graph),
        None
        if switching is None
        else _SwitchingEntry(switching.latency_s, switching.stall_s, switching.source, planned.free_energies_j),
        planned.source.gpu,
        planned.baseline,
        planned.gpus_per_rank,
    )
    return plan_file_text(PIPELINE_PLAN, head, PlanSet(planned.default, planned.frontier, planned.chosen))


def _names(graph: WorkGraph) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(graph.operations[place].name for place in rank) for rank in graph.by_rank)


def read_plan(path: Path) -> PlannedPipeline:
    """Read a plan file, as `wattune pipeline plan --out` writes it."""
    return parse_plan(read_text(path, hint=PIPELINE_PLAN.make), file=str(path))


def parse_plan(text: str, *, file: str) -> PlannedPipeline:
    """Parse the text of a plan file; an error names the part that is wrong."""
    return parse_plan_file(text, form=PIPELINE_PLAN, file=file, build=_planned)


def _planned(reader: PlanReader) -> PlannedPipeline:
    head = reader.head(_Head)
    shape = _shape(head, reader.codec)
    graph = shape.graph
    _check_instructions(head.instructions, graph, reader)
    plans = reader.plans(graph, partial(timed, graph, blocking_power_w=head.blocking_power_w))
    later = replace(reader.codec, missing_fields="default").read(_Later, reader.value)
    source = Source(head.profile.file, head.profile.sha256, head.simulated, later.gpu)
    found = PlannedPipeline(
        shape,
        head.blocking_power_w,
        source,
        plans.default,
        plans.frontier,
        head.made_by,
        plans.chosen,
        baseline=later.baseline,
        gpus_per_rank=later.gpus_per_rank,
    )
    entry = reader.value.get("switching")
    if entry is None:
        return found
    switching = reader.codec.read(_SwitchingEntry, entry, "switching")
    if len(switching.free_energy_j) != len(plans.frontier):
        reader.codec.fail("switching.free_energy_j", f"has not one entry per plan: {len(plans.frontier)}")
    for number, energy_j in enumerate(switching.free_energy_j):
        if not energy_j > 0:
            reader.codec.fail(f"switching.free_energy_j[{number}]", f"is {energy_j:g}, which is not above 0")
    return replace(found, switching=switching.value, free_energies_j=switching.free_energy_j)


def _shape(head: _Head, reader: JsonReader) -> PipelineShape:
    entry = head.pipeline
    order = tuple(
        tuple(_piece(name, f"instructions[{rank}][{place}]", reader) for place, name in enumerate(names))
        for rank, names in enumerate(head.instructions if entry.schedule == LISTED else ())
    )
    shape = PipelineShape(entry.schedule, entry.stages, entry.microbatches, entry.chunks, entry.extras, order)
    if entry.ranks != shape.ranks:
        reader.fail("pipeline.ranks", f"is {entry.ranks}, and stages and chunks make {shape.ranks}")
    return shape


def _piece(name: str, where: str, reader: JsonReader) -> Piece:
    found = re.fullmatch(r"([a-z-]{1,40}) (\d{1,6})\.(\d{1,6})", name)
    if not found:
        reader.fail(where, f"{name[:40]!r} is not an instruction such as 'forward 2.5'")
    return Piece(found[1], int(found[2]), int(found[3]))


def _check_instructions(listed: tuple[tuple[str, ...], ...], graph: WorkGraph, reader: PlanReader) -> None:
    """Refuse a file that lists other instructions than its schedule runs."""
    for where, name, place in reader.entries(listed, "instructions", graph):
        right = graph.operations[place].name
        if name != right:
            reader.codec.fail(where, f"is {name[:40]!r} where the schedule has {right!r}")
