"""Recurring jobs from recorded tables: how many epochs a training takes at each batch size, and what an epoch costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from pathlib import Path
from statistics import median

from wattune.core.errors import InputError
from wattune.core.job import Job, JobChoice, JobGpu
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune_bench.datasets.find import data_files, with_columns
from wattune_bench.datasets.zeus_tables import (
    COLUMNS,
    TRAIN_COLUMNS,
    LimitCurve,
    RecordedTraining,
    read_power_table,
    read_train_table,
)

PUBLISHED = {
    "cifar100": (0.60, True, 100, 1024),
    "imagenet": (0.65, True, 100, 256),
    "squad": (84.0, True, 6, 32),
    "librispeech": (40.0, False, 16, 192),
    "movielens-1m": (0.41, True, 100, 1024),
    "sentiment140": (0.84, True, 10, 128),
}
"""Target, whether more is better, most epochs and default batch size, by dataset, as experiments on the Zeus trace
have them."""

_SHARE_REACHING = 0.6
"""Share of recorded trainings that reach a derived target: most of them, so that there is something to choose from."""

_PATIENCE = 3
"""Most epochs of a derived job, as a multiple of what the default batch size needs."""


def job_of(name: str, sizes: Sequence[int], recorded: Sequence[RecordedTraining]) -> tuple[Job, tuple[str, ...]]:
    """Return the job of a workload, and remarks on what was derived."""
    published = PUBLISHED.get(name.split()[0])
    if published is None:
        return _derived(name, sizes, recorded)
    target, higher, max_epochs, default = published
    notes: tuple[str, ...] = ()
    if default not in sizes:
        nearest = min(sizes, key=lambda size: abs(log(size / default)))
        notes = (f"{name}: the paper's default batch size {default} was not measured here; {nearest} instead",)
        default = nearest
    job = Job(
        name=name,
        batch_sizes=tuple(sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=higher,
        max_epochs=max_epochs,
    )
    return job, notes


def _derived(name: str, sizes: Sequence[int], recorded: Sequence[RecordedTraining]) -> tuple[Job, tuple[str, ...]]:
    """Return a job for a dataset that the paper has no target for.

    More is better if in most recorded trainings higher metrics come later. The target is the hardest metric that most
    trainings reach; the default is the middle one of the batch sizes at which most trainings reach it; and
    three times the epochs that the default needs are allowed.
    """
    usable = [training for training in recorded if training.batch_size in sizes]
    higher = _higher_is_better(usable)
    target = _hardest(usable, higher_is_better=higher)
    reached: dict[int, list[int | None]] = {}
    for training in usable:
        reached.setdefault(training.batch_size, []).append(dict(training.epochs).get(target))
    good = [size for size in sizes if _most([epoch is not None for epoch in reached[size]])] or [
        size for size in sizes if any(epoch is not None for epoch in reached[size])
    ]
    default = good[len(good) // 2]
    needed = median(epoch for epoch in reached[default] if epoch is not None)
    job = Job(
        name=name,
        batch_sizes=tuple(sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=higher,
        max_epochs=ceil(_PATIENCE * needed),
    )
    return job, (
        f"{name}: target {target:g}, default batch size {default} and at most {job.max_epochs} epochs are derived",
    )


def _higher_is_better(recorded: Sequence[RecordedTraining]) -> bool:
    votes = 0
    for training in recorded:
        # A metric that was never reached counts as reached last.
        epochs = [float("inf") if epoch is None else epoch for _, epoch in training.epochs]
        votes += (epochs[-1] > epochs[0]) - (epochs[-1] < epochs[0])
    return votes >= 0


def _hardest(recorded: Sequence[RecordedTraining], *, higher_is_better: bool) -> float:
    metrics = sorted({metric for training in recorded for metric, _ in training.epochs}, reverse=higher_is_better)
    shares = {
        metric: sum(dict(training.epochs).get(metric) is not None for training in recorded) / len(recorded)
        for metric in metrics
    }
    return next(
        (metric for metric in metrics if shares[metric] >= _SHARE_REACHING), max(shares, key=lambda m: shares[m])
    )


def _most(flags: Sequence[bool]) -> bool:
    return 2 * sum(flags) > len(flags)


POWER_FILE = "summary_power_"


@dataclass(frozen=True, slots=True)
class Training:
    """One recorded training: what it would have reported."""

    steps: tuple[tuple[int, float], ...]
    """Epochs after which the best metric so far changed, and to what."""

    def metrics(self, epochs: int) -> tuple[float | None, ...]:
        """Return the best recorded metric by the end of each of the first epochs; None before the first."""
        found: list[float | None] = []
        best: float | None = None
        for epoch, metric in self.steps:
            if epoch > epochs:
                break
            found += [best] * (epoch - 1 - len(found))
            best = metric
        return tuple(found + [best] * (epochs - len(found)))

    def slower(self, factor: float) -> Training:
        """Return the training when everything takes so many times the epochs."""
        return Training(tuple((ceil(epoch * factor - 1e-9), metric) for epoch, metric in self.steps))


@dataclass(frozen=True, slots=True)
class JobDrift:
    """A change of a job: every training takes `factor` times the epochs, and each batch size behaves as the one
    `shift` places above it did (the largest ones as the largest)."""

    factor: float = 1.0
    shift: int = 0

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"shift {self.shift}" if self.shift else f"x{self.factor:g}"


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """A recurring job on one GPU, as recorded."""

    name: str
    job: Job
    gpu: JobGpu
    trainings: Mapping[int, tuple[Training, ...]]
    """By batch size; also sizes that were not measured on this GPU, since drift may bring their behaviour."""
    epochs: Mapping[int, Mapping[Setting, Measurement]]
    """Cost of an epoch, by batch size and power limit, limits ascending."""
    notes: tuple[str, ...] = ()
    """Derivation of target, default and cap, where the paper has none."""

    @property
    def objective(self) -> Objective:
        return self.job.objective_on(self.gpu.max_power_w)

    @property
    def horizon(self) -> int:
        """As many recurrences as Zeus's experiments have: twice the batch sizes times the limits."""
        return 2 * len(self.job.batch_sizes) * max(len(self.epochs[size]) for size in self.job.batch_sizes)

    @property
    def default(self) -> JobChoice:
        """The default batch size at the highest limit."""
        size = self.job.default_batch_size
        return JobChoice(size, max(self.epochs[size]))

    def wanting(self, objective: str) -> TraceWorkload:
        """Return the job with another objective."""
        return replace(self, job=replace(self.job, objective=objective))

    def drifted(self, drift: JobDrift) -> TraceWorkload:
        """Return the job after a change."""
        sizes = sorted(self.trainings)
        moved = {
            size: tuple(
                training.slower(drift.factor)
                for training in self.trainings[sizes[min(place + drift.shift, len(sizes) - 1)]]
            )
            for place, size in enumerate(sizes)
        }
        return replace(self, trainings=moved)

    def patient(self, times: int) -> TraceWorkload:
        """Return the job with so many times the epochs allowed."""
        return replace(self, job=replace(self.job, max_epochs=times * self.job.max_epochs))

    def expected(self, choice: JobChoice) -> Measurement | None:
        """Return the mean cost of a recurrence with a fixed choice, missed runs included; None if none would reach."""
        trainings = self.trainings[choice.batch_size]
        lengths = [self.length(training) for training in trainings]
        successes = sum(reached for _, reached in lengths)
        if not successes:
            return None
        epochs = sum(epochs for epochs, _ in lengths) / successes
        cost = self.epochs[choice.batch_size][choice.setting]
        return Measurement(epochs * cost.time_s, epochs * cost.energy_j)

    def length(self, training: Training) -> tuple[int, bool]:
        """Return the epochs after which a training ends, and whether it has reached the target by then."""
        for epoch, metric in training.steps:
            if epoch <= self.job.max_epochs and self.job.reaches(metric):
                return epoch, True
        return self.job.max_epochs, False

    @property
    def oracle(self) -> tuple[JobChoice, Measurement]:
        """The fixed choice of least expected cost, and that cost; an error where no run would ever reach the target."""
        objective = self.objective
        choices = [JobChoice(size, setting) for size in self.job.batch_sizes for setting in self.epochs[size]]
        costs = [(choice, cost) for choice in choices if (cost := self.expected(choice)) is not None]
        if not costs:
            raise InputError(
                f"{self.name}: no recorded training reaches {self.job.target:g}", hint="choose an easier target"
            )
        return min(costs, key=lambda pair: objective.value(pair[1]))


