"""Pipeline schedules as work graphs: the order of each rank, and the dependencies of each piece.

Notation: S stages, M microbatches, V chunks (virtual stages) per rank, F forward, B backward, R recomputation, W the
part of backward that makes the weight gradients. Sources: GPipe (Huang et al. 2019), 1F1B (PipeDream-Flush, Narayanan
et al. 2021), interleaved 1F1B (Megatron-LM, Narayanan et al. SC'21), early recomputation (Merak, Lai et al. 2023), zero
bubble ZB-H1 (Qi et al. ICLR'24).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wattune.core.errors import PlanError
from wattune.plans.plan import Operation, WorkGraph

FORWARD, BACKWARD, RECOMPUTE, WEIGHT = "forward", "backward", "recompute", "weight"

SEND_FORWARD, SEND_BACKWARD, ALL_REDUCE, OPTIMIZER = "send-forward", "send-backward", "all-reduce", "optimizer"
EXTRAS = (SEND_FORWARD, SEND_BACKWARD, ALL_REDUCE, OPTIMIZER)
"""Optional pieces: point-to-point transfers, the data-parallel all-reduce, the optimizer's step."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One instruction of one stage for one microbatch."""

    instruction: str
    stage: int
    microbatch: int

    @property
    def kind(self) -> str:
        """The key of its options."""
        return kind_of(self.stage, self.instruction)

    @property
    def name(self) -> str:
        return f"{self.instruction} {self.stage}.{self.microbatch}"


def kind_of(stage: int, instruction: str) -> str:
    """Name the kind of an instruction of a stage."""
    return f"{stage}.{instruction}"


Order = tuple[tuple[Piece, ...], ...]
"""The pieces of each rank, in the order in which it runs them."""


def gpipe(stages: int, microbatches: int) -> Order:
    """Order all forwards, then all backwards."""
    _check(stages, microbatches)
    return tuple(
        tuple(Piece(FORWARD, stage, microbatch) for microbatch in range(microbatches))
        + tuple(Piece(BACKWARD, stage, microbatch) for microbatch in reversed(range(microbatches)))
        for stage in range(stages)
    )


def one_forward_one_backward(stages: int, microbatches: int) -> Order:
    """Order as few forwards ahead as the pipeline needs, then one forward and one backward in turn."""
    _check(stages, microbatches)
    return tuple(
        tuple(_in_turn(stage, microbatches, ahead=min(stages - 1 - stage, microbatches))) for stage in range(stages)
    )


def _in_turn(stage: int, microbatches: int, *, ahead: int) -> Iterator[Piece]:
    for microbatch in range(ahead):
        yield Piece(FORWARD, stage, microbatch)
    for microbatch in range(microbatches):
        if ahead + microbatch < microbatches:
            yield Piece(FORWARD, stage, ahead + microbatch)
        yield Piece(BACKWARD, stage, microbatch)


def early_recomputation(stages: int, microbatches: int) -> Order:
    """Order 1F1B with a recomputation before each backward, which need not wait for the gradient."""
    return tuple(
        tuple(part for piece in rank for part in _with_recomputation(piece))
        for rank in one_forward_one_backward(stages, microbatches)
    )


def _with_recomputation(piece: Piece) -> tuple[Piece, ...]:
    if piece.instruction != BACKWARD:
        return (piece,)
    return (Piece(RECOMPUTE, piece.stage, piece.microbatch), piece)


def interleaved(stages: int, microbatches: int, *, chunks: int) -> Order:
    """Order 1F1B over `chunks` virtual stages per rank; virtual stage v of rank r is stage v·S + r."""
    _check(stages, microbatches)
    if chunks < 1:
        raise PlanError(f"a rank has at least one chunk, not {chunks}")
    if chunks == 1:
        return one_forward_one_backward(stages, microbatches)
    if microbatches % stages:
        raise PlanError(
            f"interleaved 1F1B needs a multiple of {stages} microbatches, not {microbatches}",
            hint=f"use {microbatches // stages * stages or stages} or {(microbatches // stages + 1) * stages}",
        )
    return tuple(tuple(_interleaved_rank(rank, stages, microbatches, chunks)) for rank in range(stages))


def _interleaved_rank(rank: int, stages: int, microbatches: int, chunks: int) -> Iterator[Piece]:
    total = microbatches * chunks
    ahead = min((stages - rank - 1) * 2 + (chunks - 1) * stages, total)

    def piece(step: int, instruction: str) -> Piece:
        group, place = divmod(step, stages * chunks)
        chunk = place // stages
        if instruction == BACKWARD:
            chunk = chunks - 1 - chunk
        return Piece(instruction, chunk * stages + rank, group * stages + place % stages)

    for step in range(ahead):
        yield piece(step, FORWARD)
    for step in range(total):
        if ahead + step < total:
            yield piece(ahead + step, FORWARD)
        yield piece(step, BACKWARD)


