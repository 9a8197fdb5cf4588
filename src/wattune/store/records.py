"""The records of the history: runs, their GPUs, their trials and a summary of their power traces.

These are plain values, which need no database library. Every text is made storable and every JSON part plain when a
value is made, so that what is read equals what was written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import pairwise
from math import isfinite
from statistics import fmean, median, quantiles
from typing import Any

from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import StoreError
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import GpuSpec, labelled
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Trace
from wattune.core.setting import Setting

SETTING = "setting"
"""The kind of a choice that is only a `Setting`."""


class RunExists(StoreError):
    """A run with this id is in the store already."""


class StoreTimeout(StoreError):
    """The store did not answer in time: it is locked, stopped or far away."""


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGpu:
    """Time and energy of one GPU in a run; energy is None where it was not measured."""

    uuid: str
    name: str
    simulated: bool
    time_s: float
    energy_j: float | None = None
    energy_error_j: float | None = None

    @classmethod
    def of(cls, spec: GpuSpec, cost: Measurement) -> RunGpu:
        return cls(
            uuid=spec.uuid,
            name=spec.name,
            simulated=spec.simulated,
            time_s=cost.time_s,
            energy_j=cost.energy_j,
            energy_error_j=cost.energy_error_j,
        )

    def __post_init__(self) -> None:
        _check_fields(self)

    @property
    def label(self) -> str:
        """The name, marked as simulated if it is."""
        return labelled(self.name, self.simulated)

    @property
    def power_w(self) -> float | None:
        return mean_power_w(self.energy_j, self.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run: when, where, on which GPUs, how long and for how many joules."""

    id: str
    kind: str
    """The command that made it: measure, sweep, run and so on."""
    name: str
    """The command line that ran, or the name of the workload."""
    started_at: datetime
    time_s: float
    energy_j: float | None
    """All GPUs together; None where one of them was not measured."""
    energy_error_j: float | None = None
    simulated: bool
    host: str
    version: str
    """The version of wattune that wrote it."""
    gpus: tuple[RunGpu, ...] = ()
    note: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Other data of the command, as JSON."""

    def __post_init__(self) -> None:
        if self.started_at.tzinfo is None:
            raise ValueError("the start of a run has a time zone; use datetime.now(UTC)")
        object.__setattr__(self, "started_at", self.started_at.astimezone(UTC))
        object.__setattr__(self, "details", plain_json(self.details))
        _check_fields(self)

    @property
    def power_w(self) -> float | None:
        return mean_power_w(self.energy_j, self.time_s)

    @property
    def device(self) -> str | None:
        """The labels of the GPUs, equal ones counted; None for a run without GPUs."""
        counts = Counter(gpu.label for gpu in self.gpus)
        return ", ".join(f"{count} × {label}" if count > 1 else label for label, count in counts.items()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A choice that was tried on a GPU, and what it cost."""

    workload: str
    gpu: str
    """The name of the GPU; `label` marks it as simulated."""
    simulated: bool
    choice_kind: str
    """`setting`, or the level whose choice it is: job, plan."""
    choice: Mapping[str, Any]
    """The whole choice as JSON."""
    setting: Setting | None
    """The setting of the GPU; None where a choice of another kind has none."""
    cost: Measurement

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", plain_json(self.choice))
        if self.choice_kind != SETTING and self.setting == Setting():
            object.__setattr__(self, "setting", None)
        _check_fields(self)

    @classmethod
    def of(cls, trial: Trial[Setting], *, workload: str, gpu: str, simulated: bool) -> TrialRecord:
        return cls(
            workload=workload,
            gpu=gpu,
            simulated=simulated,
            choice_kind=SETTING,
            choice=to_json(trial.choice),
            setting=trial.choice,
            cost=trial.cost,
        )

    @property
    def trial(self) -> Trial[Setting]:
        """The trial, if the choice is a setting."""
        if self.choice_kind != SETTING or self.setting is None:
            raise ValueError(f"a choice of kind {self.choice_kind!r} is not a setting")
        return Trial(self.setting, self.cost)

    @property
    def label(self) -> str:
        """The GPU's name, marked as simulated if it is."""
        return labelled(self.gpu, self.simulated)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The summary of a power trace of one GPU; None for what the GPU does not report."""

    gpu: str
    """The UUID of the GPU."""
    simulated: bool
    samples: int
    duration_s: float
    mean_power_w: float | None
    min_power_w: float | None
    max_power_w: float | None
    p95_power_w: float | None
    mean_sm_mhz: float | None = None
    mean_mem_mhz: float | None = None
    refresh_s: float | None = None
    """The time between two new values of the sensor."""

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True, slots=True)
class FullRun:
    """A run with everything that belongs to it, written and read as one."""

    run: Run
    trials: tuple[TrialRecord, ...] = ()
    traces: tuple[TraceSummary, ...] = ()


def mean_power_w(energy_j: float | None, time_s: float) -> float | None:
    """Return watts, or None if there is no energy or too little time to divide by."""
    if energy_j is None or time_s <= 0:
        return None
    power_w = energy_j / time_s
    return power_w if isfinite(power_w) else None


def plain_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as JSON returns it: lists for tuples, texts for keys, and no NaN."""
    plain: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    return plain


