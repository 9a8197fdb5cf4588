"""The shape of a pipeline (schedule, stages, microbatches, chunks) and the work graph that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.errors import PlanError
from wattune.plans.plan import WorkGraph
from wattune.plans.schedules import EXTRAS, SCHEDULES, Order, interleaved, with_extras, work_graph

INTERLEAVED = "interleaved"
SCHEDULE_NAMES = (*SCHEDULES, INTERLEAVED)
LISTED = "listed"
"""The schedule of a shape that lists its order, because none of the named schedules has it."""


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """The pipeline that a plan is made for; a plan for one shape does not fit another."""

    schedule: str
    stages: int
    """Stages of the model; with chunks, `chunks` of them run on each rank."""
    microbatches: int
    chunks: int = 1
    extras: tuple[str, ...] = ()
    """Transfers and endings that the ranks run too, among `schedules.EXTRAS`."""
    listed: Order = ()
    """The order of every rank, where the schedule is `listed`."""

    def __post_init__(self) -> None:
        if (self.schedule == LISTED) != bool(self.listed):
            raise PlanError(f"a shape has an order of its own exactly where its schedule is {LISTED!r}")
        if self.schedule not in (*SCHEDULE_NAMES, LISTED):
            raise PlanError(f"there is no schedule {self.schedule!r}", hint=f"use one of {', '.join(SCHEDULE_NAMES)}")
        if min(self.stages, self.microbatches, self.chunks) < 1:
            raise PlanError(f"a pipeline has at least one stage, microbatch and chunk, not {self}")
        for extra in self.extras:
            if extra not in EXTRAS:
                raise PlanError(f"a pipeline has no extra {extra!r}", hint=f"it may run {', '.join(EXTRAS)}")
        if self.chunks > 1 and self.schedule not in (INTERLEAVED, LISTED):
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
        return self.stages // self.chunks

    @property
    def order(self) -> Order:
        """The pieces of each rank, in the order in which it runs them."""
        if self.listed:
            return self.listed
        if self.schedule == INTERLEAVED:
            plain = interleaved(self.ranks, self.microbatches, chunks=self.chunks)
        else:
            plain = SCHEDULES[self.schedule](self.ranks, self.microbatches)
        return with_extras(plain, self.extras) if self.extras else plain

    @property
    def graph(self) -> WorkGraph:
        return work_graph(self.order)

    def __str__(self) -> str:
        chunks = f" × {self.chunks} chunks" if self.chunks > 1 else ""
        return f"{self.schedule}, {self.ranks} ranks{chunks}, {self.microbatches} microbatches"


def shape_of_order(order: Order) -> PipelineShape:
    """Find the shape whose ranks run in this order: that of a named schedule, or one that lists the order."""
    pieces = [piece for rank in order for piece in rank]
    if not pieces or not all(order):
        raise PlanError("a pipeline has at least one rank, and every rank runs something")
    stages, microbatches = max(piece.stage for piece in pieces) + 1, max(piece.microbatch for piece in pieces) + 1
    chunks = max(stages // len(order), 1)
    for schedule in SCHEDULE_NAMES if stages % len(order) == 0 else ():
        if (chunks == 1 or schedule == INTERLEAVED) and not (schedule == INTERLEAVED and microbatches % len(order)):
            shape = PipelineShape(schedule, stages, microbatches, chunks)
            if shape.order == order:
                return shape
    return PipelineShape(LISTED, stages, microbatches, chunks, listed=order)


def shape_of(instructions: Sequence[Sequence[str]]) -> PipelineShape:
    """Find the named schedule whose ranks run these instructions in this order, one chunk per rank."""
    ranks = len(instructions)
    microbatches = sum(name == "forward" for name in instructions[0]) if ranks else 0
    if not microbatches:
        raise PlanError("a pipeline has at least one rank and one forward", hint="is the file a pipeline schedule?")
    for schedule in SCHEDULES:
        shape = PipelineShape(schedule, ranks, microbatches)
        if [[piece.instruction for piece in rank] for rank in shape.order] == [list(names) for names in instructions]:
            return shape
    raise PlanError(
        f"the instructions of these {ranks} ranks follow no known schedule",
        hint=f"known are {', '.join(SCHEDULES)}",
    )
