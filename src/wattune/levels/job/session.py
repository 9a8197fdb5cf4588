"""One run of a recurring job, live: connects the store, the policy and the GPUs; `with recurring_job(...) as run`.

    run.start()                     choose a batch size and apply the first setting
    run.step()                      after each iteration, where the program reports them
    run.report(metric)              after each epoch; returns whether to go on
    run.end()                       restore the GPUs and store how the run ended

In a data-parallel job every rank has a run of its own, on its own GPUs, and all make the same calls. Rank 0 decides and
writes, and broadcasts its decisions. Where a rank is lost, tuning is disabled and each rank goes by its own metric.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wattune.control.process_monitor import is_beside_unfollowed
from wattune.control.ranks import Agreement, Alone, Numbers, Ranks, error_text
from wattune.core.errors import InputError
from wattune.core.frontier import History
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, StepAccount, metric_value
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.gpus import found_limit_w, job_gpu_of, job_settings
from wattune.levels.job.options import JobKnob, scaled_rate
from wattune.levels.job.profile import epoch_trials, level_distance, setting_profiling
from wattune.levels.job.profiler import Profiler
from wattune.levels.job.profiling import COUNTER_PERIOD_S, ProfileHeld, SettingProfiling
from wattune.levels.job.step_tally import of_all, spent_between
from wattune.levels.job.store_access import JobStoreAccess, LeaseKeeper
from wattune.process.step_file import UNFOLLOWED

LEVEL_DISTANCE = 0.05
"""Relative difference between the time of an epoch and its profile at which the profile is updated."""

IDLE_S = 0.5
"""Between two polls of a run that is over."""

_NOTHING = Measurement(0.0, 0.0)
_OUTCOMES = tuple(Outcome)
B = TypeVar("B")
_T = TypeVar("_T")


def log_warning(text: str) -> None:
    """Log what went wrong without stopping the training."""
    logging.getLogger("wattune").warning(text)


@dataclass(frozen=True, slots=True)
class Following:
    """What is known beforehand of whether the program follows the clocks of its GPUs, which simulated ones may not."""

    refused: str | None = None
    """Why its times show nothing of a setting: then nothing is set, and nothing compared."""
    needs_steps: str | None = None
    """The same of a program without counted steps."""

    def judged(self, account: StepAccount) -> StepAccount:
        """Return the account, empty where it shows nothing."""
        if self.refused is not None:
            return StepAccount(why_not=self.refused)
        if self.needs_steps is not None and account.unit != "step":
            return StepAccount(why_not=self.needs_steps)
        return account


NO_DOUBT = Following()


def served_following(gpus: Sequence[Gpu]) -> Following:
    """Return what is known of how this program follows its GPUs: beside simulated ones of a library it may not."""
    return Following(refused=UNFOLLOWED) if is_beside_unfollowed(gpus) else NO_DOUBT


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The outcome of a run and the reason."""

    outcome: Outcome
    why: str


