"""A recurring job, replayed from recorded tables: a policy sees what a live job would see, and pays for all it does.

Each recurrence draws one of the trainings that were recorded at the batch size chosen. Its epochs pass one by one; the
searcher is asked after each whether to go on. A run that was stopped or that missed the target is replaced within its
recurrence, which pays for both. Windows at poor power limits are paid for like everything else.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import fmean

import numpy as np

from wattune.core.job import JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.levels.job.policies import JobSearcher
from wattune.physics.gpu_parts import Floats
from wattune_bench.job.replayed_run import (
    LimitProfiling,
    Limits,
    PaidEpochs,
    ReplayedRun,
    Ruled,
    ShippedLimits,
    ShippedProfiling,
    ZeusLimits,
    ZeusProfile,
    ZeusProfiling,
)
from wattune_bench.job.trace import JobDrift, TraceWorkload, Training

_NOTHING = Measurement(0.0, 0.0)
ATTEMPTS = 20
"""Runs that a recurrence may take, as in the simulator published with Zeus; then it is given up, and the job too."""


@dataclass(frozen=True, slots=True)
class ReplayedRecurrence:
    """The cost of training the model once."""

    cost: float
    """By the objective, of all its runs."""
    energy_j: float
    time_s: float
    profiling: float
    """The part of the cost that was spent while limits were measured."""
    expected: float | None
    """Mean cost over the trainings that might have been drawn, given all that was known at its start; None where
    recurrences overlap."""
    batch_sizes: tuple[int, ...]
    """Of its runs, in their order; the last one reached the target."""
    reached: bool
    """False where it was given up after too many attempts."""

    @property
    def attempts(self) -> int:
        return len(self.batch_sizes)


@dataclass(frozen=True, slots=True)
class Playback:
    """The recurrences of a job under a policy."""

    recurrences: tuple[ReplayedRecurrence, ...]
    """As many as were played: none follows on one that was given up, where they are played one by one."""
    memory: JobMemory

    @property
    def costs(self) -> Floats:
        return np.array([recurrence.cost for recurrence in self.recurrences])

    @property
    def stuck(self) -> bool:
        return not all(recurrence.reached for recurrence in self.recurrences)


def play(
    workload: TraceWorkload,
    searcher: JobSearcher,
    limits: Limits,
    *,
    recurrences: int,
    seed: int,
    drift: JobDrift | None = None,
    load: float | None = None,
    start: JobMemory | None = None,
) -> Playback:
    """Play a job under a policy.

    `drift` changes the job after half of the recurrences. `load` submits them at random moments, so many in the mean
    per length of the oracle's run, whether or not earlier ones are over; without it one follows on the other. `start`
    is what is known beforehand, such as from another GPU. Policies that choose alike are dealt the same trainings.
    """
    replay = _Replay(workload, searcher, limits, seed=seed, recurrences=recurrences, drift=drift, start=start)
    if load is None:
        replay.one_by_one()
    else:
        replay.overlapping(load)
    return replay.playback()


@dataclass(slots=True)
class _Spent:
    """Cost of a recurrence so far."""

    time_s: float = 0.0
    energy_j: float = 0.0
    profiling: Measurement = field(default=_NOTHING)
    expected: float | None = None
    batch_sizes: list[int] = field(default_factory=list)
    reached: bool = False

    def closed(self, objective: Objective) -> ReplayedRecurrence:
        return ReplayedRecurrence(
            objective.value(Measurement(self.time_s, self.energy_j)),
            self.energy_j,
            self.time_s,
            objective.value(self.profiling),
            self.expected,
            tuple(self.batch_sizes),
            self.reached,
        )


class _Replay:
    """The job in play: its history as a store would hold it, and the cost of each recurrence."""

    def __init__(
        self,
        workload: TraceWorkload,
        searcher: JobSearcher,
        limits: Limits,
        *,
        seed: int,
        recurrences: int,
        drift: JobDrift | None,
        start: JobMemory | None,
    ) -> None:
        known = start or JobMemory()
        self._workload, self._searcher, self._limits = workload, searcher, limits
        self._objective = workload.objective
        self._later = workload if drift is None else workload.drifted(drift)
        self._change = recurrences if drift is None else recurrences // 2
        self._runs = list(known.runs)
        self._known = known.profiles
        self._own_profiles: dict[int, Profile] = {}
        self._zeus: dict[int, ZeusProfile] = {}
        self._next: tuple[int, Proposal] | None = None
        self._first_run: dict[int, PaidEpochs] = {}
        self._foreseen = isinstance(limits, ZeusLimits)
        self._first = 1 + max((run.recurrence for run in known.runs), default=-1)
        self._spent = [_Spent() for _ in range(recurrences)]
        generator = np.random.default_rng([seed, 1])
        self._luck = generator.random((recurrences, ATTEMPTS))
        self._seed = seed

    def one_by_one(self) -> None:
        """Play every recurrence to its end before the next, until one is given up."""
        for number, spent in enumerate(self._spent):
            spent.expected = self._expected(number)
            self._recur(number)
            if not spent.reached:
                return

    def _recur(self, number: int) -> None:
        """Play a recurrence to its end."""
        while (attempt := self._submit(number)) is not None:
            memory = self._memory()
            while attempt.run.outcome is Outcome.RUNNING:
                profiles = memory.profiles
                self._work(attempt)
                if (now := self._profiles()) != profiles:
                    memory = JobMemory(memory.runs, now)
                self._close_epoch(attempt, memory)

    def _expected(self, number: int) -> float:
        """Return the mean cost of a recurrence over the trainings that its first run may draw, nothing else changed."""
        trainings = len(self._at(number).trainings[self._proposed(number).batch_size])
        replaced = np.random.default_rng([self._seed, 4, number]).random((trainings, ATTEMPTS))
        replaced[:, 0] = (np.arange(trainings) + 0.5) / trainings
        return fmean(self._once(number, luck) for luck in replaced)

    def _once(self, number: int, luck: Floats) -> float:
        """Return the cost of a recurrence with other luck, and leave the job as it is."""
        other = copy(self)
        other._runs, other._own_profiles = list(self._runs), dict(self._own_profiles)
        other._zeus = {size: profile.copied() for size, profile in self._zeus.items()}
        other._spent, other._luck = [*self._spent[:number], _Spent()], self._luck.copy()
        other._luck[number] = luck
        other._recur(number)
        return other._spent[number].closed(self._objective).cost

    def overlapping(self, load: float) -> None:
        """Submit recurrences at random moments and play them side by side."""
        gap_s = self._workload.oracle[1].time_s / load
        arrivals_s = np.random.default_rng([self._seed, 2]).exponential(gap_s, len(self._spent)).cumsum()
        queue: list[tuple[float, int, int, ReplayedRun | None]] = []
        for number, arrival_s in enumerate(arrivals_s):
            heappush(queue, (float(arrival_s), len(queue), number, None))
        stamp = len(queue)
        while queue:
            now_s, _, number, attempt = heappop(queue)
            if attempt is None:
                attempt = self._submit(number)
            else:
                self._close_epoch(attempt, self._memory_beside(attempt))
                self._runs[attempt.run.order] = attempt.run
            if attempt is not None and attempt.run.outcome is not Outcome.RUNNING:
                attempt = self._submit(number)
            if attempt is not None:
                stamp += 1
                heappush(queue, (now_s + self._work(attempt), stamp, number, attempt))

    def playback(self) -> Playback:
        bills = tuple(spent.closed(self._objective) for spent in self._spent if spent.batch_sizes)
        return Playback(bills, self._memory())

    def _submit(self, number: int) -> ReplayedRun | None:
        """Start the next run of a recurrence that is not stopped at once; None where it needs none any more."""
        spent = self._spent[number]
        while not spent.reached and len(spent.batch_sizes) < ATTEMPTS:
            attempt = self._attempt(number)
            if attempt.run.outcome is Outcome.RUNNING:
                return attempt
        return None

    def _attempt(self, number: int) -> ReplayedRun:
        workload, memory, proposal = self._at(number), self._memory(), self._proposed(number)
        run = JobRun(
            id=str(len(self._runs)),
            order=len(self._runs),
            recurrence=self._first + number,
            batch_size=proposal.batch_size,
            gpu=workload.gpu,
            exploring=proposal.exploring,
            why=proposal.why,
        )
        epochs = self._epochs(number, run, memory)
        attempt = ReplayedRun(workload, run, self._drawn(workload, number, run), epochs=epochs)
        self._spent[number].batch_sizes.append(run.batch_size)
        self._runs.append(run)
        if self._foreseen and self._searcher.stop(workload.job, self._memory(), run) is not None:
            self._end(attempt, Outcome.STOPPED)
        return attempt

    def _proposed(self, number: int) -> Proposal:
        """Ask for the next run, once: a recurrence that is played with other luck begins alike."""
        if self._next is None or self._next[0] != len(self._runs):
            workload = self._at(number)
            proposal = self._searcher.propose(workload.job, self._memory(), workload.gpu)
            self._next = len(self._runs), proposal
        return self._next[1]

    def _at(self, number: int) -> TraceWorkload:
        return self._later if number >= self._change else self._workload

    def _drawn(self, workload: TraceWorkload, number: int, run: JobRun) -> Training:
        trainings = workload.trainings[run.batch_size]
        return trainings[int(self._luck[number, len(self._spent[number].batch_sizes)] * len(trainings))]

    def _epochs(self, number: int, run: JobRun, memory: JobMemory) -> PaidEpochs:
        """Return the epochs of a run; those of a recurrence's first one are the same whatever training it draws."""
        is_first = isinstance(self._limits, ShippedLimits) and not self._spent[number].batch_sizes
        if is_first and run.order in self._first_run:
            return self._first_run[run.order]
        epochs = PaidEpochs(self._at(number).epochs[run.batch_size], self._limit(run, memory))
        if is_first:
            self._first_run.clear()
            self._first_run[run.order] = epochs
        return epochs

    def _limit(self, run: JobRun, memory: JobMemory) -> LimitProfiling | Setting:
        """Return the limit that a run holds, or the search for it."""
        if isinstance(self._limits, Ruled):
            return self._limits.setting(memory, run)
        if isinstance(self._limits, ZeusLimits):
            if run.batch_size not in self._zeus:
                self._zeus[run.batch_size] = ZeusProfile(self._workload, run.batch_size)
                self._keep(self._zeus[run.batch_size].profile)
            return ZeusProfiling(self._zeus[run.batch_size])
        noise = np.random.default_rng([self._seed, 3, run.order])
        return ShippedProfiling(self._workload, run, memory, noise=noise)

    def _keep(self, profile: Profile) -> None:
        self._own_profiles[profile.batch_size] = profile

    def _work(self, attempt: ReplayedRun) -> float:
        """Pay for the next epoch and return its seconds."""
        cost, profiling, profile = attempt.pass_epoch()
        if profile is not None:
            self._keep(profile)
        spent = self._spent[attempt.run.recurrence - self._first]
        spent.time_s += cost.time_s
        spent.energy_j += cost.energy_j
        if profiling.time_s:
            spent.profiling += profiling
        return cost.time_s

    def _close_epoch(self, attempt: ReplayedRun, memory: JobMemory) -> None:
        """Report the epoch, and end the run where it should end."""
        attempt.report()
        if attempt.reached:
            self._spent[attempt.run.recurrence - self._first].reached = True
            self._end(attempt, Outcome.REACHED)
        elif attempt.run.epochs >= self._workload.job.max_epochs:
            self._end(attempt, Outcome.MISSED)
        elif self._searcher.stop(self._workload.job, memory, attempt.run) is not None:
            self._end(attempt, Outcome.STOPPED)

    def _end(self, attempt: ReplayedRun, outcome: Outcome) -> None:
        attempt.end(outcome, ended=len(self._runs))
        self._runs[attempt.run.order] = attempt.run

    def _memory(self) -> JobMemory:
        return JobMemory(tuple(self._runs), self._profiles())

    def _profiles(self) -> tuple[Profile, ...]:
        own, key = self._own_profiles, self._workload.gpu.key
        return (*(old for old in self._known if old.gpu.key != key or old.batch_size not in own), *own.values())

    def _memory_beside(self, attempt: ReplayedRun) -> JobMemory:
        """Return the memory while a run is at work: the others as they are, itself as it was submitted."""
        runs = (*self._runs[: attempt.run.order], attempt.submitted, *self._runs[attempt.run.order + 1 :])
        return JobMemory(runs, self._profiles())
