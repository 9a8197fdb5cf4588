"""Searching the partitions of a model on a simulated GPU, with every trial appended to a file and known ones kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattune.cli.output import stderr_console
from wattune.core.errors import InputError
from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.levels.overlap.joint_plans import Remaining
from wattune.levels.overlap.partitions import NONE, KernelPartition, PartitionedModel
from wattune.levels.overlap.searched_model import (
    Measure,
    SearchedPartition,
    computed_partitions,
    expected_remaining,
    search_model,
    simulated_measure,
)
from wattune.levels.overlap.space import PartitionChoice, check_clocks, check_comm_sms, choices
from wattune.levels.overlap.trial_file import (
    PartitionTrial,
    PassTrial,
    TrialHeader,
    appended_trials,
    read_header,
    read_passes,
    read_trials,
)
from wattune.levels.overlap.view.kernel_report import SearchedKernels
from wattune.physics.gpu_model import GpuModel

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How to search, and the file of trials to go on from."""

    search: str
    budget: int | None
    seed: int
    epsilon: float
    trials: Path | None
    waiting_w: float | None = None
    """Power of a GPU that waits; None: idle with a context."""


def searched_kernels(model: PartitionedModel, gpu: GpuModel, options: SearchOptions) -> SearchedKernels:
    """Search the partitions, or take those of a file that real GPUs measured as they are.

    Our search without a file or a budget would end near what all settings come to, so these are computed at once.
    """
    file = options.trials
    if file is None and options.search == "wattune" and options.budget is None:
        computed = computed_partitions(model, gpu)
        return SearchedKernels(model, gpu, computed, measured=False, remaining=Remaining(0.0, 0.0))
    if file is None:
        return _searched(model, gpu, options, simulated_measure(gpu), ())
    before = read_header(file)
    simulated, executed = (True, False) if before is None else (before.simulated, before.executed)
    header = TrialHeader.of(model, gpu=gpu.name, simulated=simulated, executed=executed)
    known = read_trials(file, header) if before is not None else ()
    if executed or not simulated:
        found = measured_kernels(model, gpu, known, read_passes(file, header), file=file)
        _check_clocks(found, file)
        return found
    with appended_trials(file, header) as append:
        return _searched(model, gpu, options, _appending(simulated_measure(gpu), append), known)


def measured_kernels(
    model: PartitionedModel,
    gpu: GpuModel,
    trials: Sequence[PartitionTrial],
    passes: Sequence[PassTrial] = (),
    *,
    file: Path,
) -> SearchedKernels:
    """Take the trials of a file as they are; refuse a file that lacks a partition."""
    known = _histories(model, gpu, trials, file)
    for partition in model.partitions:
        if partition.name not in known:
            raise InputError(f"{file} has no trial of partition {partition.name}", hint="measure it too")
    found = tuple(SearchedPartition(partition, known[partition.name]) for partition in model.partitions)
    simulated = all(trial.simulated for trial in trials)
    executed = not simulated or any(trial.window_s for trial in trials)
    return SearchedKernels(model, gpu, found, measured=executed, simulated=simulated, passes=tuple(passes))


def _check_clocks(found: SearchedKernels, file: Path) -> None:
    """Refuse partitions without a common clock, and say which has none."""
    for instruction, clocks in found.clocks_mhz.items():
        if not set.intersection(*clocks.values()):
            every = set().union(*clocks.values())
            name = min(clocks, key=lambda name: len(clocks[name]))
            missing = ", ".join(map(str, sorted(every - clocks[name])))
            raise InputError(
                f"{file}: no clock is measured in all partitions of a {instruction} pass; {name} lacks {missing} MHz",
                hint="measure it there",
            )


def _searched(
    model: PartitionedModel, gpu: GpuModel, options: SearchOptions, measure: Measure, trials: Sequence[PartitionTrial]
) -> SearchedKernels:
    known = _histories(model, gpu, trials, options.trials)
    with bars(stderr_console()) as on_partition:
        found = search_model(
            model,
            gpu,
            measure,
            search_name=options.search,
            budget=options.budget,
            seed=options.seed,
            enough=options.epsilon,
            waiting_w=options.waiting_w,
            known=known,
            on_partition=on_partition,
        )
    return SearchedKernels(model, gpu, found, measured=False, remaining=_remaining(found, gpu, options))


def _remaining(found: tuple[SearchedPartition, ...], gpu: GpuModel, options: SearchOptions) -> Remaining | None:
    """Expect what plans lack after our search; the published ones do not have such a rule."""
    return expected_remaining(found, gpu, seed=options.seed) if options.search == "wattune" else None


def _histories(
    model: PartitionedModel, gpu: GpuModel, trials: Sequence[PartitionTrial], file: Path | None
) -> dict[str, History[PartitionChoice]]:
    """Group trials by partition; refuse those that the model or the GPU cannot have."""
    known: dict[str, History[PartitionChoice]] = {}
    for trial in trials:
        _check(model.partition(trial.partition), gpu, trial, file)
        known[trial.partition] = (*known.get(trial.partition, ()), trial.trial)
    return known


def _check(partition: KernelPartition, gpu: GpuModel, trial: PartitionTrial, file: Path | None) -> None:
    choice = trial.choice
    check_clocks(gpu, [choice.sm_mhz])
    check_comm_sms(gpu, [choice.comm_sms])
    if choice.launch not in (*partition.launches, NONE):
        raise InputError(
            f"{file}: {partition.name} cannot launch its collective at {choice.launch!r}",
            hint=f"at {', '.join((*partition.launches, NONE))}",
        )
    if trial.simulated and choice not in choices(partition, gpu):
        raise InputError(
            f"{file}: {choice.text} at {choice.sm_mhz} MHz is no setting of {partition.name}",
            hint="search into another file",
        )


def _appending(measure: Measure, append: Callable[[PartitionTrial], None]) -> Measure:
    """Append what is measured. A computed trial is at the temperature at which the GPU settles, without windows."""

    def one(partition: KernelPartition, choice: PartitionChoice) -> Measurement:
        cost = measure(partition, choice)
        append(
            PartitionTrial(
                partition=partition.name,
                choice=choice,
                cost=cost,
                repeats=1,
                cooling_s=0.0,
                window_s=0.0,
                start_c=None,
                end_c=None,
                simulated=True,
            )
        )
        return cost

    return one


@contextmanager
def bars(screen: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar for each partition below what the screen prints; without a terminal there is none."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, most: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=most)
            bars.update(tasks[name], completed=done)

        yield show
