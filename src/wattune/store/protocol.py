"""What every store can do, whichever database is behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from wattune.core.errors import StoreError
from wattune.core.frontier import History
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.job_records import JobSummary, RecordedRun, RunEnd
from wattune.store.records import FullRun, Run, TraceSummary, TrialRecord

Decide = Callable[[Job, JobMemory], Proposal]
"""Chooses the batch size of a run from what is known; called while nobody else can submit to the same job."""


class JobStore(Protocol):
    """The history of recurring jobs."""

    def define_job(self, job: Job, *, now: datetime | None = None) -> Job:
        """The job as it is kept from now on: new, as it was, or redefined with its history whole.

        Runs from before a change of target or direction are no longer part of the memory; `job_runs` has them still.
        """
        ...

    def job(self, name: str) -> Job:
        """The job as it was defined last; StoreError with the nearest name where there is none."""
        ...

    def jobs(self, *, now: datetime | None = None) -> tuple[JobSummary, ...]:
        """Every job at a glance, by name."""
        ...

    def job_memory(self, name: str, *, now: datetime | None = None) -> JobMemory:
        """What searchers may know: comparable runs, oldest first, and the newest profile of each size and part.

        A run whose lease is over counts as lost, whether or not anybody has written that down yet.
        """
        ...

    def job_runs(self, name: str, *, limit: int | None = None, now: datetime | None = None) -> tuple[RecordedRun, ...]:
        """The runs with all that is kept of them, newest first, those of other targets too."""
        ...

    def job_run(self, run_id: str, *, now: datetime | None = None) -> RecordedRun:
        """One run, by its whole id."""
        ...

    def submit(
        self,
        name: str,
        gpu: JobGpu,
        decide: Decide,
        *,
        lease_s: float,
        now: datetime | None = None,
        replaces: str | None = None,
    ) -> JobRun:
        """The run that was decided on, which is running from now on.

        It serves a new recurrence or, where it replaces a run that ended without reaching the target, the same as
        that one. A replaced run that was still running counts as lost. Nothing is kept where `decide` fails.
        """
        ...

    def report(
        self,
        run_id: str,
        *,
        metric: float | None,
        lease_s: float,
        cost: Measurement | None = None,
        profiling: Measurement | None = None,
        setting: Setting | None = None,
        epoch: int | None = None,
        now: datetime | None = None,
    ) -> JobRun:
        """The run after one more epoch, its lease renewed; `cost` and `profiling` are totals, and None leaves them.

        `epoch` counts from 0 and is the next one where it is left out. The same report again changes nothing, another
        metric for the same epoch raises `EpochReported`, epochs that were skipped are None and may be reported late. A
        run that was given up for lost is running again, unless it was replaced. One that is over raises `RunOver`.
        """
        ...

    def renew(self, run_id: str, lease_s: float, *, now: datetime | None = None) -> JobRun:
        """The run, its lease renewed; `RunOver` where it has ended or was replaced."""
        ...

    def end_run(
        self,
        run_id: str,
        outcome: Outcome,
        *,
        cost: Measurement | None = None,
        profiling: Measurement | None = None,
        setting: Setting | None = None,
        metrics: Sequence[float | None] = (),
        now: datetime | None = None,
    ) -> JobRun:
        """The run, ended. The first ending stands: the same again changes nothing, another raises `RunOver`.

        `metrics` may hold all that the run reported; epochs that the store was never told of are taken from there.
        """
        ...

    def keep_profile(self, name: str, profile: Profile, *, now: datetime | None = None) -> None:
        """Nothing; the profile is the newest of its batch size and part, and older ones stay on record."""
        ...

    def forget_job(self, name: str, *, now: datetime | None = None) -> JobSummary:
        """What the job was at a glance; all of it is gone."""
        ...


def record_end(job_store: JobStore, end: RunEnd) -> JobRun:
    """End a run as `end` describes and return it."""
    return job_store.end_run(
        end.run_id,
        end.outcome,
        cost=end.cost,
        profiling=end.profiling,
        setting=end.setting,
        metrics=end.metrics,
        now=end.ended_at,
    )


class RunExists(StoreError):
    """A run of this id is in the store already."""


class Store(Protocol):
    """The history of everything that was measured. `wattune.store.sql_store.open_store` makes one."""

    @property
    def place(self) -> str:
        """Where it is, for people: a path, or a URL without its password."""
        ...

    @property
    def jobs(self) -> JobStore:
        """The history of recurring jobs."""
        ...

    def add_run(self, full: FullRun) -> None:
        """Nothing; the run and all that belongs to it are on disk, or none of it is and an error says why."""
        ...

    def run(self, prefix: str) -> FullRun:
        """The one run whose id begins like this."""
        ...

    def runs(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> tuple[Run, ...]:
        """The runs, newest first; `name` is a part of theirs, in any case."""
        ...

    def trials(self, *, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        """Every setting that was tried for a workload on a part, oldest first; simulated and real never mix."""
        ...

    def trial_records(
        self, *, workload: str | None = None, gpu: str | None = None, choice_kind: str | None = None
    ) -> tuple[tuple[Run, TrialRecord], ...]:
        """The trials with the run that each belongs to, oldest first."""
        ...

    def traces(self) -> tuple[tuple[Run, TraceSummary], ...]:
        """The trace summaries with the run that each belongs to, oldest first."""
        ...

    def forget(self, prefix: str) -> Run:
        """The run that was taken out of the store, with all that belonged to it."""
        ...