def read_workloads(folder: Path, gpus: Sequence[str] = ()) -> tuple[TraceWorkload, ...]:
    """Read the recurring jobs of a folder of tables, on the GPUs named, or on all of which there is a table."""
    files = data_files(folder)
    trains = with_columns(files, TRAIN_COLUMNS)
    tables = {file.stem.removeprefix(POWER_FILE): file for file in with_columns(files, COLUMNS)}
    if not trains or not tables:
        raise InputError(
            f"{folder} has no tables of recurring jobs",
            hint=f"it needs summary_train.csv and {POWER_FILE}GPU.csv, as the Zeus trace has them",
        )
    trainings = [training for file in trains for training in read_train_table(file)]
    return tuple(
        workload
        for gpu in gpus or sorted(tables)
        for workload in _workloads(_table(tables, gpu), gpu=gpu, trainings=trainings)
    )


def _table(tables: Mapping[str, Path], gpu: str) -> Path:
    if gpu not in tables:
        raise InputError(f"there is no table of GPU {gpu!r}", hint=f"there are tables of {', '.join(sorted(tables))}")
    return tables[gpu]


def _workloads(file: Path, *, gpu: str, trainings: Sequence[RecordedTraining]) -> list[TraceWorkload]:
    curves = read_power_table(file)
    max_power_w = max(float(curve.limit_w[-1]) for curve in curves)
    part = JobGpu(name=gpu, simulated=False, max_power_w=max_power_w)
    found = []
    for name in sorted({curve.workload for curve in curves}):
        epochs = {curve.batch_size: _epoch_costs(curve) for curve in curves if curve.workload == name}
        recorded = [training for training in trainings if training.workload == name]
        if {training.batch_size for training in recorded} & set(epochs):
            found.append(_workload(name, part, epochs, recorded))
    return found


