"""Records of recurring jobs: runs with their leases, definitions and hosts, and the rules by which a run changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import isfinite

from wattune.core.errors import InputError, StoreError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import storable

LARGEST_SIZE = 2**62
"""More than any batch, and within a database's integers."""

LONGEST_LEASE_S = 10 * 365.25 * 86400
"""Ten years. A longer lease is a mistake and would overflow a date."""


class RunOver(StoreError):
    """The run of a job has ended, or another run replaced it."""


class NoSuchRun(StoreError):
    """No run of any job in this store has this id."""


class EpochReported(StoreError):
    """This epoch was reported before, with another metric."""


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """A job as it is defined now, and how many runs and recurrences it has."""

    job: Job
    definition: int
    defined_at: datetime
    submitted: int
    recurrences: int
    comparable: frozenset[int]
    """The definitions of the same target and direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run of a job as the store keeps it."""

    job: str
    definition: int
    """The definition of the job that it was submitted under, from 1."""
    comparable: bool
    """True if that definition has today's target and direction, so that policies see the run."""
    run: JobRun
    replaces: str | None = None
    """The id of the run that it replaces."""
    replaced: bool = False
    """True if another run replaced it."""
    lease_until: datetime
    """The run counts as lost if it does not report until then."""
    ended_at: datetime | None = None
    """The time of its end; for a lost run, of the end of its lease."""
    host: str
    pid: int

    @classmethod
    def begun(
        cls, current: CurrentJob, run: JobRun, *, replaces: str | None, lease_until: datetime, host: str, pid: int
    ) -> RecordedRun:
        """Return the record of a run as it begins, as the next one of its job and a new recurrence."""
        new = JobRun(
            id=storable(run.id),
            order=current.submitted,
            recurrence=current.recurrences,
            batch_size=int(run.batch_size),
            gpu=storable_gpu(run.gpu),
            exploring=bool(run.exploring),
            why=storable(run.why),
            submitted_at=utc_time(run.submitted_at),
        )
        return cls(
            job=current.job.name,
            definition=current.definition,
            comparable=True,
            run=new,
            replaces=replaces,
            lease_until=lease_until,
            host=storable(host),
            pid=pid,
        )

    def as_of(self, now: datetime, *, submitted: int) -> RecordedRun:
        """Return the record at a time; a run whose lease is over by then is lost."""
        if self.run.outcome is not Outcome.RUNNING or now <= self.lease_until:
            return self
        return self.with_outcome(Outcome.LOST, at=self.lease_until, submitted=submitted)

    def with_outcome(self, outcome: Outcome, *, at: datetime, submitted: int) -> RecordedRun:
        """Return the record ended, after so many runs of the job were submitted."""
        return replace(self, run=replace(self.run, outcome=outcome, ended=submitted), ended_at=at)

    def renewed(self, now: datetime, *, lease_s: float) -> RecordedRun:
        """Return the record with a new lease, running again if it was lost; `RunOver` if it has ended for good."""
        self._check_open()
        run = replace(self.run, outcome=Outcome.RUNNING, ended=None)
        return replace(self, run=run, ended_at=None, lease_until=now + timedelta(seconds=lease_s))

    def ended(self, outcome: Outcome, *, now: datetime, submitted: int) -> RecordedRun:
        """Return the record ended; unchanged if it has that outcome already, `RunOver` if it has another."""
        _check_ended(outcome)
        if self.run.outcome is outcome:
            return self
        self._check_open()
        return self.with_outcome(outcome, at=now, submitted=submitted)

    def with_totals(self, totals: JobRun) -> RecordedRun:
        """Return the record with the totals and the setting of a run, in plain numbers; None leaves each as it was."""
        run = replace(
            self.run,
            cost=_storable_cost(totals.cost) if totals.cost else self.run.cost,
            profiling=_storable_cost(totals.profiling) if totals.profiling else self.run.profiling,
            setting=_storable_setting(totals.setting) if totals.setting else self.run.setting,
            steps=_storable_steps(totals.steps) if totals.steps else self.run.steps,
        )
        return replace(self, run=run)

    def check_replaceable(self) -> None:
        """Raise StoreError if the run reached its target, so that no other run may replace it."""
        if self.run.outcome is Outcome.REACHED:
            raise StoreError(
                f"run {self.run.id} reached its target and cannot be replaced", hint="submit a new recurrence"
            )

    def _check_open(self) -> None:
        run = self.run
        if self.replaced or run.outcome not in (Outcome.RUNNING, Outcome.LOST):
            ended = "another run replaced it" if self.replaced else f"it ended as {run.outcome.value.replace('_', ' ')}"
            raise RunOver(f"run {run.id} of {self.job} is over: {ended}", hint="submit a new run")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """One job in a list. Joules of simulated GPUs are counted separately; None where nothing was measured."""

    job: Job
    definition: int
    """The number of times it was defined, from 1."""
    defined_at: datetime
    recurrences: int
    runs: int
    running: int
    last_run_at: datetime | None
    """The time at which its newest run was submitted."""
    energy_j: float | None
    time_s: float | None
    simulated_energy_j: float | None
    simulated_time_s: float | None
    simulated: bool
    """True if some of its runs were on simulated GPUs."""
    spent: tuple[tuple[datetime, Measurement], ...]
    """The start and the cost of each run that is comparable with today's definition."""

    @property
    def name(self) -> str:
        return self.job.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that ended while the store could not be written, with all that it reported."""

    job: Job | None
    """As the run was started with; None if only its end is known."""
    run: JobRun
    """Its order and recurrence mean nothing if it was not submitted."""
    ended_at: datetime
    submitted: bool
    """False if the store did not have the run when it began."""
    replaces: str | None = None
    host: str
    pid: int

    def __post_init__(self) -> None:
        _check_ended(self.run.outcome)
        object.__setattr__(self, "ended_at", utc_time(self.ended_at))

    def record(self, current: CurrentJob) -> RecordedRun:
        """Return the run as it began, as a new recurrence of its job."""
        return RecordedRun.begun(
            current,
            self.run,
            replaces=self.replaces,
            lease_until=self.ended_at,
            host=self.host,
            pid=self.pid,
        )


def _check_ended(outcome: Outcome) -> None:
    if outcome is Outcome.RUNNING:
        raise InputError("running is no ending", hint="end a run with its outcome: reached, missed, stopped, ...")


def place_of_epoch(
    known: Mapping[int, float | None], epoch: int | None, *, metric: float | None, max_epochs: int
) -> int | None:
    """Return which epoch a report is for, from 0, or None if the same was reported before.

    Epochs may be skipped, but not beyond the last that the job allows: a mistyped number would leave a long gap.
    """
    following = max(known, default=-1) + 1
    if epoch is None or epoch == following:
        return following
    if epoch in known:
        if known[epoch] == metric:
            return None
        raise EpochReported(
            f"epoch {epoch} was reported before, as {_metric_text(known[epoch])}; {_metric_text(metric)} is refused",
            hint="report each epoch once",
        )
    if not 0 <= epoch < max(following, max_epochs):
        raise InputError(
            f"there is no epoch {epoch}: {following} were reported, and the job has at most {max_epochs}",
            hint="epochs count from 0",
        )
    return epoch


def storable_job(job: Job) -> Job:
    """Return the job with a name that every database takes; InputError for sizes that none takes."""
    if job.batch_sizes[-1] > LARGEST_SIZE or job.max_epochs > LARGEST_SIZE:
        raise InputError(f"{job.name}: numbers above {LARGEST_SIZE} cannot be kept", hint="take smaller ones")
    return replace(job, name=storable(job.name), batch_sizes=tuple(int(size) for size in job.batch_sizes))


def storable_gpu(gpu: JobGpu) -> JobGpu:
    """Return the GPU with a name that every database takes; InputError if its power or count is impossible."""
    if not (isfinite(gpu.max_power_w) and gpu.max_power_w >= 0) or gpu.count < 1:
        raise InputError(
            f"{gpu.name}: {gpu.count} GPUs of {gpu.max_power_w} W together are impossible",
            hint="give what the GPU reports",
        )
    return replace(gpu, name=storable(gpu.name), max_power_w=float(gpu.max_power_w))


def _storable_cost(cost: Measurement) -> Measurement:
    return Measurement(
        float(cost.time_s), float(cost.energy_j), _finite(cost.time_error_s), _finite(cost.energy_error_j)
    )


def _storable_steps(steps: StepAccount) -> StepAccount:
    cost, default = _storable_cost(steps.cost), steps.default_cost and _storable_cost(steps.default_cost)
    return replace(steps, cost=cost, default_cost=default)


def _storable_setting(setting: Setting) -> Setting:
    sm_mhz, mem_mhz, limit_w = setting.sm_mhz, setting.mem_mhz, setting.power_limit_w
    return Setting(None if sm_mhz is None else int(sm_mhz), None if mem_mhz is None else int(mem_mhz), _finite(limit_w))


def storable_profile(profile: Profile) -> Profile:
    """Return the profile in plain numbers; InputError if it has no trial."""
    if not profile.trials or not 0 < profile.batch_size <= LARGEST_SIZE:
        raise InputError(
            f"a profile of batch size {profile.batch_size} with {len(profile.trials)} trials makes no sense",
            hint="measure at least one setting",
        )
    trials = tuple(Trial(_storable_setting(trial.choice), _storable_cost(trial.cost)) for trial in profile.trials)
    return Profile(gpu=storable_gpu(profile.gpu), batch_size=int(profile.batch_size), trials=trials)


def utc_time(now: datetime | None) -> datetime:
    """Return a time in UTC; None means now."""
    if now is None:
        return datetime.now(UTC)
    if now.tzinfo is None:
        raise ValueError("a time has a time zone; use datetime.now(UTC)")
    return now.astimezone(UTC)


def check_lease(lease_s: float) -> float:
    """Return the lease; InputError if it is not positive or too long."""
    if not 0 < lease_s <= LONGEST_LEASE_S:
        raise InputError(f"a lease of {lease_s} s makes no sense", hint="give the longest time between two reports")
    return lease_s


def _metric_text(metric: float | None) -> str:
    return "no number" if metric is None else f"{metric:g}"


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None
