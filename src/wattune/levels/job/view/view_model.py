"""A recurring job on one GPU model, as people see it: what its runs cost, compared with default runs, and what is next.

Notation: a *default run* is what the owner would do without tuning: the default batch size at the setting that was
found on the GPU. `comparison` says what of the runs can be compared with it; where that is nothing, no saving is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from math import ceil, hypot

from wattune.core.errors import WattuneError
from wattune.core.job import Job, JobChoice, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.core.tariff import Footprint, Tariff, total_footprint
from wattune.levels.job.memory_fit import least_too_large
from wattune.levels.job.policies import EpochsBand, JobPolicy
from wattune.levels.job.profile import held_setting
from wattune.levels.job.view.comparison import JobComparison, Share, compare
from wattune.levels.job.view.cost_map import CostMap, cost_map
from wattune.render.quantity import UNKNOWN, counted, number, percent, quantity

FAILED = (Outcome.MISSED, Outcome.STOPPED)
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAccount:
    """One batch size on one GPU model; None where a figure is not known."""

    batch_size: int
    runs: int
    reached: int
    failed: int
    """Runs that missed the target or were stopped."""
    barred: str | None
    """The reason for its exclusion: out of memory on this GPU model, or every run missed the target; or None."""
    epochs: float | None
    """Mean epochs to the target, over all GPU models, since epochs do not depend on them."""
    energy_j: float | None
    """Mean of the runs that reached the target on this GPU model."""
    time_s: float | None
    setting: Setting | None
    """That of its newest run on this GPU model."""

    @property
    def state(self) -> str:
        """One word: untried, infeasible, failed, running or tried."""
        if self.barred == OUT_OF_MEMORY:
            return "infeasible"
        if not self.runs:
            return "untried"
        if self.reached:
            return "tried"
        return "failed" if self.failed else "running"

    @property
    def run(self) -> Measurement | None:
        """Mean cost of a run that reached the target."""
        return None if self.energy_j is None or self.time_s is None else Measurement(self.time_s, self.energy_j)


def runs_footprint(runs: Iterable[JobRun], tariff: Tariff) -> Footprint:
    """Return what runs come to, each at its own time of day."""
    known = ((run.submitted_at or datetime.now(UTC), run.cost) for run in runs if run.cost is not None)
    return costs_footprint(known, tariff)


def costs_footprint(costs: Iterable[tuple[datetime, Measurement]], tariff: Tariff) -> Footprint:
    """Return what runs come to, from when each began and what it cost."""
    return total_footprint(tariff.footprint(cost.energy_j, started_at=at, time_s=cost.time_s) for at, cost in costs)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job on one GPU model: its runs and their cost, predicted epochs, and the next choice."""

    job: Job
    memory: JobMemory
    gpu: JobGpu
    predicted: tuple[EpochsBand, ...] = ()
    """Epochs of each batch size as the policy predicts them; empty where it does not."""
    proposal: Proposal | None = None
    """Choice for the next run; None where no size is left to try, or it was not determined."""

    @classmethod
    def of(cls, job: Job, memory: JobMemory, gpu: JobGpu, *, searcher: JobPolicy) -> JobView:
        """View a job with the predictions and the next choice of a policy."""
        try:
            proposal = searcher.propose(job, memory, gpu)
        except WattuneError:  # no size is left; the history can be shown all the same
            proposal = None
        predicted = searcher.predict_epochs(job, memory, gpu)
        return cls(job=job, memory=memory, gpu=gpu, predicted=predicted, proposal=proposal)

    @property
    def objective(self) -> Objective:
        return self.job.objective_on(self.gpu.max_power_w)

    @property
    def next_size(self) -> int | None:
        return None if self.proposal is None else self.proposal.batch_size

    @cached_property
    def setting(self) -> Setting | None:
        """The setting that the next run begins with; None where no profile names one."""
        if self.next_size is None:
            return None
        return held_setting(self.job, self.memory, self.gpu, self.next_size)

    @cached_property
    def epochs(self) -> tuple[EpochsBand, ...]:
        """Expected epochs of each batch size, ascending."""
        known = self.predicted or measured_epochs(self.memory.runs)
        return tuple(sorted(known, key=lambda band: band.batch_size))

    @property
    def most_epochs(self) -> float:
        """Upper end of epochs in charts: a prediction may exceed the limit by far, but no run does."""
        return 1.25 * max((self.job.max_epochs, *(run.epochs for run in self.memory.runs)))

    @cached_property
    def here(self) -> tuple[JobRun, ...]:
        """The runs on this GPU model."""
        return tuple(run for run in self.memory.runs if run.gpu.key == self.gpu.key)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The current sizes, and those that were tried before."""
        return tuple(sorted({*self.job.batch_sizes, *(run.batch_size for run in self.here)}))

    @cached_property
    def barred(self) -> Mapping[int, str]:
        """The excluded sizes and why: out of memory here, always missed the target, or too many epochs expected."""
        full = least_too_large(self.memory.runs, self.gpu)
        barred = {size: OUT_OF_MEMORY for size in self.batch_sizes if full is not None and size >= full}
        for size in self.batch_sizes:
            outcomes = [run.outcome for run in self.memory.runs if run.batch_size == size]
            missed = outcomes.count(Outcome.MISSED)
            if missed and Outcome.REACHED not in outcomes:
                barred.setdefault(size, f"missed the target in {counted(missed, 'run')}")
        reached = {run.batch_size for run in self.memory.runs if run.outcome is Outcome.REACHED}
        for band in self.epochs:
            if band.low > self.job.max_epochs and band.batch_size not in reached:
                barred.setdefault(band.batch_size, f"expected to need more than {self.job.max_epochs} epochs")
        return barred

    @cached_property
    def sizes(self) -> tuple[SizeAccount, ...]:
        return tuple(self._size(size) for size in self.batch_sizes)

    @cached_property
    def recurrences(self) -> int:
        """Number of those that reached the target on this GPU model."""
        return len({run.recurrence for run in self.here if run.outcome is Outcome.REACHED})

    @cached_property
    def spent(self) -> Measurement:
        """Cost of all runs that have ended, failed ones and profiling included."""
        return _sum(run.cost for run in self.here if run.outcome is not Outcome.RUNNING)

    def footprint(self, tariff: Tariff) -> Footprint:
        """Return what the runs on this GPU model come to."""
        return runs_footprint(self.here, tariff)

    @cached_property
    def profiling(self) -> Measurement:
        return _sum(run.profiling for run in self.here)

    @cached_property
    def exploring(self) -> Measurement:
        """Cost of the runs that were trials."""
        return _sum(run.cost for run in self.here if run.exploring and run.outcome is not Outcome.RUNNING)

    @cached_property
    def comparison(self) -> JobComparison | str:
        """What the runs are compared by, or the reason why nothing can be compared."""
        return compare(self.here, self.job.default_batch_size)

    @cached_property
    def default_run(self) -> Measurement | None:
        """The estimated cost of a default run."""
        return None if isinstance(self.comparison, str) else self.comparison.default_run

    @cached_property
    def best_run(self) -> Measurement | None:
        """Mean cost of the batch size that is cheapest so far."""
        runs = [size.run for size in self.sizes if size.barred is None and size.run is not None]
        return min(runs, key=self.objective.value, default=None)

    @cached_property
    def objective_share(self) -> Share | None:
        """How much more of the objective's cost was spent in the steps than at the default."""
        return self._more(self.objective.value)

    @cached_property
    def energy_share(self) -> Share | None:
        return self._more(lambda cost: cost.energy_j)

    @cached_property
    def time_share(self) -> Share | None:
        return self._more(lambda cost: cost.time_s)

    @cached_property
    def break_even(self) -> int | None:
        """Recurrences until the savings equal the cost of learning: 0 where they do, None where none is expected."""
        share = self.objective_share
        if isinstance(self.comparison, str) or share is None or self.default_run is None or self.best_run is None:
            return None
        default, best = self.objective.value(self.default_run), self.objective.value(self.best_run)
        if share.percent <= 0:
            return 0 if -share.percent > share.error_percent else None
        owed = self.objective.value(self.comparison.whole) - self.comparison.recurrences * default
        is_known = default - best > self.comparison.default_run_error(self.objective.value)
        return ceil(max(owed, 0.0) / (default - best)) if is_known else None

    def _more(self, value: Callable[[Measurement], float]) -> Share | None:
        return None if isinstance(self.comparison, str) else self.comparison.more(value)

    def _size(self, size: int) -> SizeAccount:
        mine = [run for run in self.here if run.batch_size == size]
        reached = [run for run in mine if run.outcome is Outcome.REACHED]
        everywhere = [run for run in self.memory.runs if run.batch_size == size and run.outcome is Outcome.REACHED]
        costs = [run.cost for run in reached if run.cost is not None]
        return SizeAccount(
            batch_size=size,
            runs=len(mine),
            reached=len(reached),
            failed=sum(run.outcome in FAILED for run in mine),
            barred=self.barred.get(size),
            epochs=_mean([run.epochs for run in everywhere]),
            energy_j=_mean([cost.energy_j for cost in costs]),
            time_s=_mean([cost.time_s for cost in costs]),
            setting=next((run.setting for run in reversed(mine) if run.setting is not None), None),
        )


