"""The file to which trials of partitions are appended, so that a run that was stopped can continue."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from wattune.control.record_file import appended_records, read_record_header, read_records
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.kernel.partition.layout import ParallelLayout, shape_name
from wattune.levels.kernel.partition.partitions import PartitionedModel, partition_model
from wattune.levels.kernel.partition.space import PartitionChoice

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

    @classmethod
    def of(cls, model: PartitionedModel, *, gpu: str, simulated: bool) -> TrialHeader:
        """Return the header of trials of a described model; stages and replicas do not change its partitions."""
        ranks = model.layout.tp * model.layout.cp
        return cls(layout=layout_text(model), gpu=gpu, simulated=simulated, ranks=ranks, nanobatches=model.nanobatches)

    @property
    def model(self) -> PartitionedModel:
        """The described model, on one stage; `InputError` where the layout was written in another form."""
        found = _LAYOUT.fullmatch(self.layout)
        if found is None:
            raise InputError(
                f"the trials are of {self.layout!r}, which names no known model",
                hint="write the layout as llama3.2-3b tp8 8x4096",
            )
        layout = ParallelLayout(
            cp=int(found["cp"] or 1), tp=int(found["tp"] or 1), sequence_parallel=found["sp"] is not None
        )
        size, sequence = int(found["size"]), int(found["sequence"])
        return partition_model(
            found["name"], layout, microbatch_size=size, sequence=sequence, nanobatches=self.nanobatches
        )


def layout_text(model: PartitionedModel) -> str:
    """Write what the partitions of a model depend on, such as `llama3.2-3b tp8 8x4096`."""
    layout = model.layout
    degrees = [f"{name}{getattr(layout, name)}" for name in ("cp", "tp") if getattr(layout, name) > 1]
    parallel = [*degrees, *(["sp"] if layout.sequence_parallel else [])]
    return " ".join((shape_name(model.name), *parallel, f"{model.microbatch_size}x{model.sequence}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTrial:
    """A partition under a choice, and what one run of it takes on each GPU."""

    partition: str
    choice: PartitionChoice
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
    def trial(self) -> Trial[PartitionChoice]:
        return Trial(self.choice, self.cost)

    @property
    def key(self) -> tuple[str, PartitionChoice]:
        return self.partition, self.choice


def read_header(file: Path) -> TrialHeader | None:
    """Read what a file of trials is about; None where there is no file, or an empty one."""
    return read_record_header(file, TrialHeader, hint="name a file of trials of partitions")


def read_trials(file: Path, header: TrialHeader) -> tuple[PartitionTrial, ...]:
    """Read the trials of an earlier run of the same measurement; none where there is no file."""
    return read_records(file, header, PartitionTrial)


def appended_trials(file: Path, header: TrialHeader) -> AbstractContextManager[Callable[[PartitionTrial], None]]:
    """Open the file; the function that its block gets appends a trial, which is on disk when it returns."""
    return appended_records(file, header)
