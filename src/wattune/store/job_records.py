"""What the store keeps of recurring jobs beside what searchers see: leases, definitions, and who ran where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import storable

LARGEST_SIZE = 2**62
"""More than any batch, and within a database's integers."""

LONGEST_LEASE_S = 10 * 365.25 * 86400
"""Ten years: a longer lease is a mistake, and would not fit a date some day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run of a job as the store keeps it."""

    job: str
    definition: int
    """Which definition of the job it was submitted under, from 1."""
    comparable: bool
    """Whether that had the target and direction of today's, so that searchers see the run."""
    run: JobRun
    replaces: str | None = None
    """The id of the run whose place it took."""
    replaced: bool = False
    """Whether another run took its place."""
    lease_until: datetime
    """When it is given up for lost, if it does not report until then."""
    ended_at: datetime | None = None
    """When it ended; for one that was lost, when its lease ran out."""
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """One job at a glance. Joules of simulated GPUs are counted apart; None where nothing was measured."""

    job: Job
    definition: int
    """How often it was defined, from 1."""
    defined_at: datetime
    recurrences: int
    runs: int
    running: int
    last_run_at: datetime | None
    """When its newest run was submitted."""
    energy_j: float | None
    time_s: float | None
    simulated_energy_j: float | None
    simulated_time_s: float | None
    simulated: bool
    """Whether some of its runs were on simulated GPUs."""

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.job.name


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What a run has spent so far, profiling on its own, and the setting it holds; None where that is not told."""

    cost: Measurement | None
    profiling: Measurement | None
    setting: Setting | None

    @classmethod
    def of(cls, cost: Measurement | None, profiling: Measurement | None, setting: Setting | None) -> JobTotals:
        """The totals in plain numbers."""
        return cls(
            None if cost is None else storable_cost(cost),
            None if profiling is None else storable_cost(profiling),
            None if setting is None else storable_setting(setting),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: what waits in a file where the store could not be told."""

    run_id: str
    outcome: Outcome
    ended_at: datetime
    cost: Measurement | None = None
    profiling: Measurement | None = None
    setting: Setting | None = None
    metrics: tuple[float | None, ...] = ()
    """All that was reported, in case that did not reach the store either."""

    def __post_init__(self) -> None:
        if self.outcome is Outcome.RUNNING:
            raise InputError("running is no ending", hint="end a run with how it went: reached, missed, stopped, ...")


def storable_job(job: Job) -> Job:
    """The job with a name that every database takes; InputError for sizes that none does."""
    if job.batch_sizes[-1] > LARGEST_SIZE or job.max_epochs > LARGEST_SIZE:
        raise InputError(f"{job.name}: numbers above {LARGEST_SIZE} cannot be kept", hint="take smaller ones")
    return replace(job, name=storable(job.name), batch_sizes=tuple(int(size) for size in job.batch_sizes))


def storable_gpu(gpu: JobGpu) -> JobGpu:
    """The part with a name that every database takes; InputError where its power or number makes no sense."""
    if not (isfinite(gpu.max_power_w) and gpu.max_power_w >= 0) or gpu.count < 1:
        raise InputError(
            f"{gpu.name}: {gpu.count} GPUs of {gpu.max_power_w} W together make no sense", hint="give what the GPU says"
        )
    return replace(gpu, name=storable(gpu.name), max_power_w=float(gpu.max_power_w))


def storable_cost(cost: Measurement) -> Measurement:
    """The cost in plain numbers, an error that is no number left out."""
    return Measurement(
        float(cost.time_s), float(cost.energy_j), _finite(cost.time_error_s), _finite(cost.energy_error_j)
    )


def storable_setting(setting: Setting) -> Setting:
    """The setting in plain numbers."""
    sm_mhz, mem_mhz, limit_w = setting.sm_mhz, setting.mem_mhz, setting.power_limit_w
    return Setting(None if sm_mhz is None else int(sm_mhz), None if mem_mhz is None else int(mem_mhz), _finite(limit_w))


def storable_profile(profile: Profile) -> Profile:
    """The profile in plain numbers; InputError for one without any trial."""
    if not profile.trials or not 0 < profile.batch_size <= LARGEST_SIZE:
        raise InputError(
            f"a profile of batch size {profile.batch_size} with {len(profile.trials)} trials makes no sense",
            hint="measure at least one setting",
        )
    trials = tuple(_storable_trial(trial) for trial in profile.trials)
    return Profile(gpu=storable_gpu(profile.gpu), batch_size=int(profile.batch_size), trials=trials)


def moment(now: datetime | None) -> datetime:
    """The moment in UTC; None is this very one."""
    if now is None:
        return datetime.now(UTC)
    if now.tzinfo is None:
        raise ValueError("a moment has a time zone; use datetime.now(UTC)")
    return now.astimezone(UTC)


def check_lease(lease_s: float) -> float:
    """The lease; InputError for one that is over at once or never."""
    if not 0 < lease_s <= LONGEST_LEASE_S:
        raise InputError(f"a lease of {lease_s} s makes no sense", hint="give the longest time between two reports")
    return lease_s


def _storable_trial(trial: Trial[Setting]) -> Trial[Setting]:
    return Trial(storable_setting(trial.choice), storable_cost(trial.cost))


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None
