"""One run of a recurring job, live: connects the store, the policy and the GPUs.

    session.start()                     choose a batch size and apply the first setting
    session.step()                      after each iteration, where the program reports them
    session.report(metric)              after each epoch; the verdict decides whether to go on
    session.end()                       restore the GPUs and store how the run ended

In a data-parallel job every rank has a session of its own, on its own GPUs, and all make the same calls. Rank 0 decides
and writes, and broadcasts its decisions.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wattune.control.ranks import Alone, Ranks, error_text
from wattune.core.errors import InputError
from wattune.core.frontier import History
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, metric_value
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.gpus import found_limit_w, job_gpu_of, job_settings
from wattune.levels.job.options import JobKnob
from wattune.levels.job.profile import (
    epoch_trials,
    expected_epochs,
    level_distance,
    profiling_objective,
    similar_to,
    windows_to_come,
)
from wattune.levels.job.profiler import Profiler, spent_between
from wattune.levels.job.profiling import ProfileHeld, SettingProfiling, Windows
from wattune.levels.job.store_access import JobStoreAccess, LeaseKeeper
from wattune.response.setting_search import SettingSearch

LEVEL_DISTANCE = 0.05
"""Relative difference between the time of an epoch and its profile at which the profile is updated."""

_NOTHING = Measurement(0.0, 0.0)
_T = TypeVar("_T")


def log_warning(text: str) -> None:
    """Log what went wrong without stopping the training."""
    logging.getLogger("wattune").warning(text)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """How a run ended, and why."""

    outcome: Outcome
    why: str


class JobSession:
    """One run of a job on the GPUs of this process."""

    def __init__(
        self,
        job: Job,
        gpus: Sequence[Gpu],
        *,
        store_access: JobStoreAccess,
        knob: JobKnob = JobKnob.AUTO,
        ranks: Ranks | None = None,
        synchronise: Callable[[], None] | None = None,
        warn: Callable[[str], None],
    ) -> None:
        """`warn` is called with problems that do not stop the training; `synchronise` waits for the GPUs' work."""
        self.job, self.gpus = job, tuple(gpus)
        self.ranks = ranks or Alone()
        self.verdict: RunVerdict | None = None
        """How the run ended; None while it goes on."""
        self._store_access, self._knob, self._synchronise, self._warn = store_access, knob, synchronise, warn
        self._run: JobRun | None = None
        self._profiler: Profiler | None = None
        self._cached: History[Setting] = ()
        self._lease: LeaseKeeper | None = None
        self._before: tuple[Count, ...] = ()
        self._mine = _NOTHING
        """Cost of this process, as far as its counters were readable."""
        self._epoch: Measurement | None = None
        """The last epoch, where one setting was held for all of it."""
        self._is_held = False
        """Whether the setting of this epoch was known when it began."""
        self._profile_is_final = False
        _check_shares(job, self.ranks)

    def start(self, *, replaces: str | None = None) -> JobRun:
        """Submit and start the run that the policy chose. `replaces` is the id of the run that it replaces."""
        gpu = job_gpu_of(self.gpus, self.ranks)
        limit_w = found_limit_w(self.gpus, self.ranks)
        memory = JobMemory()
        run = None
        if self.ranks.rank == 0:
            try:
                run, memory = self._store_access.submit(gpu, replaces=replaces)
            except Exception as error:
                self.ranks.broadcast(json.dumps(error_text(error)))  # the other ranks wait for the run
                raise
        self._run = _shared(run, gpu, self.ranks)
        try:
            self._begin(memory, limit_w)
        except BaseException as error:
            self.end(error=error)
            raise
        return self._run

    def _begin(self, memory: JobMemory, limit_w: float | None) -> None:
        """Start the measurement, apply the first setting and keep the lease."""
        run = self.run
        self._before = tuple(gpu.count() for gpu in self.gpus)
        self._profiler = Profiler(
            self._policy(run, memory, limit_w),
            self.gpus,
            ranks=self.ranks,
            warn=self._warn,
            synchronise=self._synchronise,
        )
        self._begin_epoch(self._profiler)
        if self.ranks.rank == 0:
            self._lease = LeaseKeeper(lambda: self._store_access.renew(run), lease_s=self._store_access.lease_s)
            self._lease.start()

    @property
    def run(self) -> JobRun:
        if self._run is None:
            raise InputError("this run has not begun", hint="start it first")
        return self._run

    @property
    def local_batch_size(self) -> int:
        """The share of each rank."""
        return self.run.batch_size // self.ranks.size

    @property
    def reached(self) -> bool:
        return self.verdict is not None and self.verdict.outcome is Outcome.REACHED

    @property
    def stopped(self) -> str | None:
        """Why the run should end before it reached the target, or None."""
        return None if self.verdict is None or self.reached else self.verdict.why

    @property
    def setting(self) -> Setting | None:
        """What is set on the GPUs now; None is the setting that was found."""
        return None if self._profiler is None else self._profiler.setting

    @property
    def is_profiling(self) -> bool:
        return self._profiler is not None and self._profiler.is_searching

    def warn(self, text: str) -> None:
        self._warn(text)

    def step(self, count: int = 1) -> None:
        """Count iterations that have ended."""
        if self._profiler is not None and self.verdict is None:
            self._profiler.step(count)

    def report(self, metric: float | None) -> RunVerdict | None:
        """End an epoch with its metric; return how the run ended, or None where it goes on.

        A metric that is no finite number is stored as None. Once the run is over, a report changes nothing.
        """
        if self.verdict is not None:
            self._warn(f"a report came after the run had ended ({self.verdict.why}); it is not counted")
            return self.verdict
        profiler, number = self._current(), metric_value(metric)
        profiler.end_epoch()
        self._count_epoch(number)
        self.verdict = _shared_verdict(self._judged() if self.ranks.rank == 0 else None, self.ranks)
        if self.verdict is None:
            self._begin_epoch(profiler)
        else:
            self._close(self.verdict.outcome)
        return self.verdict

    def end(self, outcome: Outcome | None = None, *, error: BaseException | None = None) -> JobRun:
        """End the run and restore the GPUs.

        An earlier verdict stands. Otherwise the outcome is the one given, or follows from the error, or is a missed
        target, if there was any epoch.
        """
        if self.verdict is None and self._run is not None:
            outcome = outcome or _outcome(error, self._run)
            if self.ranks.size == 1 and self._profiler is not None:  # other ranks may be gone, so none is asked
                self._run = self._spent(self._run)
            self.verdict = RunVerdict(outcome, _why(outcome, error))
            self._close(outcome)
        elif self._profiler is not None:
            self._profiler.give_up()
        return self.run

    def _policy(self, run: JobRun, memory: JobMemory, limit_w: float | None) -> SettingProfiling:
        spec = self.gpus[0].spec
        candidates = job_settings(spec, self._knob, limit_w=limit_w)
        knobs = candidates[-1].knobs if candidates else ()
        own = memory.profile(run.gpu, run.batch_size)
        self._cached = () if own is None else tuple(trial for trial in own.trials if trial.choice in candidates)
        limits, clocks = spec.power_limits, spec.sm_clocks_mhz
        search = SettingSearch(
            objective=profiling_objective(self.job, run.gpu, memory, run.batch_size),
            similar=similar_to(memory, run.gpu, run.batch_size, knobs=knobs),
            gpus=run.gpu.count,
            max_power_w=None if limits is None else limits.max_w,
            limit_w=limit_w,
            max_mhz=clocks[-1] if clocks else None,
            horizon=windows_to_come(memory, run.gpu, run.batch_size),
        )
        period_s = spec.sensors.counter_period_s
        return SettingProfiling(
            search=search,
            candidates=candidates,
            windows=Windows() if period_s is None else Windows(counter_period_s=period_s),
            cached=self._cached,
            epochs=expected_epochs(self.job, memory, run.batch_size),
        )

    def _begin_epoch(self, profiler: Profiler) -> None:
        profiler.begin_epoch()
        self._is_held = not profiler.is_searching

    def _count_epoch(self, metric: float | None) -> None:
        """Add an epoch and its cost to the run."""
        before = self.run.cost or _NOTHING
        self._run = replace(self._spent(self.run), metrics=(*self.run.metrics, metric))
        after = self._run.cost or _NOTHING
        self._epoch = None
        if self._is_held and after.time_s > before.time_s and after.energy_j > before.energy_j:
            self._epoch = Measurement(after.time_s - before.time_s, after.energy_j - before.energy_j)

    def _spent(self, run: JobRun) -> JobRun:
        """Return the run with the cost of all ranks so far."""
        profiler = self._current()
        mine = self._mine = self._counted() or self._mine
        (energy_j, _), (_, time_s) = self.ranks.sum_and_max((mine.energy_j, mine.time_s))
        setting = None if profiler.is_searching else profiler.setting
        return replace(run, cost=Measurement(time_s, energy_j), profiling=profiler.spent, setting=setting)

    def _counted(self) -> Measurement | None:
        """Return the cost of the GPUs of this process since the start; None where a counter cannot be read."""
        try:
            spent = spent_between(self._before, tuple(gpu.count() for gpu in self.gpus))
        except Exception as error:  # of a device or its driver
            self._warn(f"{error_text(error)}; the cost since the last report is not known")
            return None
        if spent is None:
            self._warn("an energy counter went backwards; the cost since the last report is not known")
        return spent

    def _judged(self) -> RunVerdict | None:
        """Store the newest epoch and profile, on rank 0, and return how the run ended, or None where it goes on."""
        run, job = self.run, self.job
        if not self._guarded(lambda: self._store_access.report(run), otherwise=True):
            return RunVerdict(Outcome.LOST, "another run took its place")
        self._guarded(self._keep_profile, otherwise=None)
        if job.reaches(run.metrics[-1]):
            return RunVerdict(Outcome.REACHED, f"the target {job.target:g} is reached after {_epochs(run.epochs)}")
        if run.epochs >= job.max_epochs:
            return RunVerdict(Outcome.MISSED, f"the target {job.target:g} is not reached after {_epochs(run.epochs)}")
        why = self._guarded(lambda: self._store_access.stop(run), otherwise=None)
        return None if why is None else RunVerdict(Outcome.STOPPED, why)

    def _guarded(self, call: Callable[[], _T], *, otherwise: _T) -> _T:
        """Call a part of the tuning; where it raises, warn and go on: the other ranks and the training wait."""
        try:
            return call()
        except Exception as error:
            self._warn(f"{error_text(error)}; going on without it")
            return otherwise

    def _keep_profile(self) -> None:
        """Store the profile as soon as it is known, and again when an epoch shows its level."""
        profiler = self._current()
        progress = profiler.progress
        if self._profile_is_final or not isinstance(progress, ProfileHeld) or not profiler.is_over:
            return
        trials = self._epoch_trials(progress, profiler)
        self._profile_is_final = self._epoch is not None or profiler.by_epoch
        if trials:
            self._store_access.keep_profile(Profile(gpu=self.run.gpu, batch_size=self.run.batch_size, trials=trials))

    def _epoch_trials(self, progress: ProfileHeld, profiler: Profiler) -> History[Setting]:
        """Return the cost of an epoch at each measured setting; nothing where that is stored already."""
        if progress.trials:
            steps = 1 if profiler.by_epoch else profiler.epoch_steps
            epoch = None if profiler.by_epoch else self._epoch
            return () if steps is None else epoch_trials(progress.trials, steps, held=progress.setting, epoch=epoch)
        if self._epoch is None or level_distance(self._cached, progress.setting, self._epoch) <= LEVEL_DISTANCE:
            return ()
        return epoch_trials(self._cached, 1, held=progress.setting, epoch=self._epoch)

    def _close(self, outcome: Outcome) -> None:
        """Record the outcome and restore the GPUs."""
        self._run = replace(self.run, outcome=outcome)
        if self._profiler is not None:
            self._profiler.give_up()
        if self._lease is not None:
            self._lease.stop()
        if self.ranks.rank == 0 and outcome is not Outcome.LOST:
            self._store_access.end(self.run, outcome)

    def _current(self) -> Profiler:
        if self._profiler is None:
            raise InputError("this run has not begun", hint="start it first")
        return self._profiler


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, shows that a batch does not fit the GPU."""
    while error is not None:
        if type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error).lower():
            return True
        error = error.__cause__
    return False


def _outcome(error: BaseException | None, run: JobRun) -> Outcome:
    if is_out_of_memory(error):
        return Outcome.OUT_OF_MEMORY
    # Without an epoch nothing is known of the batch size.
    return Outcome.CRASHED if error is not None or not run.epochs else Outcome.MISSED


def _why(outcome: Outcome, error: BaseException | None) -> str:
    if error is not None:
        return f"{type(error).__name__}: {error}".rstrip(": ")
    return f"it ended as {outcome.value.replace('_', ' ')}"


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _check_shares(job: Job, ranks: Ranks) -> None:
    uneven = [size for size in job.batch_sizes if size % ranks.size]
    if uneven:
        raise InputError(
            f"{job.name}: batch sizes are over all {ranks.size} ranks, which cannot share {uneven[0]} evenly",
            hint=f"give multiples of {ranks.size}",
        )


def _shared(run: JobRun | None, gpu: JobGpu, ranks: Ranks) -> JobRun:
    """Share the run of rank 0 with every rank."""
    mine = (
        "" if run is None else json.dumps([run.id, run.order, run.recurrence, run.batch_size, run.exploring, run.why])
    )
    received = json.loads(ranks.broadcast(mine))
    if run is not None:
        return run
    if isinstance(received, str):
        raise InputError(f"rank 0 could not begin the run: {received}", hint="see the log of rank 0")
    names = ("id", "order", "recurrence", "batch_size", "exploring", "why")
    return JobRun(gpu=gpu, **dict(zip(names, received, strict=True)))


def _shared_verdict(verdict: RunVerdict | None, ranks: Ranks) -> RunVerdict | None:
    """Share the verdict of rank 0 with every rank."""
    received = json.loads(
        ranks.broadcast(json.dumps(None if verdict is None else [verdict.outcome.value, verdict.why]))
    )
    return None if received is None else RunVerdict(Outcome(received[0]), received[1])
