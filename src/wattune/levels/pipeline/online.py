"""Plan a pipeline while it trains: profile, plan, hold, and react to stragglers.

Every rank measures an iteration, all ranks exchange the readings, and each takes the same pure step from the same
readings, so no server is needed. What a rank sets follows from the progress alone.

    progress = policy.start()
    for each decision:  run policy.steps(progress, …), exchange readings, progress = policy.step(progress, readings)

Notation: the slowdown of a rank is the measured over the planned time of its instructions. The best time of a pipeline
is its time with its slowdowns and every instruction at its fastest; the deadline is the longest of all best times and
of the time that the slowdown limit allows. Finishing before the deadline gains nothing (Perseus's T_opt, SOSP'24), so
every pipeline plays the plan of least energy within it. The slowdown in use is the median of three: the present one and
the last two measured; so one outlier changes nothing and a second one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean, median

from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.gpu_spec import GpuSpec, evenly
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.levels.pipeline.player import without_short_switches
from wattune.levels.pipeline.profiling import fit_curves
from wattune.levels.pipeline.straggler import answered, best_time_s
from wattune.plans.plan import Plan, StageChoice, Step, WorkGraph

Plans = Frontier[Plan]


@dataclass(frozen=True, slots=True)
class RankReading:
    """The measurement of one iteration by one rank."""

    pipeline: int
    """Index among equal pipelines (data parallelism)."""
    rank: int
    busy_s: float
    """Time of its instructions, without waiting."""
    trials: tuple[tuple[str, Trial[Setting]], ...] = ()
    """While profiling: each kind of its instructions at the present setting, once measured well enough."""
    waiting_w: float | None = None
    """While profiling: power of its GPU while it waits."""


Readings = Sequence[RankReading]


@dataclass(frozen=True, slots=True)
class PlanProfiling:
    """All ranks run everything at the setting at `place`."""

    place: int = 0
    trials: tuple[tuple[str, Trial[Setting]], ...] = ()
    waiting_w: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanHeld:
    """Each pipeline plays one plan."""

    plans: Plans
    profile: Mapping[str, Sequence[Trial[StageChoice]]]
    """Every kind of instruction at every clock, by its fitted curve; the plans are made from it."""
    waiting_w: float
    """Power of a GPU while it waits."""
    held: tuple[Plan, ...]
    """The plan of each pipeline, with durations for ranks that are not slowed down."""
    slowdowns: tuple[tuple[float, ...], ...]
    """The slowdown in use for each pipeline and rank."""
    last: tuple[tuple[float, ...], ...]
    """The slowdown that was measured last."""


@dataclass(frozen=True, slots=True)
class PlanDisabled:
    """Tuning has ended on all ranks, and the GPUs are restored."""

    why: str


@dataclass(frozen=True, slots=True)
class PlanProfiled:
    """All settings are measured and nothing is planned; the GPUs are restored."""

    trials: tuple[tuple[str, Trial[Setting]], ...]
    """Each kind of instruction at each setting, averaged over the pipelines."""
    waiting_w: float | None
    """Power of a GPU while it waits; None where no rank ever waited."""


Progress = PlanProfiling | PlanHeld | PlanProfiled | PlanDisabled


LOWEST_SHARE = 0.6
"""Of the highest clock: about where published searches end, 900 of 1410 MHz on an A100 (Kareus, OSDI'26)."""

STRAGGLING = 0.05
"""Share by which a slowdown must change to be used: the least for which Perseus reports savings."""


_FIELDS = 5
"""Numbers of a reading besides its trials: present, busy_s, has trials, has waiting_w, waiting_w."""


def profiling_settings(spec: GpuSpec, points: int) -> tuple[Setting, ...]:
    """Return a few clocks to profile at, highest first."""
    if points < 2:
        raise InputError(f"a curve needs two clocks or more, not {points}", hint="4 or 5 are a good number")
    clocks_mhz = [mhz for mhz in spec.sm_clocks_mhz if mhz >= LOWEST_SHARE * spec.sm_clocks_mhz[-1]]
    if len(clocks_mhz) < 2:
        raise PlanError(f"{spec.label} has too few core clocks to plan with", hint="see `wattune devices`")
    return tuple(Setting(mhz) for mhz in reversed(evenly(clocks_mhz, points)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlinePlanning:
    """Settings of profiling, planning and holding a pipeline. All its GPUs are of one kind."""

    graph: WorkGraph
    spec: GpuSpec
    settings: tuple[Setting, ...]
    """To profile at; see `profiling_settings`."""
    slowdown: float
    """Share by which an iteration may be slower than the fastest plan; 0 keeps the speed."""
    pipelines: int = 1
    straggling: float = STRAGGLING
    kinds_by_rank: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    """For each rank the kinds of its operations."""

    def __post_init__(self) -> None:
        if not self.slowdown >= 0:
            raise InputError(f"a slowdown is not negative, not {self.slowdown}", hint="0.05 allows 5 % more time")
        kinds = (dict.fromkeys(self.graph.operations[place].kind for place in rank) for rank in self.graph.by_rank)
        object.__setattr__(self, "kinds_by_rank", tuple(map(tuple, kinds)))

    def start(self) -> PlanProfiling:
        return PlanProfiling()

    def step(self, progress: Progress, readings: Readings) -> Progress:
        """Return the progress after one more iteration, given the readings of all ranks of all pipelines."""
        match progress:
            case PlanProfiling():
                after = self.collected(progress, readings)
                return after if after.place < len(self.settings) else self._planned(after)
            case PlanHeld():
                return self._held(progress, readings)
            case PlanProfiled() | PlanDisabled():
                return progress

    def steps(self, progress: Progress, *, pipeline: int, rank: int) -> tuple[Step, ...]:
        """Return the steps of a rank in the next iteration."""
        match progress:
            case PlanProfiling():
                setting = self.settings[progress.place]
                return tuple(Step(self.graph.operations[place].name, setting) for place in self.graph.by_rank[rank])
            case PlanHeld():
                return progress.held[pipeline].ranks[rank]
            case PlanProfiled() | PlanDisabled():
                return ()

    def is_uncertain(self, progress: Progress) -> bool:
        """Return whether the next iteration should be measured: while profiling, or after an unexpected slowdown."""
        match progress:
            case PlanProfiling():
                return True
            case PlanHeld():
                pairs = zip(chain(*progress.slowdowns), chain(*progress.last), strict=True)
                return any(abs(last - used) > self.straggling * used for used, last in pairs)
            case PlanProfiled() | PlanDisabled():
                return False

    # the readings of all ranks as numbers: a slot of fixed size per rank, zero on all other ranks

    @property
    def numbers(self) -> int:
        """The count of numbers that encode the readings of all ranks."""
        return self.pipelines * len(self.kinds_by_rank) * self._slot

    @property
    def _slot(self) -> int:
        return _FIELDS + 2 * max(map(len, self.kinds_by_rank))

    def encoded(self, reading: RankReading) -> tuple[float, ...]:
        """Return a reading as numbers in its own slot; adding those of all ranks gives what `decoded` takes."""
        waiting = (0.0, 0.0) if reading.waiting_w is None else (1.0, reading.waiting_w)
        own = [1.0, reading.busy_s, float(bool(reading.trials)), *waiting]
        trials = dict(reading.trials)
        for kind in self.kinds_by_rank[reading.rank] if trials else ():
            own += [trials[kind].cost.time_s, trials[kind].cost.energy_j]
        values = [0.0] * self.numbers
        start = (reading.pipeline * len(self.kinds_by_rank) + reading.rank) * self._slot
        values[start : start + len(own)] = own
        return tuple(values)

    def decoded(self, progress: Progress, values: Sequence[float]) -> Readings:
        """Return the readings of all ranks from the sum of their numbers."""
        readings = []
        for slot, start in enumerate(range(0, self.numbers, self._slot)):
            pipeline, rank = divmod(slot, len(self.kinds_by_rank))
            present, busy_s, has_trials, has_waiting, waiting_w = values[start : start + _FIELDS]
            if present > 1:
                raise PlanError(f"several processes are rank {rank} of pipeline {pipeline}")
            trials: tuple[tuple[str, Trial[Setting]], ...] = ()
            if has_trials and isinstance(progress, PlanProfiling):
                setting, costs = self.settings[progress.place], iter(values[start + _FIELDS : start + self._slot])
                trials = tuple(
                    (kind, Trial(setting, Measurement(next(costs), next(costs)))) for kind in self.kinds_by_rank[rank]
                )
            if present:
                readings.append(RankReading(pipeline, rank, busy_s, trials, waiting_w if has_waiting else None))
        return readings

    def expected(self, progress: PlanHeld, pipeline: int) -> Measurement:
        """Predict time and energy of an iteration of a pipeline, stragglers included."""
        plan, slowdowns = progress.held[pipeline], progress.slowdowns[pipeline]
        factors = [slowdowns[operation.rank] for operation in self.graph.operations]
        durations_s = tuple(factor * time_s for factor, time_s in zip(factors, plan.durations_s, strict=True))
        time_s = self.graph.makespan_s(durations_s)
        waited_s = len(self.graph.by_rank) * time_s - sum(durations_s)
        spent_j = sum(factor * energy_j for factor, energy_j in zip(factors, plan.energies_j, strict=True))
        return Measurement(time_s, spent_j + waited_s * progress.waiting_w)

    # profile and plan

    def collected(self, progress: PlanProfiling, readings: Readings) -> PlanProfiling:
        """Return the profiling with what ranks measured, at the next setting once every kind has been measured."""
        found = tuple(item for reading in readings for item in reading.trials)
        if {operation.kind for operation in self.graph.operations} - {kind for kind, _ in found}:
            return progress
        waiting_w = tuple(reading.waiting_w for reading in readings if reading.waiting_w is not None)
        return PlanProfiling(progress.place + 1, progress.trials + found, progress.waiting_w + waiting_w)

    def _planned(self, progress: PlanProfiling) -> PlanHeld:
        """Fit curves to the trials, plan the frontier, and choose a plan for every pipeline."""
        measured = self.means(progress)
        curves = fit_curves(measured, highest_mhz=self.spec.sm_clocks_mhz[-1])
        clocks_mhz = [setting.sm_mhz for setting in self.settings if setting.sm_mhz is not None]
        between = [mhz for mhz in self.spec.sm_clocks_mhz if min(clocks_mhz) <= mhz <= max(clocks_mhz)]
        profile = {kind: curve.options(between) for kind, curve in curves.items()}
        # Without a measurement of waiting, static power is the best estimate.
        waiting_w = fmean(progress.waiting_w or [curve.static_w for curve in curves.values()])
        found = plan_pipeline(self.graph, profile, blocking_power_w=waiting_w)
        even = tuple((1.0,) * len(self.graph.by_rank) for _ in range(self.pipelines))
        return self._decided(PlanHeld(found, profile, waiting_w, (), even, even))

    def means(self, progress: PlanProfiling) -> dict[str, tuple[Trial[Setting], ...]]:
        """Average the trials of each kind and setting over the pipelines."""
        return {kind: self._means(progress, kind) for kind in dict.fromkeys(kind for kind, _ in progress.trials)}

    def _means(self, progress: PlanProfiling, kind: str) -> tuple[Trial[Setting], ...]:
        by_setting: dict[Setting, list[Measurement]] = {}
        for found, trial in progress.trials:
            if found == kind:
                by_setting.setdefault(trial.choice, []).append(trial.cost)
        return tuple(
            Trial(setting, Measurement(fmean(cost.time_s for cost in costs), fmean(cost.energy_j for cost in costs)))
            for setting, costs in by_setting.items()
        )

    # hold, and answer stragglers

    def _held(self, progress: PlanHeld, readings: Readings) -> PlanHeld:
        now = self._slowdowns(progress, readings)
        used = tuple(
            tuple(self._slowdown_in_use(*three) for three in zip(*of_pipeline, strict=True))
            for of_pipeline in zip(progress.slowdowns, progress.last, now, strict=True)
        )
        after = replace(progress, slowdowns=used, last=now)
        return after if used == progress.slowdowns else self._decided(after)

    def _slowdowns(self, progress: PlanHeld, readings: Readings) -> tuple[tuple[float, ...], ...]:
        found = [list(of_pipeline) for of_pipeline in progress.last]
        for reading in readings:
            plan = progress.held[reading.pipeline]
            planned_s = sum(plan.durations_s[place] for place in self.graph.by_rank[reading.rank])
            found[reading.pipeline][reading.rank] = reading.busy_s / planned_s
        return tuple(tuple(of_pipeline) for of_pipeline in found)

    def _decided(self, progress: PlanHeld) -> PlanHeld:
        """Choose the plan of every pipeline for the slowdowns in use."""
        best_s = [best_time_s(self.graph, progress.profile, of_ranks) for of_ranks in progress.slowdowns]
        deadline_s = max(*best_s, progress.plans.fastest.cost.time_s * (1 + self.slowdown))
        return replace(
            progress, held=tuple(self._answered(progress, of_ranks, deadline_s) for of_ranks in progress.slowdowns)
        )

    def _answered(self, progress: PlanHeld, slowdowns: tuple[float, ...], deadline_s: float) -> Plan:
        plan = answered(
            self.graph,
            progress.plans,
            progress.profile,
            slowdowns=slowdowns,
            deadline_s=deadline_s,
            blocking_power_w=progress.waiting_w,
        )
        return without_short_switches(
            self.graph, plan, progress.profile, spec=self.spec, blocking_power_w=progress.waiting_w
        ).choice

    def _slowdown_in_use(self, used: float, last: float, now: float) -> float:
        """Return the slowdown to use: the median of the present one and the last two measured."""
        middle = median((used, last, now))
        if abs(middle - 1.0) <= self.straggling:
            return 1.0
        return used if abs(middle - used) <= self.straggling * used else middle
