"""The program of a job: its command, what takes the place of the braces in it, and what its environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from wattune.cli.child import check_command
from wattune.cli.job.child import Watch
from wattune.cli.job.placeholders import filled, filled_all, used
from wattune.cli.job.rate import ScaledRate
from wattune.cli.measure import play_on_simulated
from wattune.control.reports.file import check_place
from wattune.core.errors import InputError
from wattune.core.job import Job, JobGpu, JobRun

if TYPE_CHECKING:
    from wattune.devices.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a program is run and listened to, whatever its batch size."""

    command_line: tuple[str, ...]
    watch: Watch
    rate: ScaledRate | None = None
    workload: str
    """What simulated GPUs play meanwhile, at the run's own batch size unless it names one."""
    gpus: tuple[Gpu, ...]

    def check(self, job: Job) -> bool:
        """Whether the command takes its batch size from a placeholder; an error for what cannot work in any run."""
        names = used((*self.command_line, str(self.watch.file or ""), self.workload))
        if "learning_rate" in names and self.rate is None:
            raise InputError(
                "the command asks for {learning_rate} and none is given",
                hint="name one that was tuned at some batch size: --lr 0.1@256",
            )
        if "local_batch_size" in names:
            for size in job.batch_sizes:
                _check_divisible(size, len(self.gpus))
        example = JobRun(id="run", order=0, recurrence=0, batch_size=job.default_batch_size, gpu=self._part)
        command_line, watch, _ = self.for_run(example)
        check_command(command_line)
        if watch.file is not None:
            check_place(watch.file)
        self.play(example)
        return bool(names & {"batch_size", "local_batch_size"})

    @property
    def _part(self) -> JobGpu:
        return JobGpu(name="", simulated=False, max_power_w=0.0, count=max(len(self.gpus), 1))

    def values(self, run: JobRun) -> Mapping[str, str]:
        """What takes the place of each placeholder that can be filled."""
        values = {"batch_size": str(run.batch_size), "run_id": run.id, "seed": str(run.order)}
        if run.batch_size % run.gpu.count == 0:
            values["local_batch_size"] = str(run.batch_size // run.gpu.count)
        if self.rate is not None:
            values["learning_rate"] = f"{self.rate.at_size(run.batch_size):.12g}"
        return values

    def for_run(self, run: JobRun) -> tuple[tuple[str, ...], Watch, dict[str, str]]:
        """The command, where its metric is, and its environment, for one run."""
        values = self.values(run)
        watch = self.watch
        if watch.file is not None:
            watch = replace(watch, file=Path(filled(str(watch.file), values)))
        return filled_all(self.command_line, values), watch, _environment(values, watch)

    def play(self, run: JobRun) -> None:
        """Nothing; every GPU that is simulated in this process plays the workload at the batch size of the run."""
        name = filled(self.workload, self.values(run))
        if ":" not in name:
            name = f"{name}:{ceil(run.batch_size / run.gpu.count)}"
        play_on_simulated(self.gpus, name)


def _environment(values: Mapping[str, str], watch: Watch) -> dict[str, str]:
    ours = {f"WATTUNE_{name.upper()}": value for name, value in values.items() if name != "seed"}
    if watch.file is not None:
        ours["WATTUNE_METRIC_FILE"] = str(watch.file.absolute())
    if watch.reads_output:
        # Python holds back what goes into a pipe; a metric that comes late would be worth nothing.
        ours["PYTHONUNBUFFERED"] = os.environ.get("PYTHONUNBUFFERED") or "1"
    return {**os.environ, **ours}


def _check_divisible(size: int, gpus: int) -> None:
    if size % gpus:
        raise InputError(
            f"a batch of {size} cannot be divided among {gpus} GPUs",
            hint="choose batch sizes that are multiples of the number of GPUs",
        )
