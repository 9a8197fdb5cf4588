"""The protocols of a store, whichever database is behind it."""

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
"""Chooses the batch size of a run from what is known. Nobody else can submit to the same job during the call."""


class JobStore(Protocol):
    """The history of recurring jobs."""

    def define_job(self, job: Job, *, now: datetime | None = None) -> Job:
        """Store a job, new or redefined, and return it; its history is kept.

        After a change of target or direction, older runs leave the memory; `job_runs` still returns them.
        """
        ...

    def job(self, name: str) -> Job:
        """Return the newest definition of a job; StoreError with the nearest name if there is none."""
        ...

    def jobs(self, *, now: datetime | None = None) -> tuple[JobSummary, ...]:
        """Return the summary of every job, by name."""
        ...

    def job_memory(self, name: str, *, now: datetime | None = None) -> JobMemory:
        """Return what searchers may know: comparable runs, oldest first, and the newest profile of each size and GPU.

        A run whose lease is over counts as lost, even before that is written to the store.
        """
        ...

    def job_runs(self, name: str, *, limit: int | None = None, now: datetime | None = None) -> tuple[RecordedRun, ...]:
        """Return the full records of the runs, newest first, those of other targets included."""
        ...

    def job_run(self, run_id: str, *, now: datetime | None = None) -> RecordedRun:
        """Return one run, by its whole id."""
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
        """Store and return a run with the batch size that `decide` returns.

        It belongs to a new recurrence or, if it replaces a run that did not reach the target, to the same as that one.
        A replaced run that was still running is lost. If `decide` fails, no run is stored.
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
        """Store the metric of an epoch, renew the lease and return the run.

        `cost` and `profiling` are totals so far; None leaves them as they were. `epoch` counts from 0; by default it is
        the next one. A repeated report changes nothing, another metric for the same epoch raises `EpochReported`, and
        skipped epochs are None and may be reported late. A lost run is running again, unless it was replaced. A run
        that is over raises `RunOver`.
        """
        ...

    def renew(self, run_id: str, lease_s: float, *, now: datetime | None = None) -> JobRun:
        """Renew the lease of a run and return the run; `RunOver` if it has ended or was replaced."""
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
        """End a run and return it. The same end again changes nothing; another outcome raises `RunOver`.

        `metrics` may hold all that the run reported; epochs that are not in the store yet are taken from there.
        """
        ...

    def keep_profile(self, name: str, profile: Profile, *, now: datetime | None = None) -> None:
        """Store a profile as the newest of its batch size and GPU; older ones stay on record."""
        ...

    def forget_job(self, name: str, *, now: datetime | None = None) -> JobSummary:
        """Delete a job with all its runs and profiles, and return its summary."""
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
    """A run with this id is in the store already."""


class Store(Protocol):
    """The history of everything that was measured. `wattune.store.sql_store.open_store` opens one."""

    @property
    def place(self) -> str:
        """Where the store is, for people: a path, or a URL without its password."""
        ...

    @property
    def jobs(self) -> JobStore:
        """The history of recurring jobs."""
        ...

    def add_run(self, full: FullRun) -> None:
        """Store a run and all that belongs to it, in one transaction."""
        ...

    def run(self, prefix: str) -> FullRun:
        """Return the only run whose id begins with `prefix`."""
        ...

    def runs(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> tuple[Run, ...]:
        """Return the runs, newest first; `name` matches a part of a run's name, in upper or lower case."""
        ...

    def trials(self, *, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        """Return every setting that was tried for a workload on a GPU, oldest first; simulated and real never mix."""
        ...

    def trial_records(
        self, *, workload: str | None = None, gpu: str | None = None, choice_kind: str | None = None
    ) -> tuple[tuple[Run, TrialRecord], ...]:
        """Return the trials with the run that each belongs to, oldest first."""
        ...

    def traces(self) -> tuple[tuple[Run, TraceSummary], ...]:
        """Return the trace summaries with the run that each belongs to, oldest first."""
        ...

    def forget(self, prefix: str) -> Run:
        """Delete a run with all that belongs to it, and return it."""
        ...
