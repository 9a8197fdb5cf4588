"""A training job that runs again and again: its definition, its runs and their profiles.

A *run* is one attempt to train the model to its target at one batch size. A *recurrence* is one request to train the
model: a run and, where that was stopped or missed the target, the runs that replaced it. An *epoch* is the interval
after which the job reports its metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite

from wattune.core.errors import InputError
from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective, parse_objective
from wattune.core.setting import Setting


def check_name(name: str) -> None:
    """Raise where a name names no job."""
    if not name.strip():
        raise InputError("a job needs a name", hint="give it one, such as nightly-bert")


@dataclass(frozen=True, slots=True, order=True)
class JobChoice:
    """The batch size and the setting of one run of a job."""

    batch_size: int
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The definition of a job, the same for all its recurrences."""

    name: str
    batch_sizes: tuple[int, ...]
    """Global batch sizes, over all ranks; ascending."""
    default_batch_size: int
    """The size that is used without tuning."""
    target: float
    higher_is_better: bool = True
    max_epochs: int
    """A run that has not reached the target after so many epochs has missed it."""
    objective: str = "cost:0.5"
    """As `parse_objective` reads it."""
    metric_file: str | None = None
    """Where `wattune job run` finds the metric, by its options of these names; None for jobs that report it."""
    metric_pattern: str | None = None
    step_pattern: str | None = None

    def __post_init__(self) -> None:
        sizes = tuple(sorted(set(self.batch_sizes)))
        object.__setattr__(self, "batch_sizes", sizes)
        check_name(self.name)
        if not sizes or sizes[0] < 1:
            raise InputError(f"{self.name}: batch sizes are whole numbers from 1", hint="for example 16,32,64")
        if self.default_batch_size not in sizes:
            known = ", ".join(map(str, sizes))
            raise InputError(
                f"{self.name}: the default batch size {self.default_batch_size} is none of {known}",
                hint="name as default the size that is used today",
            )
        if not isfinite(self.target):
            raise InputError(f"{self.name}: the target {self.target} is no number", hint="give the metric to reach")
        if self.max_epochs < 1:
            raise InputError(f"{self.name}: at least one epoch is needed, not {self.max_epochs}", hint="raise it")
        self.objective_on(1.0)

    def objective_on(self, max_power_w: float) -> Objective:
        """Return the objective on GPUs whose highest power limits add up to this."""
        return parse_objective(self.objective, max_power_w=max_power_w)

    def reaches(self, metric: float | None) -> bool:
        if metric is None or not isfinite(metric):
            return False
        return metric >= self.target if self.higher_is_better else metric <= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpu:
    """The GPUs of a run. Profiles hold for GPUs of the same name, kind and number only."""

    name: str
    simulated: bool
    max_power_w: float
    """The highest power limit, of all GPUs of the job together."""
    count: int = 1
    memory_bytes: int | None = None
    """Of each GPU; None where not known."""

    @property
    def key(self) -> tuple[str, bool, int]:
        return (self.name, self.simulated, self.count)


class Outcome(StrEnum):
    """The end of a run, or that it is running."""

    RUNNING = "running"
    REACHED = "reached"
    MISSED = "missed"
    """It ended without reaching the target, at the limit of epochs or before."""
    STOPPED = "stopped"
    """It was stopped because it could not become the best any more."""
    OUT_OF_MEMORY = "out_of_memory"
    """The batch size does not fit this GPU."""
    CRASHED = "crashed"
    """It failed for a reason unrelated to its batch size."""
    LOST = "lost"
    """It stopped reporting: its lease ran out."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A batch size, whether it explores, and the reason, for people."""

    batch_size: int
    exploring: bool
    why: str


_NOTHING = Measurement(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """The steps of a run whose cost was measured: without its start, pauses between steps, and its end."""

    total: int = 0
    """How many steps the run had."""
    count: int = 0
    """How many of them were measured."""
    cost: Measurement = _NOTHING
    """Of these, with the half-widths of its 95 % intervals."""
    default_count: int = 0
    """How many steps were measured at the highest setting, which is that without tuning, once that had settled."""
    default_cost: Measurement | None = None
    unit: str = "step"
    """step, or epoch where the program reports nothing else."""
    why_not: str | None = None
    """Why the times of this run show nothing, so that it is compared with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job: its choice and its results so far."""

    id: str
    order: int
    """Its place among the runs of the job, by submission, from 0."""
    recurrence: int
    """The recurrence that it belongs to, from 0; a run that replaces another belongs to the same."""
    batch_size: int
    gpu: JobGpu
    exploring: bool = False
    """True if it was chosen to learn from it, rather than as the best."""
    why: str = ""
    """The reason for its batch size, for people."""
    submitted_at: datetime | None = None
    outcome: Outcome = Outcome.RUNNING
    metrics: tuple[float | None, ...] = ()
    """The metric after each epoch; None where the report was no number."""
    cost: Measurement | None = None
    """Spent so far, profiling included."""
    profiling: Measurement | None = None
    """The part of the cost that went into profiling."""
    setting: Setting | None = None
    """The setting after profiling."""
    steps: StepAccount | None = None
    """Known once the run has ended."""
    ended: int | None = None
    """The number of runs of the job that had been submitted when it ended; None while it is running."""

    @property
    def epochs(self) -> int:
        return len(self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The cost of one epoch at each measured setting, for a batch size on given GPUs."""

    gpu: JobGpu
    batch_size: int
    trials: History[Setting]

    def best(self, objective: Objective, *, reference: Measurement | None = None) -> Trial[Setting]:
        return objective.choose(self.trials, reference=reference)


@dataclass(frozen=True, slots=True)
class JobMemory:
    """All that is known of a job: its runs, oldest first, and the newest profile of each batch size and GPU."""

    runs: tuple[JobRun, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def profile(self, gpu: JobGpu, batch_size: int) -> Profile | None:
        """Return the profile of a batch size on these GPUs, or None if it was never measured."""
        for profile in self.profiles:
            if profile.gpu.key == gpu.key and profile.batch_size == batch_size:
                return profile
        return None


def metric_value(metric: object) -> float | None:
    """Convert a metric to a number, or None if it is not finite; InputError if it is no number at all."""
    if metric is None:
        return None
    try:
        number = float(metric)  # type: ignore[arg-type]
    except OverflowError:
        return None
    except (TypeError, ValueError):
        raise InputError(f"{metric!r} is no metric", hint="report a number after each epoch") from None
    return number if isfinite(number) else None
