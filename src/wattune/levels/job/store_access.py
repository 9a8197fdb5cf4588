"""The history of a job as a running one uses it: what cannot be written never stops the training.

Reports that fail are made up for at the end, since the end of a run names all its metrics; an end that fails is kept in
a file, which the next submission takes in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

from wattune.core.errors import StoreError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.levels.job.policies import JobSearcher
from wattune.store.fallback import fallback_folders, recover, write_end
from wattune.store.job_records import NoSuchRun, RunEnd, RunOver
from wattune.store.protocol import Store, record_end
from wattune.store.sql_store import open_store

LEASE_S = 900.0
"""A run that is not heard of for a quarter of an hour is lost; a thread renews long before."""

UNRECORDED = "unrecorded"
"""The id of a run that no store knows."""

T = TypeVar("T")
Warn = Callable[[str], None]


class JobStoreAccess:
    """Submits, reports and ends the runs of one job."""

    def __init__(
        self, job: Job, searcher: JobSearcher, *, store_url: str, state_dir: Path, warn: Warn, lease_s: float = LEASE_S
    ) -> None:
        self.job, self.lease_s = job, lease_s
        self._searcher, self._store_url, self._warn = searcher, store_url, warn
        self._folders = fallback_folders(state_dir)
        self._store: Store | None = None
        self._memory = JobMemory()

    def submit(self, gpu: JobGpu, *, replaces: str | None = None) -> tuple[JobRun, JobMemory]:
        """The next run of the job, and what was known when it was chosen.

        Where the history cannot be reached, it is a run at the default batch size that nobody will learn from.
        """
        found = self._try(lambda: self._submitted(gpu, replaces), "this run is not in the history")
        if found is not None:
            return found, self._memory
        why = "the default, since the history of the job cannot be reached"
        size = self.job.default_batch_size
        return JobRun(id=UNRECORDED, order=0, recurrence=0, batch_size=size, gpu=gpu, why=why), JobMemory()

    def memory(self) -> JobMemory:
        """All that is known of the job by now, or was when the history could last be reached."""
        store = self._store
        if store is not None:
            found = self._try(lambda: store.jobs.job_memory(self.job.name), "deciding by what was known before")
            self._memory = found or self._memory
        return self._memory

    def stop(self, run: JobRun) -> str | None:
        """Why the searcher wants the run to end now; None where it should go on, or nobody knows of it."""
        if run.id == UNRECORDED:
            return None
        return self._searcher.stop(self.job, self.memory(), run)

    def report(self, run: JobRun) -> bool:
        """Whether the run is still ours to go on with, after its newest epoch was put on record."""
        store = self._store
        if store is None or run.id == UNRECORDED:
            return True
        try:
            store.jobs.report(
                run.id,
                metric=run.metrics[-1],
                epoch=run.epochs - 1,
                cost=run.cost,
                profiling=run.profiling,
                setting=run.setting,
                lease_s=self.lease_s,
            )
        except RunOver as error:
            self._warn(error.message)
            return False
        except StoreError as error:
            self._warn(f"{error.message}; the report is made up for later")
        return True

    def renew(self, run: JobRun) -> bool:
        """Whether the lease is worth renewing again."""
        store = self._store
        if store is None or run.id == UNRECORDED:
            return False
        try:
            store.jobs.renew(run.id, self.lease_s)
        except (RunOver, NoSuchRun):
            return False
        except StoreError:
            return True  # a store that is away for a while may be back before the lease is over
        return True

    def keep_profile(self, profile: Profile) -> None:
        """Nothing; the profile is kept, if it can be."""
        store = self._store
        if store is not None and profile.trials:
            self._try(lambda: store.jobs.keep_profile(self.job.name, profile), "the profile is measured anew next time")

    def end(self, run: JobRun, outcome: Outcome) -> None:
        """Nothing; how the run ended is kept, in the store or in a file that the next submission takes in."""
        store = self._store
        if store is None or run.id == UNRECORDED:
            return
        end = RunEnd(
            run_id=run.id,
            outcome=outcome,
            ended_at=datetime.now(UTC),
            cost=run.cost,
            profiling=run.profiling,
            setting=run.setting,
            metrics=run.metrics,
        )
        try:
            record_end(store.jobs, end)
        except (RunOver, NoSuchRun) as error:
            self._warn(error.message)
        except StoreError as error:
            self._spill(end, store.place, error)

    def _spill(self, end: RunEnd, place: str, error: StoreError) -> None:
        try:
            path = write_end(end, place, self._folders)
        except StoreError as worse:
            self._warn(worse.message)
        else:
            self._warn(f"{error.message}; how the run ended is kept in {path}")

    def _submitted(self, gpu: JobGpu, replaces: str | None) -> JobRun:
        store = open_store(self._store_url)
        with suppress(StoreError):  # what cannot be taken in stays where it is
            recover(store, self._folders, meant_for=store.place)
        store.jobs.define_job(self.job)
        run = store.jobs.submit(
            self.job.name,
            gpu,
            lambda job, memory: self._decide(job, memory, gpu),
            lease_s=self.lease_s,
            replaces=replaces,
        )
        self._store = store
        return run

    def _decide(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        self._memory = memory
        return self._searcher.propose(job, memory, gpu)

    def _try(self, act: Callable[[], T], otherwise: str) -> T | None:
        try:
            return act()
        except StoreError as error:
            self._warn(f"{error.message}; {otherwise}")
            return None


PULSES = 3
"""Renewals within one lease: two may fail, and the run is still not taken for lost."""


class LeaseKeeper:
    """Renews a lease in the background until it is stopped or `renew` says that there is none any more."""

    def __init__(self, renew: Callable[[], bool], *, lease_s: float) -> None:
        self._renew, self._pause_s = renew, lease_s / PULSES
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="wattune-lease", daemon=True)

    def start(self) -> None:
        """Nothing; the lease is being kept."""
        self._thread.start()

    def stop(self) -> None:
        """Nothing; the lease is not renewed any more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            if not self._renew():
                return
