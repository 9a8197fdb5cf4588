"""The cases of the bench: a policy on a job, played with some seeds; and what it paid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import process_time

import numpy as np

from wattune.core.job import Job, JobChoice, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.policies import JobSearcher
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.zeus import ZeusSearcher
from wattune.physics.gpu_parts import Floats
from wattune_bench.job import unseen
from wattune_bench.job import zeus_package as job_zeus_package
from wattune_bench.job.environment import Playback, ReplayedRecurrence, play
from wattune_bench.job.replayed_run import Limits, Ruled, ShippedLimits, ZeusLimits
from wattune_bench.job.trace import JobDrift, TraceWorkload

PACKAGE = "zeus-package"
"""Name in tables of Zeus by its authors' own simulator."""


Policy = tuple[JobSearcher, Limits]
"""The chooser of batch sizes, and the way limits are found."""


@dataclass(frozen=True, slots=True)
class FixedChoice:
    """Always the same batch size."""

    name: str
    batch_size: int

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        del job, memory, gpu
        return Proposal(self.batch_size, exploring=False, why="always the same")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        del job, memory, run
        return None


@dataclass(frozen=True, slots=True)
class GridSearch:
    """Every batch size with every limit, one run each, from the default outwards; then what was cheapest.

    A batch size that did not reach the target is not tried with its other limits. Runs are stopped as Zeus's are.
    """

    cells: tuple[JobChoice, ...]
    """In the order of trying."""
    stopping: ZeusSearcher = field(default=ZeusSearcher())

    @property
    def name(self) -> str:
        return "grid"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        cell = self.cell(job, memory, gpu)
        return Proposal(cell.batch_size, exploring=False, why="the next cell, or the cheapest one")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        if run.setting is None or any(
            _cell(old) == _cell(run) for old in memory.runs if old.outcome is Outcome.REACHED
        ):
            return None
        return self.stopping.stop(job, memory, run)

    def cell(self, job: Job, memory: JobMemory, gpu: JobGpu) -> JobChoice:
        """Return the first cell that was not tried, or the cheapest in the mean of those that reached the target."""
        objective = job.objective_on(gpu.max_power_w)
        tried = {_cell(run) for run in memory.runs}
        failed = {run.batch_size for run in memory.runs if run.outcome is not Outcome.REACHED}
        untried = (cell for cell in self.cells if cell not in tried and cell.batch_size not in failed)
        if (new := next(untried, None)) is not None:
            return new
        costs: dict[JobChoice | None, list[float]] = {}
        for run in memory.runs:
            if run.cost is not None:
                costs.setdefault(_cell(run), []).append(objective.value(run.cost))
        good = [cell for run in memory.runs if run.outcome is Outcome.REACHED and (cell := _cell(run)) is not None]
        return min(good, key=lambda cell: fmean(costs[cell]), default=self.cells[0])


def _cell(run: JobRun) -> JobChoice | None:
    return None if run.setting is None else JobChoice(run.batch_size, run.setting)


