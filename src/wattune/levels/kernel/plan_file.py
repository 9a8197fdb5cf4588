"""The plan file: a whole frontier of pipeline plans as one versioned JSON document, checked when it is read.

The file lists the instructions of each rank once, and once per kind of instruction the options that any plan uses, with
the time and energy that the profile gives them. A plan is then, rank by rank, one option number per instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from wattune.core.codec import JsonReader, to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan, StageChoice, WorkGraph
from wattune.core.setting import Setting
from wattune.levels.kernel.planned import PlannedPipeline, Source, timed
from wattune.levels.kernel.schedules import Piece
from wattune.levels.kernel.shape import LISTED, PipelineShape

E = TypeVar("E")

FORMAT = "wattune pipeline plan"
VERSION = 1
CLOSE = 1e-6
"""Largest relative difference between a predicted time or energy and the sum of the options of the same file."""

LONGEST_MESSAGE = 300
_MAKE = "make one with `wattune pipeline plan --out FILE`"

ORIGINS = {
    "options": "the profile",
    "time_s": "the options, each instruction started as soon as the schedule lets it",
    "energy_j": "the options, and blocking_power_w while a rank waits",
    "bound_j": "the linear relaxation: no plan of this time spends less",
    "blocking_power_w": "given to the planner",
    "default": "every instruction at the highest setting of the profile",
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
        _check_range(self, "stages", most=100_000)
        _check_range(self, "microbatches", most=100_000)
        _check_range(self, "chunks", most=1_000)
        if self.stages * self.microbatches > 10_000_000:
            raise ValueError("a pipeline has at most 10 million forwards")


@dataclass(frozen=True, slots=True)
class _ProfileEntry:
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class _OptionEntry:
    sm_mhz: int | None
    mem_mhz: int | None
    power_limit_w: float | None
    knobs: Mapping[str, str]
    time_s: float
    energy_j: float

    def __post_init__(self) -> None:
        for name in ("sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j"):
            if getattr(self, name) is not None:
                _check_range(self, name, most=1e300)

    @property
    def trial(self) -> Trial[StageChoice]:
        setting = Setting(self.sm_mhz, self.mem_mhz, self.power_limit_w)
        return Trial(StageChoice(setting, tuple(self.knobs.items())), Measurement(self.time_s, self.energy_j))


@dataclass(frozen=True, slots=True)
class _DefaultEntry:
    time_s: float
    energy_j: float
    ranks: tuple[tuple[int, ...], ...]
    """For each rank one option number per instruction."""


@dataclass(frozen=True, slots=True)
class _PlanEntry(_DefaultEntry):
    bound_j: float


@dataclass(frozen=True, slots=True)
class _PlanDocument:
    """The members of the JSON object, in the order of the file."""

    format: str
    version: int
    simulated: bool
    made_by: str
    pipeline: _PipelineEntry
    blocking_power_w: float
    profile: _ProfileEntry
    origins: Mapping[str, str]
    instructions: tuple[tuple[str, ...], ...]
    options: Mapping[str, tuple[_OptionEntry, ...]]
    chosen: int
    default: _DefaultEntry
    frontier: tuple[_PlanEntry, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.blocking_power_w <= 1e300:
            raise ValueError(f"blocking_power_w is {self.blocking_power_w:g}, which is negative or too large")
        if not 0 <= self.chosen < len(self.frontier):
            raise ValueError(f"chosen is {self.chosen}, and frontier has {len(self.frontier)} plans")


def _check_range(entry: object, name: str, *, most: float) -> None:
    value = getattr(entry, name)
    if not 0 < value <= most:
        raise ValueError(f"{name} is {str(value)[:40]}, which is not above 0 and at most {most:g}")


def plan_text(planned: PlannedPipeline) -> str:
    """Write the plan file: one line per plan and per rank's instructions, so that two files can be compared by eye."""
    lines = []
    for key, value in to_json(_document(planned)).items():
        if key in ("instructions", "frontier"):
            inner = ",\n    ".join(json.dumps(part, allow_nan=False) for part in value)
            lines.append(f'  "{key}": [\n    {inner}\n  ]')
        elif key == "options":
            inner = ",\n    ".join(f"{json.dumps(kind)}: {json.dumps(own)}" for kind, own in value.items())
            lines.append(f'  "{key}": {{\n    {inner}\n  }}')
        else:
            lines.append(f'  "{key}": {json.dumps(value, allow_nan=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _document(planned: PlannedPipeline) -> _PlanDocument:
    graph, shape = planned.graph, planned.shape
    options = _used_options(planned)
    numbers = {(kind, choice): number for kind, own in options.items() for number, choice in enumerate(own)}

    def by_rank(plan: Plan) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(numbers[graph.operations[place].kind, plan.choices[place]] for place in rank)
            for rank in graph.by_rank
        )

    return _PlanDocument(
        FORMAT,
        VERSION,
        planned.source.simulated,
        planned.made_by,
        _PipelineEntry(shape.schedule, shape.stages, shape.ranks, shape.microbatches, shape.chunks, shape.extras),
        planned.blocking_power_w,
        _ProfileEntry(planned.source.file, planned.source.sha256),
        ORIGINS,
        _names(graph),
        {kind: tuple(own.values()) for kind, own in options.items()},
        planned.chosen,
        _DefaultEntry(planned.default.cost.time_s, planned.default.cost.energy_j, by_rank(planned.default.choice)),
        tuple(
            _PlanEntry(trial.cost.time_s, trial.cost.energy_j, by_rank(trial.choice), trial.choice.bound_j)
            for trial in planned.frontier
        ),
    )


def _names(graph: WorkGraph) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(graph.operations[place].name for place in rank) for rank in graph.by_rank)


