"""What becomes of a run that reports, ends, is replaced or is not heard of: pure steps from one record to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from wattune.core.errors import InputError, StoreError
from wattune.core.job import Outcome
from wattune.store.job_records import RecordedRun, Totals
from wattune.store.protocol import EpochReported, RunOver


def as_of(record: RecordedRun, now: datetime, *, submitted: int) -> RecordedRun:
    """The record at a moment: a run whose lease is over by then is lost."""
    if record.run.outcome is not Outcome.RUNNING or now <= record.lease_until:
        return record
    return given_up(record, at=record.lease_until, submitted=submitted)


def given_up(record: RecordedRun, *, at: datetime, submitted: int) -> RecordedRun:
    """The record of a run that was running and is lost."""
    return replace(record, run=replace(record.run, outcome=Outcome.LOST, ended=submitted), ended_at=at)


def renewed(record: RecordedRun, now: datetime, *, lease_s: float) -> RecordedRun:
    """The record with a new lease, running again if it was lost; `RunOver` where the run is over for good."""
    if record.replaced or record.run.outcome not in (Outcome.RUNNING, Outcome.LOST):
        raise run_over(record)
    run = replace(record.run, outcome=Outcome.RUNNING, ended=None)
    return replace(record, run=run, ended_at=None, lease_until=now + timedelta(seconds=lease_s))


def with_totals(record: RecordedRun, totals: Totals) -> RecordedRun:
    """The record with what was spent so far and the setting that holds; None leaves each as it was."""
    run = record.run
    cost = run.cost if totals.cost is None else totals.cost
    profiling = run.profiling if totals.profiling is None else totals.profiling
    setting = run.setting if totals.setting is None else totals.setting
    return replace(record, run=replace(run, cost=cost, profiling=profiling, setting=setting))


def ended(record: RecordedRun, outcome: Outcome, *, now: datetime, submitted: int) -> RecordedRun | None:
    """The record with its ending, or None where it ended like this before; `RunOver` where it ended otherwise."""
    if outcome is Outcome.RUNNING:
        raise InputError("running is no ending", hint="end a run with how it went: reached, missed, stopped, ...")
    if record.run.outcome is outcome:
        return None
    if record.replaced or record.run.outcome not in (Outcome.RUNNING, Outcome.LOST):
        raise run_over(record)
    return replace(record, run=replace(record.run, outcome=outcome, ended=submitted), ended_at=now)


def replaceable(record: RecordedRun) -> None:
    """Nothing; StoreError where another run has no place to take."""
    if record.run.outcome is Outcome.REACHED:
        raise StoreError(
            f"run {record.run.id} reached its target, so nothing is to take its place",
            hint="submit a recurrence of its own",
        )


def place_of_epoch(
    known: Mapping[int, float | None], epoch: int | None, *, metric: float | None, max_epochs: int
) -> int | None:
    """Which epoch a report is for, from 0; None where the same was reported before.

    Epochs may be skipped, though not beyond the last that the job allows: a mistyped number would make a long void.
    """
    following = max(known, default=-1) + 1
    if epoch is None or epoch == following:
        return following
    if epoch in known:
        if known[epoch] == metric:
            return None
        raise EpochReported(
            f"epoch {epoch} was reported before, as {_shown(known[epoch])}; {_shown(metric)} is not taken",
            hint="report each epoch once",
        )
    if not 0 <= epoch < max(following, max_epochs):
        raise InputError(
            f"there is no epoch {epoch}: {following} were reported, and the job has at most {max_epochs}",
            hint="epochs count from 0",
        )
    return epoch


def metrics_of(known: Mapping[int, float | None]) -> tuple[float | None, ...]:
    """What was reported after each epoch, None where nothing was."""
    return tuple(known.get(epoch) for epoch in range(max(known, default=-1) + 1))


def run_over(record: RecordedRun) -> RunOver:
    """The error of whoever goes on with a run that is over."""
    run = record.run
    words = "another run took its place" if record.replaced else f"it ended as {run.outcome.value.replace('_', ' ')}"
    return RunOver(f"run {run.id} of {record.job} is over: {words}", hint="submit a new run")


def _shown(metric: float | None) -> str:
    return "no number" if metric is None else f"{metric:g}"
