"""The program of a job: its command line, placeholders and environment, and the definition of the job."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.child import check_command
from wattune.cli.training_child import ReportWatch
from wattune.control.reports.file import check_place
from wattune.control.reports.report import MetricPattern, StepPattern
from wattune.core.errors import InputError
from wattune.core.job import Job, JobGpu, JobRun, check_name
from wattune.devices.gpu import play_on_simulated
from wattune.levels.job.options import MAX_EPOCHS, scaled_rate
from wattune.workloads.catalog import make_workload

if TYPE_CHECKING:
    from wattune.devices.gpu import Gpu


PLACEHOLDERS = {
    "batch_size": "the batch size over all GPUs",
    "local_batch_size": "the batch size of one GPU",
    "learning_rate": "the learning rate that goes with the batch size, by --lr and --lr-rule",
    "run_id": "the id of the run",
    "seed": "a number that differs from run to run: how many runs there were before",
}

_BRACED = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")
"""{{name}} stands for {name} itself; braces around anything else, such as JSON, are kept."""


def used(texts: Iterable[str]) -> frozenset[str]:
    """Return the placeholders in these texts; raise an error for an unknown one."""
    names = frozenset(match[2] for text in texts for match in _BRACED.finditer(text) if match[2])
    for name in sorted(names - PLACEHOLDERS.keys()):
        near = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
        guess = f"did you mean {{{near[0]}}}? " if near else ""
        known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
        raise InputError(
            f"there is no placeholder {{{name}}}",
            hint=f"{guess}there are {known}; write {{{{{name}}}}} to pass {{{name}}} on as it is",
        )
    return names


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder by its value."""
    return _BRACED.sub(lambda match: f"{{{match[1]}}}" if match[1] else values[match[2]], text)


