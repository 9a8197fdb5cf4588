"""Plays the plan of a pipeline whose instructions have choices for their partitions.

    with played_overlap(schedule, "plan.json", gpu, {stage_index: executor}):
        for batch in batches:
            schedule.step(batch)

The clock of each instruction is set as `wattune.integrations.pipelining.played` does it; besides, the executor of the
stage follows the choices of each instruction: knobs of the plan named after partitions, such as `fwd_attn` with the
value `rope_0-none-12-1024`, or `nanobatches` with the value 1 for an instruction that is not split.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from wattune.control.actuator import Actuator
from wattune.control.ranks import Ranks
from wattune.core.errors import PlanError
from wattune.devices.gpu import Gpu
from wattune.integrations.overlap.executor import OverlapExecutor
from wattune.integrations.overlap.launching import Choices, PlannedLaunch, WholeMicrobatch
from wattune.integrations.pipelining import listened, played
from wattune.levels.overlap.space import parse_choice
from wattune.levels.pipeline.plan_file import read_plan
from wattune.plans.plan import Plan, StageChoice
from wattune.plans.schedules import BACKWARD, FORWARD, Piece
from wattune.plans.stage_profile import PLAIN


def launches_of(choice: StageChoice) -> Choices | WholeMicrobatch:
    """Return the choices of the partitions of an instruction, or that it is not split; other knobs are left out."""
    if PLAIN in choice.knobs:
        return WholeMicrobatch(choice.setting.sm_mhz)
    found = {}
    for name, text in choice.knobs:
        if name.startswith(("fwd_", "bwd_")):
            parsed = parse_choice(text, sm_mhz=choice.setting.sm_mhz or 0)
            found[name] = PlannedLaunch(choice.setting.sm_mhz, parsed.comm_sms, parsed.launch)
    return found


class ChoiceListener:
    """Lets executors follow the choices of each instruction, when it is about to be given to the GPU."""

    def __init__(self, plan: Plan, executors: Mapping[int, OverlapExecutor]) -> None:
        self._executors = executors
        pairs = zip(plan.graph.operations, plan.choices, strict=True)
        self._choices = {operation.name: launches_of(choice) for operation, choice in pairs}
        self._check()

    def start(self) -> None:
        pass

    def begin(self, piece: Piece) -> None:
        """Follow the choices of an instruction."""
        executor, choices = self._executors.get(piece.stage), self._choices.get(piece.name)
        if executor is not None and choices is not None:
            _follow(executor, piece.instruction, choices)

    def end(self, piece: Piece) -> None:
        pass

    def finish(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        """Log it; the choices so far stay, so that all ranks of a group do the same."""
        logging.getLogger("wattune").warning("the launches of a plan cannot be followed: %s", error)

    def _check(self) -> None:
        """Follow every instruction of these executors once, so that nothing can be refused later."""
        for name, choices in self._choices.items():
            instruction, _, place = name.partition(" ")
            executor = self._executors.get(int(place.partition(".")[0])) if place else None
            if executor is not None:
                try:
                    _follow(executor, instruction, choices)
                    if instruction == BACKWARD:
                        executor.check_split(self._choices.get(f"{FORWARD} {place}", choices), choices)
                except PlanError as error:
                    raise PlanError(f"{name}: {error.message}", hint=error.hint) from None
        for executor in self._executors.values():
            executor.follow(forward={}, backward={})


@contextmanager
def played_overlap(
    schedule: Any,
    plan: Plan | Path | str,
    gpu: Gpu,
    executors: Mapping[int, OverlapExecutor],
    *,
    ranks: Ranks | None = None,
) -> Iterator[Actuator]:
    """Set clocks and launches of this rank while the schedule trains; yield the actuator that sets the clocks.

    `executors` are those that the stages of this process call, by the index of the stage; they set no clocks of their
    own. Afterwards they run their collectives behind the computation again. With `ranks`, those of the tensor-parallel
    group, a plan that differs between them is refused; otherwise they would wait for each other.
    """
    wanted = plan if isinstance(plan, Plan) else read_plan(Path(plan)).plan.choice
    if ranks is not None:
        check_same(wanted, ranks)
    listener = ChoiceListener(wanted, executors)
    try:
        with played(schedule, wanted, gpu) as clocks, listened(schedule, listener):
            yield clocks
    finally:
        for executor in executors.values():
            executor.follow(forward={}, backward={})


def check_same(plan: Plan, ranks: Ranks) -> None:
    """Raise on all ranks unless all of them have the same choices."""
    own = sha256(repr(plan.choices).encode()).hexdigest()
    _, (differs,) = ranks.sum_and_max((float(ranks.broadcast(own) != own),))
    if differs:
        raise PlanError(
            "the ranks of a group have different plans", hint="give all of them the same file, from a shared folder"
        )


def _follow(executor: OverlapExecutor, instruction: str, choices: Choices | WholeMicrobatch) -> None:
    if instruction == FORWARD:
        executor.follow(forward=choices)
    elif instruction == BACKWARD:
        executor.follow(backward=choices)
