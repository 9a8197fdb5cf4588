"""Profiles of a job: similar ones, the horizon of a setting, and costs of epochs from costs of iterations."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from statistics import fmean, median

from wattune.core.frontier import History, Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline, Objective
from wattune.core.setting import Setting
from wattune.levels.job.profiling import (
    COUNTER_PERIOD_S,
    EXTRA_WINDOWS,
    MOST_WINDOWS,
    SettingProfiling,
    rescaled,
    windows_for,
    windows_in,
)
from wattune.response.setting_search import HORIZON, SettingSearch, SimilarProfile

OTHER_MODEL = 2.0
"""Distance in octaves that another GPU model counts for: a V100 and an A40 differ about as much in public tables."""

NEAR = 3
"""Number of similar profiles that are used: further ones add little."""

WINDOW_S = 5.0
"""Length of a window: some fifty refreshes of a power sensor at 10 Hz."""

_LONGEST_HORIZON = 5000.0
"""Windows: a saving of a twenty-thousandth is not worth another window, however long a job may still run."""


def setting_profiling(
    job: Job,
    memory: JobMemory,
    run: JobRun,
    candidates: tuple[Setting, ...],
    *,
    max_power_w: float | None,
    limit_w: float | None = None,
    max_mhz: int | None = None,
    counter_period_s: float | None = None,
) -> SettingProfiling:
    """Return the policy that finds the setting of a run among the candidates, by what is known of the job.

    `max_power_w` and `max_mhz` are the highest limit and clock of one GPU, `limit_w` is the limit that was found.
    Windows fit the length of a run, which is known after the first.
    """
    run_s = usual_run_s(memory, run.gpu, run.batch_size)
    windows = windows_for(run_s, counter_period_s=COUNTER_PERIOD_S if counter_period_s is None else counter_period_s)
    most = windows_in(run_s, windows)
    own = memory.profile(run.gpu, run.batch_size)
    search = SettingSearch(
        objective=profiling_objective(job, run.gpu, memory, run.batch_size),
        similar=similar_to(memory, run.gpu, run.batch_size, knobs=candidates[-1].knobs if candidates else ()),
        gpus=run.gpu.count,
        max_power_w=max_power_w,
        limit_w=limit_w,
        max_mhz=max_mhz,
        horizon=windows_to_come(memory, run.gpu, run.batch_size),
    )
    return SettingProfiling(
        search=search,
        candidates=candidates,
        cached=() if own is None else tuple(trial for trial in own.trials if trial.choice in candidates),
        epochs=expected_epochs(job, memory, run.batch_size),
        windows=windows,
        most_windows=most or MOST_WINDOWS,
        extra_windows=EXTRA_WINDOWS if most is None else most,
        short=most is not None,
    )


def held_setting(job: Job, memory: JobMemory, gpu: JobGpu, batch_size: int) -> Setting | None:
    """Return the setting that a run of a batch size begins with; None where its profile names none."""
    profile = memory.profile(gpu, batch_size)
    if profile is None or not profile.trials:
        return None
    search = SettingSearch(
        objective=profiling_objective(job, gpu, memory, batch_size),
        gpus=gpu.count,
        max_power_w=gpu.max_power_w / gpu.count if gpu.max_power_w > 0 else None,
    )
    return search.best([trial.choice for trial in profile.trials], profile.trials)


def usual_run_s(memory: JobMemory, gpu: JobGpu, batch_size: int) -> float | None:
    """Return the time that a run takes: the mean of its batch size, else that of the newest run; None before any."""
    done = _reached_on(memory, gpu)
    same = [run for run in done if run.batch_size == batch_size]
    times_s = [run.cost.time_s for run in same or done[-1:] if run.cost is not None]
    return fmean(times_s) if times_s else None


def _reached_on(memory: JobMemory, gpu: JobGpu) -> list[JobRun]:
    key = gpu.key
    return [run for run in memory.runs if run.outcome is Outcome.REACHED and run.cost and run.gpu.key == key]


def windows_to_come(memory: JobMemory, gpu: JobGpu, batch_size: int) -> float:
    """Return the windows for which a batch size's setting will be held: this run, and as many more as there were.

    A run is expected to last as long as those of its batch size did, else as the newest of another.
    """
    run_s = usual_run_s(memory, gpu, batch_size)
    if run_s is None:
        return HORIZON
    same = sum(run.batch_size == batch_size for run in _reached_on(memory, gpu))
    return min(run_s / WINDOW_S * (1 + same), _LONGEST_HORIZON)


def profiling_objective(job: Job, gpu: JobGpu, memory: JobMemory, batch_size: int) -> Objective:
    """Return the objective of one epoch: that of the job, with a deadline divided by the expected epochs."""
    objective = job.objective_on(gpu.max_power_w)
    if isinstance(objective, Deadline):
        return Deadline(objective.seconds / expected_epochs(job, memory, batch_size))
    return objective


def expected_epochs(job: Job, memory: JobMemory, batch_size: int) -> float:
    """Return the epochs to the target: the median of this batch size, else of all, else the most that the job
    allows."""
    reached = [run for run in memory.runs if run.outcome is Outcome.REACHED and run.epochs]
    mine = [run.epochs for run in reached if run.batch_size == batch_size]
    return float(median(mine or [run.epochs for run in reached] or [job.max_epochs]))


def similar_to(
    memory: JobMemory, gpu: JobGpu, batch_size: int, *, knobs: tuple[str, ...]
) -> tuple[SimilarProfile, ...]:
    """Return the profiles most similar to that of a batch size on a GPU model, among those with the same knobs.

    Clocks of another GPU model are shares of a highest clock that a profile does not record; limits are comparable.
    """
    similar = [
        _similar(profile, gpu, batch_size)
        for profile in memory.profiles
        if (profile.gpu.key, profile.batch_size) != (gpu.key, batch_size)
        and profile.trials
        and profile.gpu.max_power_w > 0
        and all(trial.choice.knobs == knobs for trial in profile.trials)
        and (profile.gpu.name == gpu.name or knobs == ("power_limit",))
    ]
    return tuple(sorted(similar, key=lambda one: one.octaves)[:NEAR])


def _similar(profile: Profile, gpu: JobGpu, batch_size: int) -> SimilarProfile:
    theirs = profile.gpu
    # What an iteration asks of a GPU depends on its own share of the batch.
    octaves = abs(log2((profile.batch_size / theirs.count) / (batch_size / gpu.count)))
    other = OTHER_MODEL if (theirs.name, theirs.simulated) != (gpu.name, gpu.simulated) else 0.0
    return SimilarProfile(
        trials=profile.trials,
        octaves=octaves + other,
        max_power_w=theirs.max_power_w / theirs.count,
        gpus=theirs.count,
    )


def epoch_trials(
    trials: History[Setting],
    steps: int,
    *,
    held: Setting | None = None,
    epoch: Measurement | None = None,
    level: tuple[float, float] = (1.0, 1.0),
) -> History[Setting]:
    """Return the cost of an epoch at each setting, from that of an iteration.

    `level` is time and energy of an epoch over those of its iterations, where no whole epoch was held.

    `epoch` is the cost of a whole epoch at the setting `held`, with validation and everything between iterations; the
    other settings are scaled by the ratio of their iterations.
    """
    more_time, more_energy = steps * level[0], steps * level[1]
    known = next((trial.cost for trial in trials if trial.choice == held), None)
    if epoch is not None and known is not None and known.time_s > 0 and known.energy_j > 0:
        more_time, more_energy = epoch.time_s / known.time_s, epoch.energy_j / known.energy_j
    return tuple(Trial(trial.choice, rescaled(trial.cost, more_time, more_energy)) for trial in trials)


def level_distance(trials: Sequence[Trial[Setting]], held: Setting | None, epoch: Measurement) -> float:
    """Return the relative difference between the time of an epoch and its profile at the setting that is held."""
    known = next((trial.cost for trial in trials if trial.choice == held), None)
    return 0.0 if known is None or not known.time_s else abs(epoch.time_s / known.time_s - 1.0)
