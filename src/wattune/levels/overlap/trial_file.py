"""The file to which trials of partitions and of whole passes are appended, so that a stopped run can continue."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wattune.control.record_file import appended_records, read_record_header, read_records
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.layout import ParallelLayout, shape_name
from wattune.levels.overlap.partitions import PartitionedModel, partition_model
from wattune.levels.overlap.space import PartitionChoice, parse_choice

FORMAT = 1
_LAYOUT = re.compile(
    r"(?P<name>\S+)(?: cp(?P<cp>\d{1,4}))?(?: tp(?P<tp>\d{1,4}))?(?P<sp> sp)? (?P<size>\d{1,6})x(?P<sequence>\d{1,9})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHeader:
    """What a file of trials is about."""

    format: int = FORMAT
    layout: str
    """Model, parallel layout and sizes, in any form; trials of another layout are refused."""
    gpu: str
    simulated: bool
    ranks: int
    nanobatches: int
    executed: bool = False
    """Whether ranks ran the partitions, each by itself; otherwise they were computed, with the joins inside a model."""

    @classmethod
    def of(cls, model: PartitionedModel, *, gpu: str, simulated: bool, executed: bool = False) -> TrialHeader:
        """Return the header of trials of a described model; stages and replicas do not change its partitions."""
        return cls(
            layout=layout_text(model),
            gpu=gpu,
            simulated=simulated,
            ranks=model.layout.tp * model.layout.cp,
            nanobatches=model.nanobatches,
            executed=executed,
        )

    @property
    def model(self) -> PartitionedModel:
        """The described model, on one stage; `InputError` where the layout was written in another form."""
        return model_of(self.layout, nanobatches=self.nanobatches)


def model_of(text: str, *, nanobatches: int, recompute: bool = True) -> PartitionedModel:
    """Return the model, on one stage, that a layout describes, such as `llama3.2-3b tp8 8x4096`."""
    found = _LAYOUT.fullmatch(text)
    if found is None:
        raise InputError(
            f"the trials are of {text!r}, which names no known model", hint="write the layout as llama3.2-3b tp8 8x4096"
        )
    layout = ParallelLayout(
        cp=int(found["cp"] or 1), tp=int(found["tp"] or 1), sequence_parallel=found["sp"] is not None
    )
    return partition_model(
        found["name"],
        layout,
        microbatch_size=int(found["size"]),
        sequence=int(found["sequence"]),
        nanobatches=nanobatches,
        recompute=recompute,
    )


def layout_text(model: PartitionedModel) -> str:
    """Write what the partitions of a model depend on, such as `llama3.2-3b tp8 8x4096`."""
    layout = model.layout
    degrees = [f"{name}{getattr(layout, name)}" for name in ("cp", "tp") if getattr(layout, name) > 1]
    parallel = [*degrees, *(["sp"] if layout.sequence_parallel else [])]
    return " ".join((shape_name(model.name), *parallel, f"{model.microbatch_size}x{model.sequence}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRuns:
    """What one run of something takes on each GPU, and how that was measured."""

    cost: Measurement
    repeats: int
    """Runs that were measured."""
    cooling_s: float
    window_s: float
    """Of all windows, also of those that do not count."""
    start_c: float | None
    """Temperature of the warmest GPU before the windows; None where one has no sensor."""
    end_c: float | None
    """The same behind the windows: energy at another temperature differs, by about 0.2 % per degree."""
    simulated: bool

    @property
    def fields(self) -> dict[str, Any]:
        """The values above by name, for a record that says what ran."""
        return {field.name: getattr(self, field.name) for field in fields(MeasuredRuns)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTrial(MeasuredRuns):
    """A partition under a choice."""

    partition: str
    choice: PartitionChoice

    @property
    def trial(self) -> Trial[PartitionChoice]:
        return Trial(self.choice, self.cost)

    @property
    def key(self) -> tuple[str, PartitionChoice]:
        return self.partition, self.choice


@dataclass(frozen=True, slots=True)
class PassChoice:
    """A whole forward or backward pass at a clock, under these settings of its partitions."""

    instruction: str
    sm_mhz: int
    settings: Mapping[str, str]
    """Launch and SMs by partition, as schedules of Kareus write them; none where the microbatch is not split."""

    @property
    def key(self) -> tuple[str, int, frozenset[tuple[str, str]]]:
        return self.instruction, self.sm_mhz, frozenset(self.settings.items())

    @property
    def choices(self) -> dict[str, PartitionChoice]:
        return {name: parse_choice(text, sm_mhz=self.sm_mhz) for name, text in self.settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTrial(MeasuredRuns):
    """A whole pass through some layers."""

    choice: PassChoice
    layers: int
    recompute: bool
    """Whether its backward pass runs the forward partitions again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What `wattune kernels measure` asks the ranks of a program to measure."""

    layout: str
    nanobatches: int
    search: str
    budget: int | None
    seed: int
    epsilon: float
    passes: bool
    """Whether whole passes are measured too."""
    trials: str
    """The file of rank 0."""
    device: str | None


def read_header(file: Path) -> TrialHeader | None:
    """Read what a file of trials is about; None where there is no file, or an empty one."""
    return read_record_header(file, TrialHeader, hint="name a file of trials of partitions")


def read_trials(file: Path, header: TrialHeader) -> tuple[PartitionTrial, ...]:
    """Read the trials of an earlier run of the same measurement; none where there is no file."""
    return read_records(file, header, PartitionTrial, PassTrial)


def read_passes(file: Path, header: TrialHeader) -> tuple[PassTrial, ...]:
    """Read the whole passes of an earlier run of the same measurement; none where there is no file."""
    return read_records(file, header, PassTrial, PartitionTrial)


def appended_trials(file: Path, header: TrialHeader) -> AbstractContextManager[Callable[[MeasuredRuns], None]]:
    """Open the file; the function that its block gets appends a trial, which is on disk when it returns."""
    return appended_records(file, header)
