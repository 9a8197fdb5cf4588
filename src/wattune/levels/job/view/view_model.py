"""A recurring job on one GPU model, as its views need it: epochs of each batch size, the cost map, and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.job import Job, JobChoice, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.cost_map import CostMap, cost_map
from wattune.render.quantity import counted, number, quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job on one GPU model: its runs, predicted epochs, and the next choice."""

    job: Job
    memory: JobMemory
    gpu: JobGpu
    predicted: tuple[EpochsBand, ...] = ()
    """Epochs of each batch size as the policy predicts them; empty where it does not."""
    next_size: int | None = None
    """The batch size of the next run; None where it was not determined."""
    default_run: Measurement | None = None
    """Cost of a default run; None where it is not known yet."""

    @property
    def epochs(self) -> tuple[EpochsBand, ...]:
        """Expected epochs of each batch size, ascending."""
        known = self.predicted or measured_epochs(self.memory.runs)
        return tuple(sorted(known, key=lambda band: band.batch_size))

    @property
    def most_epochs(self) -> float:
        """Upper end of epochs in charts: a prediction may exceed the limit by far, but no run does."""
        return 1.25 * max((self.job.max_epochs, *(run.epochs for run in self.memory.runs)))

    @property
    def here(self) -> tuple[JobRun, ...]:
        """The runs on this GPU model."""
        return tuple(run for run in self.memory.runs if run.gpu.key == self.gpu.key)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The current sizes, and those that were tried before."""
        return tuple(sorted({*self.job.batch_sizes, *(run.batch_size for run in self.here)}))


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
    expected = {
        JobChoice(profile.batch_size, trial.choice): _times(trial.cost, bands[profile.batch_size].epochs)
        for profile in view.memory.profiles
        if profile.gpu.key == view.gpu.key and profile.batch_size in bands
        for trial in profile.trials
    }
    held = Counter(JobChoice(run.batch_size, run.setting) for run in view.here if run.setting is not None)
    return cost_map(
        expected,
        view.job.objective_on(view.gpu.max_power_w),
        gpu=view.gpu.name,
        simulated=view.gpu.simulated,
        batch_sizes=view.batch_sizes,
        tried=held,
        barred=barred_sizes(view),
        default=_default_choice(view),
        chosen=_chosen(view),
        reference=view.default_run,
    )


def barred_sizes(view: JobView) -> Mapping[int, str]:
    """Return the excluded sizes and why: out of memory here, every run missed the target, or too many epochs
    expected."""
    full = _out_of_memory(view.here)
    barred = {size: "out of memory" for size in view.batch_sizes if full is not None and size >= full}
    for size in view.batch_sizes:
        outcomes = [run.outcome for run in view.memory.runs if run.batch_size == size]
        missed = outcomes.count(Outcome.MISSED)
        if missed and Outcome.REACHED not in outcomes:
            barred.setdefault(size, f"missed the target in {counted(missed, 'run')}")
    reached = {run.batch_size for run in view.memory.runs if run.outcome is Outcome.REACHED}
    for band in view.epochs:
        if band.low > view.job.max_epochs and band.batch_size not in reached:
            barred.setdefault(band.batch_size, f"expected to need more than {view.job.max_epochs} epochs")
    return barred


def _out_of_memory(runs: Sequence[JobRun]) -> int | None:
    """Return the least size that did not fit, unless a later run of that size or a larger one reported an epoch."""
    least: int | None = None
    for run in runs:
        if run.outcome is Outcome.OUT_OF_MEMORY:
            least = run.batch_size if least is None else min(least, run.batch_size)
        elif least is not None and run.epochs and run.batch_size >= least:
            least = None
    return least


def _default_choice(view: JobView) -> JobChoice | None:
    """Return the default: its batch size at the highest measured setting, where every search begins."""
    profile = view.memory.profile(view.gpu, view.job.default_batch_size)
    if profile is None or not profile.trials:
        return None
    return JobChoice(profile.batch_size, max(trial.choice for trial in profile.trials))


def _chosen(view: JobView) -> JobChoice | None:
    if view.next_size is None:
        return None
    setting = best_setting(view, view.memory.profile(view.gpu, view.next_size))
    return None if setting is None else JobChoice(view.next_size, setting)


def best_setting(view: JobView, profile: Profile | None) -> Setting | None:
    """Return the best setting for an epoch by the job's objective; None without a profile, or where none qualifies."""
    if profile is None or not profile.trials:
        return None
    reference = max(profile.trials, key=lambda trial: trial.choice).cost
    try:
        return profile.best(view.job.objective_on(view.gpu.max_power_w), reference=reference).choice
    except Infeasible:
        return None


def _times(cost: Measurement, epochs: float) -> Measurement:
    return Measurement(cost.time_s * epochs, cost.energy_j * epochs)


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
    Outcome.STOPPED: "stopped by us",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.CRASHED: "crashed",
    Outcome.LOST: "never heard of again",
}
"""How a run ended."""


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