def gpus_of(memory: JobMemory) -> tuple[JobGpu, ...]:
    """Return the GPU models that a job ran on, the one of its newest run first."""
    newest_first = {run.gpu.key: run.gpu for run in memory.runs[::-1]}
    return tuple(newest_first.values())


def measured_epochs(runs: Iterable[JobRun]) -> tuple[EpochsBand, ...]:
    """Return mean, least and most epochs of the runs that reached the target."""
    by_size: dict[int, list[int]] = {}
    for run in runs:
        if run.outcome is Outcome.REACHED and run.epochs:
            by_size.setdefault(run.batch_size, []).append(run.epochs)
    return tuple(
        EpochsBand(size, sum(epochs) / len(epochs), min(epochs), max(epochs))
        for size, epochs in sorted(by_size.items())
    )


def job_map(view: JobView) -> CostMap:
    """Make the map of a job: expected epochs times the profiled cost of an epoch."""
    bands = {band.batch_size: band for band in view.epochs}
    base = bands.get(view.job.default_batch_size)
    expected = {
        JobChoice(profile.batch_size, trial.choice): _expected(trial.cost, bands[profile.batch_size], base)
        for profile in view.memory.profiles
        if profile.gpu.key == view.gpu.key and profile.batch_size in bands
        for trial in profile.trials
    }
    held = Counter(JobChoice(run.batch_size, run.setting) for run in view.here if run.setting is not None)
    # The default is at the highest measured setting, where every search begins.
    own = view.memory.profile(view.gpu, view.job.default_batch_size)
    highest = None if own is None else max((trial.choice for trial in own.trials), default=None)
    return cost_map(
        expected,
        view.objective,
        gpu=view.gpu.name,
        simulated=view.gpu.simulated,
        batch_sizes=view.batch_sizes,
        tried=held,
        barred=view.barred,
        default=None if highest is None else JobChoice(view.job.default_batch_size, highest),
        chosen=None if view.setting is None or view.next_size is None else JobChoice(view.next_size, view.setting),
        reference=None if highest is None else expected.get(JobChoice(view.job.default_batch_size, highest)),
    )