def zero_bubble(stages: int, microbatches: int) -> Order:
    """Order 1F1B with backward split in two; the weight part of stage s runs s microbatches later."""
    return tuple(
        tuple(_split(stage, rank)) for stage, rank in enumerate(one_forward_one_backward(stages, microbatches))
    )


def _split(lag: int, rank: Sequence[Piece]) -> Iterator[Piece]:
    waiting: list[Piece] = []
    for piece in rank:
        yield piece
        if piece.instruction == BACKWARD:
            waiting.append(Piece(WEIGHT, piece.stage, piece.microbatch))
            if len(waiting) > lag:
                yield waiting.pop(0)
    yield from waiting


SCHEDULES: dict[str, Callable[[int, int], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "early-recomputation": early_recomputation,
    "zero-bubble": zero_bubble,
}


def with_extras(order: Order, extras: Sequence[str]) -> Order:
    """Add transfers after the pieces whose results go to another rank, and endings at the end of each rank.

    A transfer occupies the rank that sends, as blocking sends do; the receiver waits for it.
    """
    last_stage = max(piece.stage for rank in order for piece in rank)
    ranks = []
    for rank in order:
        own = [part for piece in rank for part in (piece, *_sent(piece, last_stage, extras))]
        stages = dict.fromkeys(piece.stage for piece in rank)
        own += [Piece(ending, stage, 0) for ending in (ALL_REDUCE, OPTIMIZER) if ending in extras for stage in stages]
        ranks.append(tuple(own))
    return tuple(ranks)


def _sent(piece: Piece, last_stage: int, extras: Sequence[str]) -> tuple[Piece, ...]:
    if piece.instruction == FORWARD and piece.stage < last_stage and SEND_FORWARD in extras:
        return (Piece(SEND_FORWARD, piece.stage, piece.microbatch),)
    if piece.instruction == BACKWARD and piece.stage > 0 and SEND_BACKWARD in extras:
        return (Piece(SEND_BACKWARD, piece.stage, piece.microbatch),)
    return ()


def work_graph(order: Order) -> WorkGraph:
    """Make the graph of an order: each piece waits for the one before on its rank and for its inputs."""
    pieces = [(piece, rank) for rank, ran in enumerate(order) for piece in ran]
    place = {piece: index for index, (piece, _) in enumerate(pieces)}
    if len(place) != len(pieces):
        raise PlanError("a schedule runs the same piece twice")
    last_stage = max(piece.stage for piece, _ in pieces)
    before: list[list[int]] = [[] for _ in pieces]
    for ran in order:
        for index in range(1, len(ran)):
            before[place[ran[index]]].append(place[ran[index - 1]])
    for piece, index in place.items():
        before[index] += [place[other] for other in _inputs(piece, last_stage) if other in place]
    return _sorted_graph([Operation(piece.name, piece.kind, rank) for piece, rank in pieces], before)


def _inputs(piece: Piece, last_stage: int) -> tuple[Piece, ...]:
    """The inputs of a piece: activations from the stage before, gradients from the stage after."""
    stage, microbatch = piece.stage, piece.microbatch
    if piece.instruction == FORWARD:
        return (Piece(FORWARD, stage - 1, microbatch), Piece(SEND_FORWARD, stage - 1, microbatch)) if stage else ()
    if piece.instruction == BACKWARD:
        after = (Piece(BACKWARD, stage + 1, microbatch), Piece(SEND_BACKWARD, stage + 1, microbatch))
        own = (Piece(FORWARD, stage, microbatch), Piece(RECOMPUTE, stage, microbatch))
        return (*after, *own) if stage < last_stage else own
    if piece.instruction in EXTRAS:
        return ()  # the order of its rank suffices
    return (Piece(FORWARD if piece.instruction == RECOMPUTE else BACKWARD, stage, microbatch),)


def _sorted_graph(operations: list[Operation], before: list[list[int]]) -> WorkGraph:
    """Sort the operations so that each comes after those it waits for; refuse cycles."""
    after: list[list[int]] = [[] for _ in operations]
    waits = [len(set(others)) for others in before]
    for index, others in enumerate(before):
        for other in set(others):
            after[other].append(index)
    ready = [index for index, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        index = ready.pop()
        order.append(index)
        for other in after[index]:
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    if len(order) < len(operations):
        stuck = next(operations[index].name for index, count in enumerate(waits) if count)
        raise PlanError(f"the schedule waits for itself: {stuck!r} never becomes ready")
    place = {index: position for position, index in enumerate(order)}
    return WorkGraph(
        tuple(operations[index] for index in order),
        tuple(tuple(sorted({place[other] for other in before[index]})) for index in order),
    )


def _check(stages: int, microbatches: int) -> None:
    if stages < 1 or microbatches < 1:
        raise PlanError(f"a pipeline has at least one stage and one microbatch, not {stages} and {microbatches}")
