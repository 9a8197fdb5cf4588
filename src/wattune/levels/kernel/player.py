"""The settings of one pipeline rank at each of its instructions: a frozen plan and a cursor."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from wattune.control.actuator import Actuator
from wattune.core.errors import PlanError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.plan import Plan, Step
from wattune.core.setting import Setting
from wattune.levels.kernel.schedules import EXTRAS, Piece


@dataclass(frozen=True, slots=True)
class PlanPlayer:
    """The steps of one rank, played over and over, once per iteration."""

    steps: tuple[Step, ...]
    place: int = 0
    """Index of the next step."""
    requested: Setting | None = None
    """The last request; None before the first instruction."""

    @classmethod
    def of(cls, plan: Plan, rank: int, *, spec: GpuSpec) -> PlanPlayer:
        """Return the player of a rank; raise where the plan lacks the rank, or the GPU lacks one of the settings."""
        ranks = plan.ranks
        if not 0 <= rank < len(ranks) or not ranks[rank]:
            raise PlanError(
                f"the plan has {len(ranks)} ranks and nothing for rank {rank}",
                hint="plan for as many ranks as the pipeline has",
            )
        # Transfers and endings have no hook: the setting of the instruction before them holds.
        steps = tuple(step for step in ranks[rank] if step.span.partition(" ")[0] not in EXTRAS)
        for setting in dict.fromkeys(step.setting for step in steps):
            spec.check(setting)
        return cls(steps)

    def check(self, instructions: Iterable[str]) -> None:
        """Raise an error unless these are the instructions of an iteration, in this order."""
        player = self
        for instruction in instructions:
            player, _ = player.begin(instruction)

    def begin(self, instruction: str) -> tuple[PlanPlayer, Setting | None]:
        """Return the player one step on and the setting to request; None where the last request still holds."""
        step = self._step(instruction)
        wanted = None if step.setting == self.requested else step.setting
        return replace(self, place=self.place + 1, requested=step.setting), wanted

    def from_start(self) -> PlanPlayer:
        """Return the player at the first step of an iteration."""
        return replace(self, place=0)

    def following(self, steps: tuple[Step, ...]) -> PlanPlayer:
        """Return the player at the first step of another plan."""
        return replace(self, steps=steps, place=0)

    def _step(self, instruction: str) -> Step:
        if self.place >= len(self.steps):
            raise PlanError(
                f"{instruction!r} begins and the plan of this rank has only {len(self.steps)} instructions",
                hint="plan for the schedule and the number of microbatches that are really run",
            )
        step = self.steps[self.place]
        if step.span != instruction:
            raise PlanError(
                f"{instruction!r} begins where the plan has {step.span!r}",
                hint="plan for the schedule and the number of microbatches that are really run",
            )
        return step


class Stamp(Protocol):
    """A place in the work of a rank."""

    def passed(self) -> bool:
        """Whether the work before it is done."""
        ...

    def wait(self) -> None:
        """Wait until the work before it is done."""
        ...

    def seconds_to(self, later: Stamp) -> float:
        """Seconds from here to a later stamp; both must have passed."""
        ...


class Stamps(Protocol):
    """A source of stamps in the work of a rank."""

    def stamp(self) -> Stamp:
        """Return a stamp behind all work given so far."""
        ...


class HostStamp:
    """A time of the host; work on the CPU is done when the call that does it returns."""

    __slots__ = ("time_s",)

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def seconds_to(self, later: Stamp) -> float:
        if not isinstance(later, HostStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return later.time_s - self.time_s


class HostStamps:
    """Stamps for work that runs on the CPU."""

    def stamp(self) -> HostStamp:
        return HostStamp(time.perf_counter())


class InstructionListener(Protocol):
    """Called at every iteration and every instruction of one rank, in the thread that trains: it must be quick."""

    def start(self) -> None:
        """An iteration begins."""
        ...

    def begin(self, piece: Piece) -> None:
        """An instruction is about to be given to the GPU."""
        ...

    def end(self, piece: Piece) -> None:
        """An instruction has been given to the GPU."""
        ...

    def finish(self) -> None:
        """The iteration has been given to the GPU."""
        ...

    def fail(self, error: BaseException) -> None:
        """One of the other calls raised; training does not see it."""
        ...


class PlanListener:
    """Plays one plan for ever."""

    def __init__(self, player: PlanPlayer, clocks: Actuator, stamps: Stamps) -> None:
        self._player = player
        self._clocks = clocks
        self._stamps = stamps

    def start(self) -> None:
        """Begin an iteration at the first instruction of the plan, even where the last one broke off."""
        refused = self._clocks.take_failure()
        if refused is not None:
            self.fail(refused)
        self._player = self._player.from_start()

    def begin(self, piece: Piece) -> None:
        """Request the clock of an instruction where it changes, for when the GPU gets there."""
        if self._clocks.disabled is not None:
            return
        self._player, wanted = self._player.begin(piece.name)
        if wanted is not None:
            self._clocks.put(wanted, reached=self._stamps.stamp().passed)

    def end(self, piece: Piece) -> None:
        pass

    def finish(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        """Restore the GPU and set nothing any more."""
        if self._clocks.disabled is None:
            logging.getLogger("wattune").warning("the plan ends, training goes on: %s", error)
            self._clocks.disable(str(error))