def _used_options(planned: PlannedPipeline) -> dict[str, dict[StageChoice, _OptionEntry]]:
    """For each kind the options that the default or any plan uses, highest setting first."""
    found: dict[str, dict[StageChoice, _OptionEntry]] = {}
    for plan in (planned.default.choice, *(trial.choice for trial in planned.frontier)):
        parts = zip(planned.graph.operations, plan.choices, plan.durations_s, plan.energies_j, strict=True)
        for operation, choice, time_s, energy_j in parts:
            own = found.setdefault(operation.kind, {})
            if choice not in own:
                setting = choice.setting
                own[choice] = _OptionEntry(
                    setting.sm_mhz, setting.mem_mhz, setting.power_limit_w, dict(choice.knobs), time_s, energy_j
                )
    return {kind: {choice: own[choice] for choice in sorted(own, reverse=True)} for kind, own in sorted(found.items())}


def read_plan(path: Path) -> PlannedPipeline:
    """Read a plan file, as `wattune pipeline plan --out` writes it."""
    return parse_plan(read_text(path, hint=_MAKE), file=str(path))


def parse_plan(text: str, *, file: str) -> PlannedPipeline:
    """Parse the text of a plan file; an error names the part that is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{file} is not JSON: {error}", hint=_MAKE) from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise PlanError(f"{file} is not a pipeline plan", hint=_MAKE)
    if value.get("version") != VERSION:
        raise PlanError(f"{file} is a plan of version {str(value.get('version'))[:20]}, not {VERSION}", hint=_MAKE)
    reader = JsonReader(source=file, hint="make the plan again, or correct that value", unknown_fields="skip")
    try:
        return _planned(reader.read(_PlanDocument, value), reader)
    except InputError as error:
        raise PlanError(error.message[:LONGEST_MESSAGE], hint=error.hint) from None


def _planned(document: _PlanDocument, reader: JsonReader) -> PlannedPipeline:
    shape = _shape(document, reader)
    graph = shape.graph
    _check_instructions(document.instructions, graph, reader)
    options = {kind: tuple(option.trial for option in own) for kind, own in document.options.items()}

    def trial(entry: _DefaultEntry, where: str) -> Trial[Plan]:
        """One plan, timed again from the options, which must agree with its predictions."""
        chosen = _chosen(entry.ranks, f"{where}.ranks", graph, options, reader)
        found = timed(graph, chosen, blocking_power_w=document.blocking_power_w)
        for name, sum_ in (("time_s", found.cost.time_s), ("energy_j", found.cost.energy_j)):
            predicted = getattr(entry, name)
            if abs(predicted - sum_) > CLOSE * sum_:
                reader.fail(f"{where}.{name}", f"is {predicted:g} where the options add up to {sum_:g}")
        return Trial(found.choice, Measurement(entry.time_s, entry.energy_j))

    trials = []
    for number, entry in enumerate(document.frontier):
        where = f"frontier[{number}]"
        found = trial(entry, where)
        if not entry.bound_j >= 0:
            reader.fail(f"{where}.bound_j", f"is {entry.bound_j:g}, which is negative")
        trials.append(Trial(replace(found.choice, bound_j=entry.bound_j), found.cost))
    try:
        frontier = Frontier(tuple(trials))
    except ValueError as error:
        reader.fail("frontier", str(error))
    source = Source(document.profile.file, document.profile.sha256, document.simulated)
    default = trial(document.default, "default")
    return PlannedPipeline(
        shape, document.blocking_power_w, source, default, frontier, document.made_by, document.chosen
    )


def _shape(document: _PlanDocument, reader: JsonReader) -> PipelineShape:
    entry = document.pipeline
    order = tuple(
        tuple(_piece(name, f"instructions[{rank}][{place}]", reader) for place, name in enumerate(names))
        for rank, names in enumerate(document.instructions if entry.schedule == LISTED else ())
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


def _check_instructions(listed: tuple[tuple[str, ...], ...], graph: WorkGraph, reader: JsonReader) -> None:
    """Refuse a file that lists other instructions than its schedule runs."""
    for where, name, place in _entries(listed, "instructions", graph, reader):
        right = graph.operations[place].name
        if name != right:
            reader.fail(where, f"is {name[:40]!r} where the schedule has {right!r}")


def _chosen(
    ranks: tuple[tuple[int, ...], ...],
    where: str,
    graph: WorkGraph,
    options: Mapping[str, tuple[Trial[StageChoice], ...]],
    reader: JsonReader,
) -> list[Trial[StageChoice]]:
    """The option of every operation, in the graph's order."""
    found: dict[int, Trial[StageChoice]] = {}
    for path, number, place in _entries(ranks, where, graph, reader):
        kind = graph.operations[place].kind
        if not 0 <= number < len(options.get(kind, ())):
            reader.fail(path, f"{kind} has no option {number}")
        found[place] = options[kind][number]
    return [found[place] for place in range(len(graph.operations))]


def _entries(
    ranks: tuple[tuple[E, ...], ...], where: str, graph: WorkGraph, reader: JsonReader
) -> Iterator[tuple[str, E, int]]:
    """Every entry of the lists of all ranks: its path in the file, itself, and the place of its operation."""
    if len(ranks) != len(graph.by_rank):
        reader.fail(where, f"{len(ranks)} ranks where the schedule has {len(graph.by_rank)}")
    for rank, (entries, places) in enumerate(zip(ranks, graph.by_rank, strict=True)):
        if len(entries) != len(places):
            reader.fail(f"{where}[{rank}]", f"{len(entries)} entries where the schedule has {len(places)} instructions")
        for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
            yield f"{where}[{rank}][{number}]", entry, place