def make_policy(name: str, workload: TraceWorkload, seed: int) -> Policy:
    """Make a policy of the bench for a workload and a seed."""
    match name:
        case "zeus":
            return ZeusSearcher(seed=seed), ZeusLimits()
        case "wattune" | "wattune-safe":
            return WattuneJobPolicy(safe=name == "wattune-safe"), ShippedLimits()
        case "grid":
            sizes = workload.job.batch_sizes
            start = sizes.index(workload.job.default_batch_size)
            nearest = sorted(sizes, key=lambda size: abs(sizes.index(size) - start))
            limits = workload.epochs
            search = GridSearch(
                tuple(JobChoice(size, limit) for size in nearest for limit in sorted(limits[size], reverse=True))
            )
            return search, Ruled(lambda memory, run: search.cell(workload.job, memory, run.gpu).setting)
        case _:
            choice = workload.default if name == "default" else workload.oracle[0]
            return FixedChoice(name, choice.batch_size), Ruled(lambda *_: choice.setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCase:
    """A policy on a job."""

    section: str
    workload: TraceWorkload
    policy: str
    eta: float
    seeds: tuple[int, ...]
    recurrences: int
    drift: JobDrift | None = None
    load: float | None = None
    before: TraceWorkload | None = None
    """The same job on another GPU, where it has been played to the end of its horizon before."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """Results of a case; arrays are (seeds, recurrences), NaN from where one was given up."""

    costs: Floats
    energies_j: Floats
    times_s: Floats
    profiling: Floats
    """The part of the cost that was spent while limits were measured."""
    expected: Floats
    """Mean cost over the trainings that might have been drawn, given all that was known before; NaN where unknown."""
    runs: Floats
    stuck: Floats
    """1 for a recurrence that was given up, and for those after it."""
    oracle: Floats
    """Expected cost of the best fixed choice for each recurrence."""
    cpu_s: float


def run_case(case: JobCase) -> ReplayResult:
    """Play a case with each seed."""
    start = process_time()
    rows = [_package(case, seed) if case.policy == PACKAGE else _own(case, seed) for seed in case.seeds]
    costs, energies_j, times_s, profiling, expected, runs, stuck = np.stack(rows, axis=1)
    return ReplayResult(
        costs, energies_j, times_s, profiling, expected, runs, stuck, _oracle(case), cpu_s=process_time() - start
    )


def _oracle(case: JobCase) -> Floats:
    costs = np.full(case.recurrences, _oracle_cost(case.workload))
    if case.drift is not None:
        costs[case.recurrences // 2 :] = _oracle_cost(case.workload.drifted(case.drift))
    return costs


def _oracle_cost(workload: TraceWorkload) -> float:
    return workload.objective.value(workload.oracle[1])


def _own(case: JobCase, seed: int) -> Floats:
    if case.drift is not None and case.policy == "oracle":
        return _two_oracles(case, case.drift, seed)
    played = _play(case.workload, case, seed, start=None if case.before is None else _before(case, seed))
    return _bills(played, case.recurrences)


def _two_oracles(case: JobCase, drift: JobDrift, seed: int) -> Floats:
    """Return the costs of the old oracle before the change and of the new one after it, on the same trainings."""
    halves = []
    for workload in (case.workload, case.workload.drifted(drift)):
        searcher, limits = make_policy(case.policy, workload, seed)
        played = play(workload, searcher, limits, recurrences=case.recurrences, seed=seed)
        halves.append(_bills(played, case.recurrences))
    change = case.recurrences // 2
    return np.concatenate([halves[0][:, :change], halves[1][:, change:]], axis=1)


def _bills(played: Playback, recurrences: int) -> Floats:
    unplayed = (*[np.nan] * 6, True)
    bills = [_bill(bill) if bill.reached else unplayed for bill in played.recurrences]
    return np.array([*bills, *[unplayed] * (recurrences - len(bills))]).T


def _bill(bill: ReplayedRecurrence) -> tuple[float, ...]:
    expected = np.nan if bill.expected is None else bill.expected
    return bill.cost, bill.energy_j, bill.time_s, bill.profiling, expected, bill.attempts, False


def _play(workload: TraceWorkload, case: JobCase, seed: int, *, start: JobMemory | None) -> Playback:
    searcher, limits = make_policy(case.policy, workload, seed)
    return play(
        workload,
        searcher,
        limits,
        recurrences=case.recurrences,
        seed=seed,
        drift=case.drift,
        load=case.load,
        start=start,
    )


def _before(case: JobCase, seed: int) -> JobMemory:
    """Return the history of the job on the other GPU."""
    assert case.before is not None
    searcher, limits = make_policy(case.policy, case.before, seed)
    # Other random numbers than on the GPU that is judged, since these would be other trainings.
    return play(case.before, searcher, limits, recurrences=case.before.horizon, seed=seed + 1_000_000).memory


def _package(case: JobCase, seed: int) -> Floats:
    times_s, energies_j = job_zeus_package.simulate(
        case.workload, eta=case.eta, recurrences=case.recurrences, seed=seed
    )
    untold = np.full(len(times_s), np.nan)
    costs = _values(case.workload.objective, times_s, energies_j)
    return np.array([costs, energies_j, times_s, untold, untold, untold, np.zeros(len(times_s))])


def _values(objective: Objective, times_s: Floats, energies_j: Floats) -> Floats:
    pairs = zip(times_s.tolist(), energies_j.tolist(), strict=True)
    return np.array([objective.value(Measurement(time_s, energy_j)) for time_s, energy_j in pairs])


SECTIONS = ("horizon", "eta", "drift", "overlap", "transfer", "unseen")

ETAS = (0.0, 0.5, 1.0)
"""Weights of energy: time alone, as published, energy alone."""

DRIFTS = (JobDrift(factor=1.5), JobDrift(factor=2.5), JobDrift(shift=2))
DRIFT_PATIENCE = 4
"""Times the epochs that are allowed where a job is to change, since it may then need more."""

LOADS = (0.2, 0.8)
"""Submissions in the mean per length of the oracle's run."""

SUBMISSIONS = 100
TRANSFER_RECURRENCES = 20
SECTION_SEEDS = 5
"""Most seeds of the sections beside the horizon."""

PACKAGE_SEEDS = 6
"""Most seeds of the authors' own simulator, whose time is spent in tables of three hundred rows."""

_RIVALS = ("default", "zeus", "wattune")


def cases_of(
    section: str, workloads: Sequence[TraceWorkload], *, eta: float, seeds: int, package: bool
) -> tuple[JobCase, ...]:
    """Return the cases of a section; `package` adds Zeus by its authors' own simulator to the horizon."""
    makers = {
        "horizon": lambda: _horizon(workloads, eta, seeds, package=package),
        "eta": lambda: _etas(workloads, eta, min(seeds, SECTION_SEEDS)),
        "drift": lambda: _drifts(workloads, eta, min(seeds, SECTION_SEEDS)),
        "overlap": lambda: _overlaps(workloads, eta, min(seeds, SECTION_SEEDS)),
        "transfer": lambda: _transfers(workloads, eta, min(seeds, SECTION_SEEDS)),
        "unseen": lambda: _unseen(workloads, eta, min(seeds, SECTION_SEEDS)),
    }
    return tuple(makers[section]())


def _horizon(workloads: Iterable[TraceWorkload], eta: float, seeds: int, *, package: bool) -> Iterable[JobCase]:
    policies = ("default", "grid", "zeus", *((PACKAGE,) if package else ()), "wattune", "wattune-safe", "oracle")
    for workload in workloads:
        for policy in policies:
            most = PACKAGE_SEEDS if policy == PACKAGE else seeds
            yield _case("horizon", workload, policy, eta, min(seeds, most))


def _etas(workloads: Iterable[TraceWorkload], main: float, seeds: int) -> Iterable[JobCase]:
    for eta in ETAS:
        if eta != main:
            yield from (_case("eta", workload, policy, eta, seeds) for workload in workloads for policy in _RIVALS)


def _drifts(workloads: Iterable[TraceWorkload], eta: float, seeds: int) -> Iterable[JobCase]:
    for drift in DRIFTS:
        for workload in workloads:
            patient = workload.patient(DRIFT_PATIENCE)
            for policy in (*_RIVALS, "oracle"):
                yield _case("drift", patient, policy, eta, seeds, drift=drift)


def _overlaps(workloads: Iterable[TraceWorkload], eta: float, seeds: int) -> Iterable[JobCase]:
    for load in LOADS:
        for workload in workloads:
            for policy in _RIVALS:
                yield _case("overlap", workload, policy, eta, seeds, recurrences=SUBMISSIONS, load=load)


def _unseen(workloads: Sequence[TraceWorkload], eta: float, seeds: int) -> Iterable[JobCase]:
    for workload in unseen.made_up(workloads, unseen.NUMBERS):
        for policy in (*_RIVALS, "wattune-safe"):
            yield _case("unseen", workload, policy, eta, seeds)


def _transfers(workloads: Sequence[TraceWorkload], eta: float, seeds: int) -> Iterable[JobCase]:
    """Yield ours on each GPU, without history and with that of the same job on the GPU before it in the list."""
    for workload in workloads:
        others = [other for other in workloads if other.name == workload.name and other.gpu != workload.gpu]
        for before in (None, *others[-1:]) if others else ():
            yield _case("transfer", workload, "wattune", eta, seeds, recurrences=TRANSFER_RECURRENCES, before=before)


def _case(
    section: str,
    workload: TraceWorkload,
    policy: str,
    eta: float,
    seeds: int,
    *,
    recurrences: int | None = None,
    drift: JobDrift | None = None,
    load: float | None = None,
    before: TraceWorkload | None = None,
) -> JobCase:
    objective = f"cost:{eta:g}"
    return JobCase(
        section=section,
        workload=workload.wanting(objective),
        policy=policy,
        eta=eta,
        seeds=tuple(range(seeds)),
        recurrences=recurrences or workload.horizon,
        drift=drift,
        load=load,
        before=None if before is None else before.wanting(objective),
    )