@dataclass(frozen=True, slots=True)
class ScaledRate:
    """A learning rate that was tuned at one batch size, and the rule that scales it."""

    base: float
    at: int
    rule: str

    @classmethod
    def parse(cls, text: str, rule: str) -> ScaledRate:
        """Parse a text such as `0.1@256`."""
        rate, _, size = text.partition("@")
        try:
            base, at = float(rate), int(size)
        except ValueError:
            base, at = inf, 0
        if not (0 < base < inf and 1 <= at < 10**9):
            raise InputError(f"{text!r} is no learning rate at a batch size", hint="write both, as 0.1@256")
        return cls(base, at, rule)

    def at_size(self, batch_size: int) -> float:
        return scaled_rate(self.base, at=self.at, batch_size=batch_size, rule=self.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgram:
    """The program of a job: its command, its reports and its GPUs."""

    command_line: tuple[str, ...]
    watch: ReportWatch
    rate: ScaledRate | None = None
    workload: str
    """Workload of simulated GPUs, at the batch size of the run unless it names one."""
    gpus: tuple[Gpu, ...] = ()
    """Empty until they are opened."""
    injects: bool = True
    """Whether a hook in its Python counts its steps."""

    def check(self, job: Job) -> bool:
        """Raise an error for what cannot work in any run; return whether the command has the batch size."""
        names = used((*self.command_line, str(self.watch.file or ""), self.workload))
        if "learning_rate" in names and self.rate is None:
            raise InputError(
                "the command contains {learning_rate} and none is given",
                hint="name one that was tuned at some batch size: --lr 0.1@256",
            )
        if "local_batch_size" in names:
            _check_divisible(job.batch_sizes, max(len(self.gpus), 1))
        gpu = JobGpu(name="", simulated=False, max_power_w=0.0, count=max(len(self.gpus), 1))
        example = JobRun(id="run", order=0, recurrence=0, batch_size=job.default_batch_size, gpu=gpu)
        command_line, watch, _ = self.for_run(example)
        check_command(command_line)
        if watch.file is not None:
            check_place(watch.file)
        self.play(example)
        return bool(names & {"batch_size", "local_batch_size"})

    def values(self, run: JobRun) -> Mapping[str, str]:
        """Return the value of each placeholder that has one."""
        values = {"batch_size": str(run.batch_size), "run_id": run.id, "seed": str(run.order)}
        if run.batch_size % run.gpu.count == 0:
            values["local_batch_size"] = str(run.batch_size // run.gpu.count)
        if self.rate is not None:
            values["learning_rate"] = f"{self.rate.at_size(run.batch_size):.12g}"
        return values

    def for_run(self, run: JobRun) -> tuple[tuple[str, ...], ReportWatch, dict[str, str]]:
        """Return the command line, the reports to watch and the environment of one run."""
        values = self.values(run)
        watch = self.watch
        if watch.file is not None:
            watch = replace(watch, file=Path(filled(str(watch.file), values)))
        return tuple(filled(text, values) for text in self.command_line), watch, _environment(values, watch)

    def play(self, run: JobRun) -> None:
        """Run the workload of this batch size on every simulated GPU of this process."""
        name = filled(self.workload, self.values(run))
        if ":" not in name:
            name = f"{name}:{ceil(run.batch_size / run.gpu.count)}"
        play_on_simulated(self.gpus, make_workload(name))


def _environment(values: Mapping[str, str], watch: ReportWatch) -> dict[str, str]:
    ours = {f"WATTUNE_{name.upper()}": value for name, value in values.items() if name != "seed"}
    if watch.file is not None:
        ours["WATTUNE_METRIC_FILE"] = str(watch.file.absolute())
    if watch.reads_output:
        # Python buffers what goes into a pipe, which would delay the metric.
        ours["PYTHONUNBUFFERED"] = os.environ.get("PYTHONUNBUFFERED") or "1"
    return {**os.environ, **ours}


def _check_divisible(sizes: Iterable[int], gpus: int) -> None:
    for size in sizes:
        if size % gpus:
            raise InputError(
                f"a batch of {size} cannot be divided among {gpus} GPUs",
                hint="choose batch sizes that are multiples of the number of GPUs",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options that define a job; None where one is not given."""

    batch_sizes: tuple[int, ...] | None = None
    default_batch_size: int | None = None
    target: float | None = None
    higher_is_better: bool | None = None
    max_epochs: int | None = None
    objective: str | None = None
    metric_file: str | None = None
    metric_pattern: str | None = None
    step_pattern: str | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, name) is not None for name in METRIC_SOURCES) > 1:
            raise click.UsageError("--metric-file and --metric-pattern cannot be used together")


METRIC_SOURCES = ("metric_file", "metric_pattern")
"""Fields of a job, of which one is given."""


def watch_of(job: Job) -> ReportWatch:
    """Return where the metric and the steps of a job are found."""
    if all(getattr(job, name) is None for name in METRIC_SOURCES):
        raise InputError(
            "no option gives the source of the metric",
            hint="add --metric-pattern 'accuracy: ([0-9.]+)' or --metric-file FILE",
        )
    return ReportWatch(
        file=None if job.metric_file is None else Path(job.metric_file),
        pattern=None if job.metric_pattern is None else MetricPattern.parse(job.metric_pattern),
        steps=None if job.step_pattern is None else StepPattern.parse(job.step_pattern),
    )


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse a list such as `16,32,64`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise InputError(f"{text!r} is no list of batch sizes", hint="write whole numbers from 1, as 16,32,64")
    return tuple(sorted({int(part) for part in parts}))


def first_definition(name: str, wanted: Wanted) -> Job:
    """Define a new job; raise an error that names a missing option."""
    check_name(name)
    if wanted.batch_sizes is None:
        raise _missing(name, "its batch sizes", "--batch-sizes 16,32,64")
    if wanted.target is None:
        raise _missing(name, "the metric to reach", "--target 0.75, with --lower-is-better where less is better")
    default = wanted.default_batch_size
    if default is None:
        if len(wanted.batch_sizes) > 1:
            raise _missing(name, "the batch size that is used today", f"--default {wanted.batch_sizes[-1]}")
        default = wanted.batch_sizes[0]
    return Job(
        name=name,
        batch_sizes=wanted.batch_sizes,
        default_batch_size=default,
        target=wanted.target,
        higher_is_better=wanted.higher_is_better is not False,
        max_epochs=wanted.max_epochs or MAX_EPOCHS,
        objective="cost:0.5" if wanted.objective is None else wanted.objective,
        metric_file=wanted.metric_file,
        metric_pattern=wanted.metric_pattern,
        step_pattern=wanted.step_pattern,
    )


def redefined(known: Job, wanted: Wanted) -> Job:
    """Return the job with the options changed; a default that is no longer listed must be given again."""
    given = {field: value for field, value in asdict(wanted).items() if value is not None}
    if given.keys() & set(METRIC_SOURCES):
        given = dict.fromkeys(METRIC_SOURCES) | given  # another source takes the place of the earlier one
    job = replace(known, **given)
    return known if job == known else job


def changes(before: Job, after: Job) -> tuple[str, ...]:
    """Return one line for each field that the new definition changes."""
    lines = []
    for field, title in _TITLES.items():
        old, new = getattr(before, field), getattr(after, field)
        if old != new and old is None:
            lines.append(f"{title}: {_shown(new)}")
        elif old != new and new is not None:
            lines.append(f"{title}: {_shown(new)} instead of {_shown(old)}")
    if (before.target, before.higher_is_better) != (after.target, after.higher_is_better):
        lines.append("earlier runs had another target: they are kept and not used")
    return tuple(lines)


_TITLES = {
    "batch_sizes": "batch sizes",
    "default_batch_size": "default batch size",
    "target": "target",
    "higher_is_better": "higher is better",
    "max_epochs": "most epochs",
    "objective": "objective",
    "metric_file": "file of the metric",
    "metric_pattern": "pattern of the metric",
    "step_pattern": "pattern of steps",
}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _missing(name: str, what: str, option: str) -> InputError:
    return InputError(f"{name} is a new job and lacks {what}", hint=f"add {option}")