def _workload(
    name: str,
    gpu: JobGpu,
    epochs: Mapping[int, Mapping[Setting, Measurement]],
    recorded: Sequence[RecordedTraining],
) -> TraceWorkload:
    sizes = sorted({training.batch_size for training in recorded} & set(epochs))
    job, notes = job_of(name, sizes, recorded)
    by_size: dict[int, list[Training]] = {}
    for training in recorded:
        by_size.setdefault(training.batch_size, []).append(_training(training, higher_is_better=job.higher_is_better))
    return TraceWorkload(
        name=name,
        job=job,
        gpu=gpu,
        trainings={size: tuple(by_size[size]) for size in sorted(by_size)},
        epochs={size: epochs[size] for size in sizes},
        notes=notes,
    )


def _epoch_costs(curve: LimitCurve) -> dict[Setting, Measurement]:
    return {
        Setting(power_limit_w=float(limit_w)): Measurement(float(time_s), float(time_s * power_w))
        for limit_w, time_s, power_w in zip(curve.limit_w, curve.time_s, curve.power_w, strict=True)
    }


def _training(recorded: RecordedTraining, *, higher_is_better: bool) -> Training:
    """Return the steps of the best metric so far, without metrics that come in the same epoch as a better one."""
    best_at: dict[int, float] = {}
    for metric, epoch in recorded.epochs if higher_is_better else reversed(recorded.epochs):
        if epoch is not None:
            best_at[epoch] = metric
    steps: list[tuple[int, float]] = []
    for epoch, metric in sorted(best_at.items()):
        if not steps or (metric > steps[-1][1]) == higher_is_better:
            steps.append((epoch, metric))
    return Training(tuple(steps))
