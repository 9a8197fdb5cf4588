"""The shape of a pipeline: schedule, stages, microbatches, chunks; and the graph that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.errors import PlanError
from wattune.core.workgraph import WorkGraph
from wattune.levels.kernel.schedules import EXTRAS, SCHEDULES, Order, interleaved, with_extras, work_graph

INTERLEAVED = "interleaved"
SCHEDULE_NAMES = (*SCHEDULES, INTERLEAVED)


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """What a plan is made for; a plan for one shape does not fit another."""

    schedule: str
    stages: int
    """Stages of the model; with chunks, `chunks` of them run on each rank."""
    microbatches: int
    chunks: int = 1
    extras: tuple[str, ...] = ()
    """Transfers and endings that the ranks run besides, among `schedules.EXTRAS`."""

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULE_NAMES:
            raise PlanError(f"there is no schedule {self.schedule!r}", hint=f"use one of {', '.join(SCHEDULE_NAMES)}")
        if min(self.stages, self.microbatches, self.chunks) < 1:
            raise PlanError(f"a pipeline has at least one stage, microbatch and chunk, not {self}")
        for extra in self.extras:
            if extra not in EXTRAS:
                raise PlanError(f"a pipeline runs no {extra!r} besides", hint=f"it may run {', '.join(EXTRAS)}")
        if self.chunks > 1 and self.schedule != INTERLEAVED:
            raise PlanError(
                f"{self.schedule} runs one chunk per rank, not {self.chunks}", hint=f"chunks are for {INTERLEAVED}"
            )
        if self.stages % self.chunks:
            raise PlanError(
                f"{self.stages} stages cannot be spread over ranks of {self.chunks} chunks",
                hint="the profile has one stage per chunk of each rank",
            )

    @property
    def ranks(self) -> int:
        """Ranks of one pipeline."""
        return self.stages // self.chunks

    @property
    def order(self) -> Order:
        """What each rank runs, in its order."""
        if self.schedule == INTERLEAVED:
            plain = interleaved(self.ranks, self.microbatches, chunks=self.chunks)
        else:
            plain = SCHEDULES[self.schedule](self.ranks, self.microbatches)
        return with_extras(plain, self.extras) if self.extras else plain

    @property
    def graph(self) -> WorkGraph:
        """The operations and what each waits for."""
        return work_graph(self.order)

    def __str__(self) -> str:
        chunks = f" × {self.chunks} chunks" if self.chunks > 1 else ""
        return f"{self.schedule}, {self.ranks} ranks{chunks}, {self.microbatches} microbatches"


def shape_of(instructions: Sequence[Sequence[str]]) -> PipelineShape:
    """The shape whose ranks run these instructions in this order, one chunk per rank."""
    ranks = len(instructions)
    microbatches = sum(name == "forward" for name in instructions[0]) if ranks else 0
    if not microbatches:
        raise PlanError("a pipeline has at least one rank and one forward", hint="is the file a pipeline schedule?")
    for schedule in SCHEDULES:
        shape = PipelineShape(schedule, ranks, microbatches)
        if [[piece.instruction for piece in rank] for rank in shape.order] == [list(names) for names in instructions]:
            return shape
    raise PlanError(
        f"the instructions of these {ranks} ranks follow no schedule that is known",
        hint=f"known are {', '.join(SCHEDULES)}",
    )


def places_by_rank(graph: WorkGraph) -> tuple[tuple[int, ...], ...]:
    """For each rank the places of its operations in the graph, in the order in which it runs them."""
    ranks: dict[int, list[int]] = {}
    for place, operation in enumerate(graph.operations):
        ranks.setdefault(operation.rank, []).append(place)
    return tuple(tuple(ranks[rank]) for rank in sorted(ranks))
