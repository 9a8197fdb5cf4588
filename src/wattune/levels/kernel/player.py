"""What one rank of a pipeline sets at each of its instructions: a frozen plan and a cursor."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from wattune.control.actuator import ClockQueue
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
    """Of the step that comes next."""
    asked: Setting | None = None
    """What was asked for last; None before the first instruction."""

    @classmethod
    def of(cls, plan: Plan, rank: int, *, spec: GpuSpec) -> PlanPlayer:
        """The player of a rank; an error where the plan has no such rank, or the part lacks one of its settings."""
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

    def begin(self, instruction: str) -> tuple[PlanPlayer, Setting | None]:
        """The player one step on, and the setting to ask for; None where the one asked for last still holds."""
        step = self._step(instruction)
        wanted = None if step.setting == self.asked else step.setting
        return replace(self, place=self.place + 1, asked=step.setting), wanted

    def from_start(self) -> PlanPlayer:
        """The player at the first step of an iteration, whatever became of the last one."""
        return replace(self, place=0)

    def following(self, steps: tuple[Step, ...]) -> PlanPlayer:
        """The player at the first step of another plan."""
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
        """Nothing; the work before it is done when this returns."""
        ...

    def seconds_to(self, later: Stamp) -> float:
        """Seconds from here to a later stamp; both must have passed."""
        ...


class Stamps(Protocol):
    """What puts stamps into the work of a rank."""

    def stamp(self) -> Stamp:
        """A stamp behind all work given so far."""
        ...


class HostStamp:
    """A moment of the host; work on the CPU is done when the call that does it returns."""

    __slots__ = ("time_s",)

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    def passed(self) -> bool:
        """True."""
        return True

    def wait(self) -> None:
        """Nothing, at once."""

    def seconds_to(self, later: Stamp) -> float:
        """Seconds between the two moments."""
        if not isinstance(later, HostStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return later.time_s - self.time_s


class HostStamps:
    """Stamps for work that runs on the CPU."""

    def stamp(self) -> HostStamp:
        """Now."""
        return HostStamp(time.perf_counter())


class InstructionListener(Protocol):
    """Told of every iteration and every instruction of one rank, in the thread that trains: it must be quick."""

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


class PlanListener:
    """Plays one plan for ever."""

    def __init__(self, player: PlanPlayer, clocks: ClockQueue, stamps: Stamps) -> None:
        self._player = player
        self._clocks = clocks
        self._stamps = stamps

    def start(self) -> None:
        """Nothing; the next instruction is the plan's first, even where an iteration broke off."""
        self._player = self._player.from_start()

    def begin(self, piece: Piece) -> None:
        """Nothing; a setting that changes here is on its way, to be applied when the GPU gets here."""
        self._player, wanted = self._player.begin(piece.name)
        if wanted is not None:
            self._clocks.put(wanted, reached=self._stamps.stamp().passed)

    def end(self, piece: Piece) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""