def _expected(epoch: Measurement, band: EpochsBand, base: EpochsBand | None) -> Measurement:
    """Return the cost of a run, with its error beside one at the default batch size, whose epochs are of `base`."""
    whole = epoch / (1.0 / band.epochs)
    if whole.time_error_s is None or whole.energy_error_j is None or base is None:
        return Measurement(whole.time_s, whole.energy_j)
    unsure = 0.0 if band is base else hypot(_half_width(band), _half_width(base))
    return Measurement(
        whole.time_s,
        whole.energy_j,
        hypot(whole.time_error_s, unsure * whole.time_s),
        hypot(whole.energy_error_j, unsure * whole.energy_j),
    )


def _half_width(band: EpochsBand) -> float:
    """Return how far the epochs may be off, as a share."""
    return (band.high - band.low) / 2 / band.epochs


def _sum(costs: Iterable[Measurement | None]) -> Measurement:
    total = Measurement(0.0, 0.0)
    for cost in costs:
        if cost is not None:
            total += Measurement(cost.time_s, cost.energy_j)
    return total


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_UNITS = {
    "cost": ("cost", "J"),
    "energy": ("energy", "J"),
    "deadline": ("energy", "J"),
    "money": ("cost", ""),
    "carbon": ("carbon", "g"),
    "edp": ("energy × time", "J·s"),
    "ed2p": ("energy × time²", "J·s²"),
    "power": ("time", "s"),
}
ENDS = {
    Outcome.RUNNING: "still running",
    Outcome.REACHED: "reached the target",
    Outcome.MISSED: "missed the target",
    Outcome.STOPPED: "stopped by wattune",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.CRASHED: "crashed",
    Outcome.LOST: "ended without a report",
}
"""Outcomes in words."""


def counted_in(objective: str) -> tuple[str, str]:
    """Return what the value of an objective such as `cost:0.5` is, and its unit; money has none."""
    return _UNITS[objective.strip().lower().partition(":")[0]]


def amount(value: float | None, unit: str) -> str:
    """Format a value of an objective; money has no unit."""
    return quantity(value, unit) if unit else number(value)


def gpu_label(gpu: JobGpu) -> str:
    """Return the count and model of the GPUs, and whether they are simulated."""
    several = f"{gpu.count} × " if gpu.count > 1 else ""
    return f"{several}{gpu.name}" + (" (simulated)" if gpu.simulated else "")


def share_words(share: Share | None) -> str:
    """Format a share with its error, such as `−12.1 ± 0.6 %`."""
    if share is None:
        return UNKNOWN
    places = 2 if share.error_percent < 0.1 else 1
    number = percent(share.percent, places=places).removesuffix("%").rstrip()
    return f"{number} ± {share.error_percent:.{places}f} %"


def comparison_words(view: JobView) -> str:
    """Return one sentence: what was saved, or why that is unknown."""
    found = view.comparison
    if isinstance(found, str):
        return f"saving unknown: {found}"
    what, _ = counted_in(view.job.objective)
    of = f"of {counted(found.recurrences, 'recurrence')}"
    shares = [f"time {share_words(view.time_share)}", f"energy {share_words(view.energy_share)}"]
    if what not in ("energy", "time"):
        shares.append(f"{what} {share_words(view.objective_share)}")
    return f"the {found.unit}s {of}, learning included, against the same work by default: {', '.join(shares)}"
