"""Partitions and the choices of a plan, turned into what the executor does one after the other.

The collective that a partition leaves behind starts within the next partition, before the first operation of the slot
that the plan names, or behind all operations, and has ended when that partition ends. Where the next partition is of
the same nanobatch it needs the result, so the collective comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wattune.core.errors import PlanError
from wattune.integrations.overlap.program import Direction, PartitionRun, collective_kind, partition_slots, slots_of
from wattune.integrations.overlap.steps import SUFFIXES, BlockStack

SEQUENTIAL = "none"
"""The launch of a collective that starts when all operations of its partition are done."""


class LaunchChoice(Protocol):
    """How a partition runs."""

    @property
    def sm_mhz(self) -> int | None:
        """Core clock; None leaves it as it is."""

    @property
    def comm_sms(self) -> int | None:
        """SMs for the collective; None leaves it to the library."""

    @property
    def launch(self) -> str:
        """Slot before which the collective starts, or none."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A choice of which parts may be left open: by default no overlap, at the clock that the GPU has."""

    sm_mhz: int | None = None
    comm_sms: int | None = None
    launch: str = SEQUENTIAL


@dataclass(frozen=True, slots=True)
class WholeMicrobatch:
    """An instruction that runs without nanobatches, each collective after its computation, at this clock."""

    sm_mhz: int | None = None

    def choices(self, partitions: Iterable[str]) -> Choices:
        """Return the same for each of these partitions."""
        return dict.fromkeys(partitions, PlannedLaunch(self.sm_mhz))


Choices = Mapping[str, LaunchChoice]
"""Choices of an instruction by partition; a name with the collective, such as fwd_qkv_ag, comes before fwd_qkv."""


@dataclass(frozen=True, slots=True)
class Enter:
    """A partition begins, at this clock."""

    partition: str
    nanobatch: int
    sm_mhz: int | None


@dataclass(frozen=True, slots=True)
class Compute:
    """An operation runs, in a direction."""

    partition: str
    direction: Direction
    position: int
    nanobatch: int


@dataclass(frozen=True, slots=True)
class Start:
    """A collective starts; it was left behind by another partition, in the direction of that."""

    partition: str
    direction: Direction
    position: int
    nanobatch: int
    sms: int | None


@dataclass(frozen=True, slots=True)
class Join:
    """Later operations wait for a collective."""

    direction: Direction
    nanobatch: int


Action = Enter | Compute | Start | Join


def actions_of(stack: BlockStack, runs: Sequence[PartitionRun], choices: Choices) -> tuple[Action, ...]:
    """Return all actions of a pass; the last collective runs by itself."""
    actions: list[Action] = []
    before: PartitionRun | None = None
    for run in runs:
        actions.extend(run_actions(stack, run, before, choice_of(stack, run, before, choices)))
        before = run if run.collective is not None else None
    if before is not None:
        actions.extend(_collective(before, before.partition, None))
    return tuple(actions)


def run_actions(
    stack: BlockStack, run: PartitionRun, before: PartitionRun | None, choice: LaunchChoice
) -> Iterator[Action]:
    """Yield the actions of one partition, with the collective of the one before it, if that left one behind."""
    yield Enter(run.partition, run.nanobatch, choice.sm_mhz)
    collective = () if before is None else tuple(_collective(before, run.partition, choice.comm_sms))
    compute = [Compute(run.partition, run.direction, position, run.nanobatch) for position in run.steps]
    if before is not None and before.nanobatch == run.nanobatch:
        yield from collective
        yield from compute
        return
    place = _place(slots_of(stack, run), choice.launch)
    yield from compute[:place]
    yield from collective[:1]
    yield from compute[place:]
    yield from collective[1:]


def choice_of(stack: BlockStack, run: PartitionRun, before: PartitionRun | None, choices: Choices) -> LaunchChoice:
    """Return the choice of a partition beside a collective; one after the other where there is none."""
    kind = None if before is None else collective_kind(stack, before)
    exact = None if kind is None else choices.get(f"{run.partition}_{SUFFIXES[kind]}")
    if exact is not None:
        return exact
    return choices.get(run.partition) or PlannedLaunch()


def check_choices(stack: BlockStack, runs: Sequence[PartitionRun], choices: Choices) -> None:
    """Raise unless every partition has a choice whose slot exists, and no choice is for another layout."""
    slots = partition_slots(stack, runs)
    known = {name: name for name in slots}
    known |= {f"{name}_{suffix}": name for name in slots for suffix in SUFFIXES.values()}
    for name, choice in choices.items():
        if name not in known:
            raise PlanError(f"the blocks have no partition {name}", hint=f"they have {', '.join(slots)}")
        if choice.launch not in (*slots[known[name]], SEQUENTIAL):
            raise PlanError(
                f"{name} has no slot {choice.launch}", hint=f"it has {', '.join((*slots[known[name]], SEQUENTIAL))}"
            )
        if choice.comm_sms is not None and choice.comm_sms < 1:
            raise PlanError(f"{name} cannot communicate on {choice.comm_sms} SMs", hint="give it at least one")
    missing = set(slots) - {known[name] for name in choices}
    if choices and missing:
        raise PlanError(f"the plan has nothing for {', '.join(sorted(missing))}", hint="plan for this layout")


def _collective(before: PartitionRun, partition: str, sms: int | None) -> Iterator[Action]:
    if before.collective is not None:
        yield Start(partition, before.direction, before.collective, before.nanobatch, sms)
        yield Join(before.direction, before.nanobatch)


def _place(slots: tuple[str, ...], launch: str) -> int:
    """Return the index of the first operation of a slot; a partition at the edge of a stack may lack it."""
    if launch == SEQUENTIAL:
        return len(slots)
    return slots.index(launch) if launch in slots else 0
