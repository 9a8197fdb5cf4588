"""Play a plan on one rank: the setting at each of its instructions, without switches that end before they take effect.

Notation: a run is a sequence of a rank's instructions at one setting; its dwell is the time from its first instruction
to that of the next run, waiting included; L is the switching time of the clock. A run whose dwell is below L never gets
its clock, so it joins a neighbour. Both then have the higher of the two settings, so no instruction becomes slower and
the planned time holds; of the two neighbours it joins the one with which that costs less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Protocol

from wattune.control.actuator import Actuator
from wattune.control.stamps import Stamps
from wattune.core.errors import PlanError
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.levels.pipeline.solver.relaxation import effective
from wattune.plans.plan import Plan, StageChoice, Step, WorkGraph
from wattune.plans.schedules import EXTRAS, Piece


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

    def ahead(self) -> tuple[PlanPlayer, Setting | None]:
        """Return the player with the setting of the next step requested, and that setting where it is a new one."""
        if self.place >= len(self.steps) or self.steps[self.place].setting == self.requested:
            return self, None
        setting = self.steps[self.place].setting
        return replace(self, requested=setting), setting

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

    def __init__(self, player: PlanPlayer, clocks: Actuator, stamp: Stamps) -> None:
        self._player = player
        self._clocks = clocks
        self._stamp = stamp

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
        self._request(wanted)

    def end(self, piece: Piece) -> None:  # noqa: ARG002 - as the protocol has it
        """Request the clock of the next instruction already here: it may take hold while the rank waits for others."""
        if self._clocks.disabled is None:
            self._player, wanted = self._player.ahead()
            self._request(wanted)

    def _request(self, wanted: Setting | None) -> None:
        if wanted is not None:
            self._clocks.put(wanted, reached=self._stamp().passed)

    def finish(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        """Restore the GPU and set nothing any more."""
        if self._clocks.disabled is None:
            logging.getLogger("wattune").warning("the plan ends, training goes on: %s", error)
            self._clocks.disable(str(error))


UNKNOWN_SWITCHING_S = 0.1
"""Slowest known change of a core clock; used for a GPU whose own is not known."""

Profile = Mapping[str, Iterable[Trial[StageChoice]]]


def without_short_switches(
    graph: WorkGraph, plan: Plan, profile: Profile, *, spec: GpuSpec, blocking_power_w: float
) -> Trial[Plan]:
    """Hold every setting for at least the switching time of the GPU, and time the resulting plan."""
    latency_s = UNKNOWN_SWITCHING_S if spec.switching.sm_s is None else spec.switching.sm_s
    options = _Measured.of(graph, profile, blocking_power_w)
    choices = list(plan.choices)
    while True:
        starts_s, end_s = _starts_s(graph, [options.trial(place, choice) for place, choice in enumerate(choices)])
        joined = False
        for places in graph.by_rank:
            runs = _runs(places, choices, starts_s, end_s)
            joined |= _join_short(runs, choices, options, latency_s)
        if not joined:
            break
    trial = timed(
        graph,
        (options.trial(place, choice) for place, choice in enumerate(choices)),
        blocking_power_w=blocking_power_w,
    )
    return Trial(replace(trial.choice, bound_j=plan.bound_j), trial.cost)


@dataclass(frozen=True, slots=True)
class _Measured:
    kinds: tuple[str, ...]
    by_choice: Mapping[tuple[str, StageChoice], Trial[StageChoice]]
    by_setting: Mapping[tuple[str, Setting], Trial[StageChoice]]
    """The cheapest for each setting."""
    blocking_power_w: float

    @classmethod
    def of(cls, graph: WorkGraph, profile: Profile, blocking_power_w: float) -> _Measured:
        by_choice, by_setting = {}, {}
        for kind, trials in profile.items():
            for trial in sorted(trials, key=lambda trial: -effective(trial, blocking_power_w)):
                by_choice[kind, trial.choice] = trial
                by_setting[kind, trial.choice.setting] = trial
        return cls(tuple(operation.kind for operation in graph.operations), by_choice, by_setting, blocking_power_w)

    def trial(self, place: int, choice: StageChoice) -> Trial[StageChoice]:
        return self.by_choice[self.kinds[place], choice]

    def at(self, place: int, choice: StageChoice, setting: Setting) -> Trial[StageChoice] | None:
        """The operation at another setting, with the same knobs if they were measured there."""
        same = self.by_choice.get((self.kinds[place], StageChoice(setting, choice.knobs)))
        return same or self.by_setting.get((self.kinds[place], setting))


@dataclass(frozen=True, slots=True)
class _Run:
    places: tuple[int, ...]
    setting: Setting
    dwell_s: float


def _starts_s(graph: WorkGraph, trials: list[Trial[StageChoice]]) -> tuple[list[float], float]:
    """The start of each operation, and the end of the iteration."""
    durations_s = tuple(trial.cost.time_s for trial in trials)
    ends_s = graph.finish_times_s(durations_s)
    return [end_s - duration_s for end_s, duration_s in zip(ends_s, durations_s, strict=True)], max(ends_s)


def _runs(places: tuple[int, ...], choices: list[StageChoice], starts_s: list[float], end_s: float) -> list[_Run]:
    found = [tuple(own) for _, own in groupby(places, key=lambda place: choices[place].setting)]
    bounds_s = [*(starts_s[own[0]] for own in found), end_s]
    return [
        _Run(own, choices[own[0]].setting, after_s - before_s)
        for own, (before_s, after_s) in zip(found, pairwise(bounds_s), strict=True)
    ]


def _join_short(runs: list[_Run], choices: list[StageChoice], options: _Measured, latency_s: float) -> bool:
    """Join short runs, changing `choices`; return whether anything was joined."""
    joined, stuck = False, set[_Run]()
    while short := [n for n, run in enumerate(runs) if run.dwell_s < latency_s and run not in stuck]:
        place = min(short, key=lambda n: runs[n].dwell_s)
        ways = [way for near in (place - 1, place) if (way := _way(runs, near, choices, options)) is not None]
        if not ways:
            stuck.add(runs[place])
            continue
        _, near, chosen = min(ways, key=lambda way: way[:2])
        for operation, choice in chosen.items():
            choices[operation] = choice
        one, two = runs[near : near + 2]
        runs[near : near + 2] = [
            _Run(one.places + two.places, max(one.setting, two.setting), one.dwell_s + two.dwell_s)
        ]
        joined = True
    return joined


def _way(
    runs: list[_Run], near: int, choices: list[StageChoice], options: _Measured
) -> tuple[float, int, dict[int, StageChoice]] | None:
    """The cost of joining run `near` and the next, and the choices then; None where that is impossible."""
    if not 0 <= near < len(runs) - 1:
        return None
    setting = max(runs[near].setting, runs[near + 1].setting)
    cost_j, chosen = 0.0, {}
    for place in runs[near].places + runs[near + 1].places:
        before, after = options.trial(place, choices[place]), options.at(place, choices[place], setting)
        if after is None:
            return None
        cost_j += effective(after, options.blocking_power_w) - effective(before, options.blocking_power_w)
        chosen[place] = after.choice
    return cost_j, near, chosen