def storable(text: str) -> str:
    """Replace what no database takes: NUL, and the lone surrogates of some file names."""
    return _UNSTORABLE.sub("\ufffd", text)


def _check_fields(record: Any) -> None:
    """Make every text storable, and refuse numbers that are negative or not finite."""
    for name, value in ((own.name, getattr(record, own.name)) for own in fields(record)):
        if isinstance(value, str):
            object.__setattr__(record, name, storable(value))
        elif isinstance(value, int | float) and not (isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}, but must be finite and not negative; unknown is None")


def summarise(trace: Trace, *, uuid: str, simulated: bool) -> TraceSummary:
    """Summarise a trace of the GPU with this UUID.

    Means are over time (trapezoids between samples), because samples are not evenly spaced: a sampler drops repeated
    ones.
    """
    powers_w = [reading.power_w for reading in trace.readings if reading.power_w is not None]
    gaps_s = [after.time_s - before.time_s for before, after in pairwise(trace.readings)]
    return TraceSummary(
        gpu=uuid,
        simulated=simulated,
        samples=len(trace.readings),
        duration_s=trace.duration_s,
        mean_power_w=_mean(trace, lambda reading: reading.power_w),
        min_power_w=min(powers_w, default=None),
        max_power_w=max(powers_w, default=None),
        p95_power_w=_p95(powers_w),
        mean_sm_mhz=_mean(trace, lambda reading: reading.sm_mhz),
        mean_mem_mhz=_mean(trace, lambda reading: reading.mem_mhz),
        refresh_s=median(gaps_s) if gaps_s else None,
    )


def _mean(trace: Trace, quantity: Callable[[Reading], float | None]) -> float | None:
    known = [(reading.time_s, value) for reading in trace.readings if (value := quantity(reading)) is not None]
    if not known:
        return None
    span_s = known[-1][0] - known[0][0]
    if span_s <= 0:
        return fmean(value for _, value in known)
    return (
        sum((after + before) / 2 * (end_s - start_s) for (start_s, before), (end_s, after) in pairwise(known)) / span_s
    )


def _p95(values: list[float]) -> float | None:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0] if values else None


_READER = JsonReader(unknown_fields="skip")
"""Fields that a later version adds do no harm."""


def full_run_to_json(full: FullRun) -> dict[str, Any]:
    """Convert a run and all that belongs to it to a JSON document."""
    trials = to_json(full.trials)
    for trial in trials:
        trial |= trial.pop("cost")
    return {"run": run_to_json(full.run), "trials": trials, "traces": to_json(full.traces)}


def full_run_from_json(document: Mapping[str, Any]) -> FullRun:
    """Convert a document of `full_run_to_json` back; KeyError or InputError if it is none."""
    trials = [{**trial, "cost": trial} for trial in document["trials"]]
    return _READER.read(FullRun, {**document, "trials": trials})


def run_to_json(run: Run) -> dict[str, Any]:
    """Convert a run to a JSON document that has its device and mean power too."""
    document: dict[str, Any] = to_json(run) | {"power_w": run.power_w, "device": run.device}
    for gpu, record in zip(document["gpus"], run.gpus, strict=True):
        gpu["power_w"] = record.power_w
    return document
