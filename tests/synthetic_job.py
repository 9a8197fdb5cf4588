"""A recurring job with known epochs and costs by batch size, learning curves, and runs with given outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.job.policies import JobSearcher

GPU = JobGpu(name="v100", simulated=True, max_power_w=250.0)
JOB = Job(
    name="nightly",
    batch_sizes=(16, 32, 64, 128, 256, 512, 1024),
    default_batch_size=512,
    target=0.9,
    max_epochs=100,
    objective="cost:0.5",
)
EPOCHS = {16: 22.0, 32: 16.0, 64: 15.0, 128: 18.0, 256: 24.0, 512: 40.0, 1024: 75.0}
"""The cheapest is 128 with the costs below; the default costs half as much again."""

TOP, LOW = Setting(power_limit_w=250.0), Setting(power_limit_w=150.0)


def epoch_cost(size: int) -> Measurement:
    """What an epoch costs at the low limit: overhead for every iteration, and the samples."""
    time_s = 60.0 + 4000.0 / size
    return Measurement(time_s, 140.0 * time_s)


def profile(size: int, *, gpu: JobGpu = GPU, cost: Callable[[int], Measurement] = epoch_cost) -> Profile:
    """Both limits measured: the high one is a twentieth more expensive."""
    low = cost(size)
    high = Measurement(low.time_s * 0.98, low.energy_j * 1.2)
    return Profile(gpu=gpu, batch_size=size, trials=(Trial(TOP, high), Trial(LOW, low)))


def curve(epochs: int, whole: float, target: float = 0.9) -> tuple[float, ...]:
    """What a run has reported that needs so many epochs in all."""
    return tuple(target * (min(epoch, whole) / whole) ** 0.4 for epoch in range(1, epochs + 1))


def finished(order: int, size: int, epochs: int, *, recurrence: int | None = None, exploring: bool = False) -> JobRun:
    """A run that reached the target."""
    return ended(order, size, epochs, outcome=Outcome.REACHED, recurrence=recurrence, exploring=exploring)


def ended(
    order: int,
    size: int,
    epochs: int,
    *,
    outcome: Outcome,
    whole: float | None = None,
    recurrence: int | None = None,
    exploring: bool = False,
    gpu: JobGpu = GPU,
) -> JobRun:
    """A run that ended after so many epochs, on its way to `whole`."""
    return JobRun(
        id=f"run-{order}",
        order=order,
        recurrence=order if recurrence is None else recurrence,
        batch_size=size,
        gpu=gpu,
        exploring=exploring,
        outcome=outcome,
        metrics=curve(epochs, whole or epochs) if epochs else (),
        cost=epoch_cost(size) / (1.0 / epochs) if epochs else None,
        setting=LOW,
        ended=None if outcome is Outcome.RUNNING else order + 1,
    )


def remembered(*runs: JobRun, gpu: JobGpu = GPU) -> JobMemory:
    """The runs, and the profiles that they would have left."""
    sizes = sorted({run.batch_size for run in runs if run.gpu.key == gpu.key and run.epochs})
    return JobMemory(runs, tuple(profile(size, gpu=gpu) for size in sizes))


@dataclass(slots=True)
class World:
    """A job that is trained again and again under a searcher; `epochs` may be changed in between."""

    searcher: JobSearcher
    job: Job = JOB
    gpu: JobGpu = GPU
    epochs: Mapping[int, float | None] = field(default_factory=lambda: dict(EPOCHS))
    """None never reaches the target."""
    noise: float = 0.05
    seed: int = 0
    too_large: int | None = None
    memory: JobMemory = field(default_factory=JobMemory)

    def recur(self, count: int) -> list[float]:
        """The cost of each of so many recurrences, everything included."""
        return [self._recurrence() for _ in range(count)]

    def _recurrence(self) -> float:
        number = 1 + max((run.recurrence for run in self.memory.runs), default=-1)
        cost = 0.0
        for _ in range(20):
            run = self._run(number)
            cost += 0.0 if run.cost is None else self.value(run.cost)
            if run.outcome is Outcome.REACHED:
                return cost
        raise AssertionError("stuck: 20 runs did not reach the target")

    def value(self, cost: Measurement) -> float:
        """By the job's objective."""
        return self.job.objective_on(self.gpu.max_power_w).value(cost)

    def _run(self, recurrence: int) -> JobRun:
        proposal = self.searcher.propose(self.job, self.memory, self.gpu)
        order = len(self.memory.runs)
        run = JobRun(
            id=f"run-{order}",
            order=order,
            recurrence=recurrence,
            batch_size=proposal.batch_size,
            gpu=self.gpu,
            exploring=proposal.exploring,
            why=proposal.why,
        )
        if self.too_large is not None and run.batch_size >= self.too_large:
            return self._end(run, Outcome.OUT_OF_MEMORY)
        if self.memory.profile(self.gpu, run.batch_size) is None:
            profiles = (*self.memory.profiles, profile(run.batch_size, gpu=self.gpu))
            self.memory = replace(self.memory, profiles=profiles)
        return self._train(run)

    def _train(self, run: JobRun) -> JobRun:
        luck = np.random.default_rng([self.seed, run.order]).normal()
        wanted = self.epochs[run.batch_size]
        whole = 10.0 * self.job.max_epochs if wanted is None else max(round(wanted * np.exp(self.noise * luck)), 1)
        before = replace(self.memory, runs=(*self.memory.runs, run))
        for epoch in range(1, self.job.max_epochs + 1):
            run = replace(
                run,
                metrics=curve(epoch, whole, self.job.target),
                cost=epoch_cost(run.batch_size) / (1.0 / epoch),
                setting=LOW,
            )
            if self.job.reaches(run.metrics[-1]):
                return self._end(run, Outcome.REACHED)
            if self.searcher.stop(self.job, before, run) is not None:
                return self._end(run, Outcome.STOPPED)
        return self._end(run, Outcome.MISSED)

    def _end(self, run: JobRun, outcome: Outcome) -> JobRun:
        run = replace(run, outcome=outcome, ended=len(self.memory.runs) + 1)
        self.memory = replace(self.memory, runs=(*self.memory.runs, run))
        return run