class RecurringRun:
    """The batch size to train with, the epochs to train for, and where to report the metric."""

    def __init__(
        self,
        job: Job,
        gpus: Sequence[Gpu],
        *,
        store_access: JobStoreAccess,
        knob: JobKnob = JobKnob.AUTO,
        ranks: Ranks | None = None,
        synchronise: Callable[[], None] | None = None,
        warn: Callable[[str], None] = log_warning,
        following: Following = NO_DOUBT,
        polled_s: float | None = None,
    ) -> None:
        """`warn` is called with problems that do not stop the training; `synchronise` waits for the GPUs' work.

        `polled_s` is the longest time between two calls of `poll`, where it is called.
        """
        self.job, self.gpus = job, tuple(gpus)
        self.verdict: RunVerdict | None = None
        """The outcome and its reason; None while the run goes on."""
        self._agreement = Agreement(ranks or Alone())
        self._store_access, self._knob, self._synchronise, self._warn = store_access, knob, synchronise, warn
        self.following, self._polled_s = following, polled_s
        self._run: JobRun | None = None
        self._profiler: Profiler | None = None
        self._cached: History[Setting] = ()
        self._lease: LeaseKeeper | None = None
        self._before: tuple[Count, ...] = ()
        self._mine = _NOTHING
        """Cost of this process, as far as its counters were readable."""
        self._epoch: Measurement | None = None
        """The last epoch, where one setting was held for all of it."""
        self._first: Measurement | None = None
        """The cost until the first report."""
        self._is_held = False
        """True where the setting of this epoch was known when it began."""
        self._profile_is_final = False
        self._reported: bool | None = None
        """True once this epoch was reported; None outside of `epochs()`."""
        _check_shares(job, self._ranks)

    @property
    def _ranks(self) -> Ranks:
        return self._agreement.ranks

    @property
    def run(self) -> JobRun:
        """The run as it is stored."""
        if self._run is None:
            raise InputError("this run has not begun", hint="start it first")
        return self._run

    @property
    def id(self) -> str:
        """The id of the run in the history."""
        return self.run.id

    @property
    def batch_size(self) -> int:
        """The batch size to train with, over all ranks."""
        return self.run.batch_size

    @property
    def local_batch_size(self) -> int:
        """The share of each rank."""
        return self.run.batch_size // self._ranks.size

    @property
    def exploring(self) -> bool:
        """True for a trial of the batch size."""
        return self.run.exploring

    @property
    def why(self) -> str:
        """The reason why the run ended or, while it goes on, for its batch size."""
        return self.run.why if self.verdict is None else self.verdict.why

    @property
    def outcome(self) -> Outcome:
        """The outcome; RUNNING while the run has not ended."""
        return self.run.outcome

    @property
    def reached(self) -> bool:
        return self.verdict is not None and self.verdict.outcome is Outcome.REACHED

    @property
    def stopped(self) -> bool:
        """True where the policy ended the run, because another batch size is cheaper."""
        return self.verdict is not None and self.verdict.outcome is Outcome.STOPPED

    @property
    def setting(self) -> Setting | None:
        """The present setting of the GPUs; None is the one that was found."""
        return None if self._profiler is None else self._profiler.setting

    @property
    def is_profiling(self) -> bool:
        """True while the best setting is being searched."""
        return self._profiler is not None and self._profiler.is_searching

    @property
    def disabled(self) -> str | None:
        """The reason why tuning has ended on all ranks, or None."""
        profiling = None if self._profiler is None else self._profiler.agreement.disabled
        return self._agreement.disabled or profiling

    @property
    def cost(self) -> Measurement | None:
        """The cost until the last report, on all ranks."""
        return self.run.cost

    @property
    def profiling(self) -> Measurement | None:
        """The part of the cost that was profiling."""
        return self.run.profiling

    def learning_rate(self, base: float, *, at: int, rule: str) -> float:
        """Return the learning rate for this batch size, from one that was tuned `at` another: `linear` or `sqrt`."""
        return scaled_rate(base, at=at, batch_size=self.batch_size, rule=rule)

    def epochs(self) -> Iterator[int]:
        """Yield the epochs to train, from 0, until the run has reached the target, is stopped or has its last epoch.

        An epoch without a report counts as one whose metric is not known.
        """
        while self.verdict is None:
            self._reported = False
            yield self.run.epochs
            if not self._reported and self.verdict is None:
                self.report(None)
        self._reported = None

    def steps(self, loader: Iterable[B]) -> Iterator[B]:
        """Yield the batches of a loader and count each as an iteration when the next is requested."""
        for batch in loader:
            yield batch
            self.step()

    def step(self, count: int = 1, *, age_s: float = 0.0) -> None:
        """Count iterations that have ended, the last of them so long ago."""
        if self._profiler is not None and self.verdict is None:
            self._profiler.step(count, age_s=age_s)

    def poll(self) -> None:
        """Look whether the energy counters have moved; called often, they are far more exact."""
        if self._profiler is not None and self.verdict is None and self._polled_s is not None:
            self._profiler.poll()

    @property
    def wait_s(self) -> float:
        """Seconds until `poll` is to be called again."""
        return IDLE_S if self._profiler is None or self.verdict is not None else self._profiler.wait_s

    def report(self, metric: float | None) -> bool:
        """End an epoch with its metric, and return whether to go on.

        A metric that is no finite number is stored as None. Only the first report of an epoch of `epochs()` counts;
        without `epochs()` each report ends an epoch. Once the run is over, a report changes nothing.
        """
        profiler = self._current()
        if self.verdict is not None:
            self._warn(f"a report came after the run had ended ({self.verdict.why}); it is not counted")
            return False
        if self._reported:
            self._warn("an epoch was reported twice; the first report counts")
            return True
        number = metric_value(metric)
        if self._reported is not None:
            self._reported = True
        profiler.end_epoch()
        self.verdict = self._agreed_verdict(number)
        if self.verdict is None:
            self._begin_epoch(profiler)
        else:
            self._close(self.verdict.outcome)
        return self.verdict is None

    def start(self, *, replaces: str | None = None) -> JobRun:
        """Submit and start the run that the policy chose. `replaces` is the id of the run that it replaces."""
        gpu = job_gpu_of(self.gpus, self._ranks)
        limit_w = found_limit_w(self.gpus, self._ranks)
        memory = JobMemory()
        run = None
        if self._ranks.rank == 0:
            try:
                run, memory = self._store_access.submit(gpu, replaces=replaces)
            except Exception as error:
                self._ranks.broadcast(json.dumps(error_text(error)))  # the other ranks wait for the run
                raise
        self._run = _shared(run, gpu, self._ranks)
        try:
            self._begin(memory, limit_w)
        except BaseException as error:
            self.end(error=error)
            raise
        return self._run

    def end(self, outcome: Outcome | None = None, *, error: BaseException | None = None) -> JobRun:
        """End the run, restore the GPUs, and wait a few seconds at most until the store has the end.

        An earlier verdict stands. Otherwise the outcome is the one given, or follows from the error, or is a missed
        target, if there was any epoch.
        """
        if self.verdict is None and self._run is not None:
            outcome = outcome or _outcome(error, self._run)
            if self._ranks.size == 1 and self._profiler is not None:  # other ranks may be gone, so none is asked
                self._run = self._spent(self._own_cost())
            self.verdict = RunVerdict(outcome, _why(outcome, error))
            self._close(outcome)
        self._store_access.finish()
        return self.run

    def _begin(self, memory: JobMemory, limit_w: float | None) -> None:
        """Start the measurement, apply the first setting and keep the lease."""
        run = self.run
        self._before = tuple(gpu.count() for gpu in self.gpus)
        policy = self._policy(run, memory, limit_w)
        self._cached = policy.cached
        self._profiler = Profiler(
            policy,
            self.gpus,
            ranks=self._ranks,
            warn=self._warn,
            synchronise=self._synchronise,
            needs_steps=self.following.needs_steps is not None,
            is_polled=self._polled_s is not None,
        )
        self._begin_epoch(self._profiler)
        if self._ranks.rank == 0:
            self._lease = LeaseKeeper(lambda: self._store_access.renew(run), lease_s=self._store_access.lease_s)
            self._lease.start()

    def _policy(self, run: JobRun, memory: JobMemory, limit_w: float | None) -> SettingProfiling:
        spec = self.gpus[0].spec
        limits, clocks, period_s = spec.power_limits, spec.sm_clocks_mhz, spec.sensors.counter_period_s
        if self._polled_s is not None:
            period_s = min(self._polled_s, COUNTER_PERIOD_S if period_s is None else period_s)
        return setting_profiling(
            self.job,
            memory,
            run,
            () if self.following.refused else job_settings(spec, self._knob, limit_w=limit_w),
            max_power_w=None if limits is None else limits.max_w,
            limit_w=limit_w,
            max_mhz=clocks[-1] if clocks else None,
            counter_period_s=period_s,
        )

    def _begin_epoch(self, profiler: Profiler) -> None:
        profiler.begin_epoch()
        # The first epoch begins with the start of the program, which is no part of the others.
        self._is_held = not profiler.is_searching and self.run.epochs > 0

    def _agreed_verdict(self, metric: float | None) -> RunVerdict | None:
        """Add an epoch to the run and return how the run ended, as rank 0 judges; None where it goes on."""
        mine, account, epochs = self._own_cost(), self._current().account, self.run.epochs
        powers_w = account.cost.power_w, 0.0 if account.default_cost is None else account.default_cost.power_w
        verdict: RunVerdict | None = None

        def judge(sums: Numbers, maxima: Numbers) -> Numbers:
            nonlocal verdict
            self._count_epoch(metric, Measurement(maxima[1], sums[0]))
            self._run = replace(self.run, steps=self.following.judged(of_all(account, sums[2:])))
            if self._ranks.rank == 0:
                verdict = self._judged()
            return (-1.0 if verdict is None else _OUTCOMES.index(verdict.outcome),)

        answer = self._agreement.decide(lambda: (mine.energy_j, mine.time_s, *powers_w), judge, sizes=(4, 1))
        if answer is not None:
            return None if answer[0] < 0 else RunVerdict(_OUTCOMES[int(answer[0])], self._shared_reason(verdict))
        if self.run.epochs == epochs:
            self._count_epoch(metric, mine)
        return verdict or (self._judged() if self._ranks.rank == 0 else self._by_epochs())

    def _shared_reason(self, verdict: RunVerdict | None) -> str:
        """Return why rank 0 ended the run; that it did, where rank 0 is lost since."""
        try:
            return self._ranks.broadcast("" if verdict is None else verdict.why)
        except Exception as error:
            self._agreement.fail(error)
            return "rank 0 ended it" if verdict is None else verdict.why

    def _count_epoch(self, metric: float | None, cost: Measurement) -> None:
        before = self.run.cost or _NOTHING
        self._first = self._first or cost
        self._run = replace(self._spent(cost), metrics=(*self.run.metrics, metric))
        self._epoch = None
        if self._is_held and cost.time_s > before.time_s and cost.energy_j > before.energy_j:
            self._epoch = Measurement(cost.time_s - before.time_s, cost.energy_j - before.energy_j)

    def _spent(self, cost: Measurement) -> JobRun:
        """Return the run with this cost of all ranks so far."""
        profiler = self._current()
        setting = None if profiler.is_searching else profiler.setting
        return replace(self.run, cost=cost, profiling=profiler.spent, setting=setting)

    def _own_cost(self) -> Measurement:
        """Return the cost of the GPUs of this process since the start, as far as their counters can be read."""
        try:
            spent = spent_between(self._before, tuple(gpu.count() for gpu in self.gpus))
        except Exception as error:  # of a device or its driver
            self._warn(f"{error_text(error)}; the cost since the last report is not known")
        else:
            if spent is None:
                self._warn("an energy counter went backwards; the cost since the last report is not known")
            self._mine = spent or self._mine
        return self._mine

    def _judged(self) -> RunVerdict | None:
        """Store the newest epoch and profile, on rank 0, and return how the run ended, or None where it goes on."""
        run = self.run
        if not self._guarded(lambda: self._store_access.report(run), otherwise=True):
            return RunVerdict(Outcome.LOST, "another run took its place")
        self._guarded(self._keep_profile, otherwise=None)
        verdict = self._by_epochs()
        if verdict is None and (why := self._guarded(lambda: self._store_access.stop(run), otherwise=None)) is not None:
            return RunVerdict(Outcome.STOPPED, why)
        return verdict

    def _by_epochs(self) -> RunVerdict | None:
        """Return whether the newest metric reaches the target, or the last epoch has passed; None where neither."""
        job, epochs = self.job, self.run.epochs
        count = "1 epoch" if epochs == 1 else f"{epochs} epochs"
        if job.reaches(self.run.metrics[-1]):
            return RunVerdict(Outcome.REACHED, f"the target {job.target:g} is reached after {count}")
        if epochs >= job.max_epochs:
            return RunVerdict(Outcome.MISSED, f"the target {job.target:g} is not reached after {count}")
        return None

    def _guarded(self, call: Callable[[], _T], *, otherwise: _T) -> _T:
        """Call a part of the tuning; where it raises, warn and go on: the other ranks and the training wait."""
        try:
            return call()
        except Exception as error:
            self._warn(f"{error_text(error)}; going on without it")
            return otherwise

    def _keep_profile(self) -> None:
        """Store the profile as far as it is known, and again when an epoch shows its level.

        A run may end before its search does; the next one goes on from there.
        """
        profiler = self._current()
        held = profiler.progress.state
        if self._profile_is_final:
            return
        if not isinstance(held, ProfileHeld) or not profiler.is_over:
            self._keep_partial_profile(profiler)
            return
        trials = self._epoch_trials(held, profiler)
        self._profile_is_final = self._epoch is not None or profiler.by_epoch
        if trials:
            self._store_access.keep_profile(Profile(gpu=self.run.gpu, batch_size=self.run.batch_size, trials=trials))

    def _keep_partial_profile(self, profiler: Profiler) -> None:
        steps = 1 if profiler.by_epoch else profiler.epoch_steps
        trials = profiler.measured_so_far
        if steps is not None and len(trials) >= len(self._cached) and trials:
            known = epoch_trials(trials, steps, level=self._level(steps))
            self._store_access.keep_profile(Profile(gpu=self.run.gpu, batch_size=self.run.batch_size, trials=known))

    def _level(self, steps: int) -> tuple[float, float]:
        """Return time and energy of an epoch over those of its steps, as the epochs after the first show them."""
        cost, first, account, later = self.run.cost, self._first, self.run.steps, self.run.epochs - 1
        if cost is None or first is None or account is None or not account.count or not later:
            return 1.0, 1.0
        share = later * steps / account.count
        return (
            max((cost.time_s - first.time_s) / (share * account.cost.time_s), 1.0),
            max((cost.energy_j - first.energy_j) / (share * account.cost.energy_j), 1.0),
        )

    def _epoch_trials(self, held: ProfileHeld, profiler: Profiler) -> History[Setting]:
        """Return the cost of an epoch at each measured setting; nothing where that is stored already."""
        if held.trials:
            steps = 1 if profiler.by_epoch else profiler.epoch_steps
            epoch = None if profiler.by_epoch else self._epoch
            if steps is None:
                return ()
            level = (1.0, 1.0) if profiler.by_epoch else self._level(steps)
            return epoch_trials(held.trials, steps, held=held.choice, epoch=epoch, level=level)
        if self._epoch is None or level_distance(self._cached, held.choice, self._epoch) <= LEVEL_DISTANCE:
            return ()
        return epoch_trials(self._cached, 1, held=held.choice, epoch=self._epoch)

    def _close(self, outcome: Outcome) -> None:
        """Record the outcome and restore the GPUs."""
        self._run = replace(self.run, outcome=outcome)
        if self._profiler is not None:
            self._profiler.close()
        if self._lease is not None:
            self._lease.stop()
        if self._ranks.rank == 0 and outcome is not Outcome.LOST:
            self._store_access.end(self.run, outcome)

    def _current(self) -> Profiler:
        if self._profiler is None:
            raise InputError("this run has not begun", hint="start it first")
        return self._profiler


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return True where an error, or its cause, shows that a batch does not fit the GPU."""
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


def _check_shares(job: Job, ranks: Ranks) -> None:
    uneven = [size for size in job.batch_sizes if size % ranks.size]
    if uneven:
        raise InputError(
            f"{job.name}: batch sizes are over all {ranks.size} ranks, which cannot share {uneven[0]} evenly",
            hint=f"give multiples of {ranks.size}",
        )


def _shared(run: JobRun | None, gpu: JobGpu, ranks: Ranks) -> JobRun:
    """Share the run of rank 0 with every rank."""
    names = ("id", "order", "recurrence", "batch_size", "exploring", "why")
    received = json.loads(ranks.broadcast(json.dumps(run and {name: getattr(run, name) for name in names})))
    if run is not None:
        return run
    if isinstance(received, str):
        raise InputError(f"rank 0 could not begin the run: {received}", hint="see the log of rank 0")
    return JobRun(gpu=gpu, **received)
