"""Access of a running job to its history; failures of the store never stop the training.

Reports that fail are repeated by the end of the run, which has all metrics; an end that fails is saved in a file, which
the next submission takes in.
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
from wattune.store.sql_store import Store, open_store

LEASE_S = 900.0
"""A run without a sign of life for a quarter of an hour is lost; a thread renews the lease long before."""

UNRECORDED = "unrecorded"
"""The id of a run that is in no store."""

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
        """Submit the next run of the job; return it and what was known when it was chosen.

        Where the history cannot be reached, it is a run at the default batch size that is not recorded.
        """
        found = self._try(lambda: self._submitted(gpu, replaces), "this run is not in the history")
        if found is not None:
            return found, self._memory
        why = "the default, since the history of the job cannot be reached"
        size = self.job.default_batch_size
        return JobRun(id=UNRECORDED, order=0, recurrence=0, batch_size=size, gpu=gpu, why=why), JobMemory()

    def memory(self) -> JobMemory:
        """Return all that is known of the job now, or was when the history could last be reached."""
        store = self._store
        if store is not None:
            found = self._try(lambda: store.jobs.job_memory(self.job.name), "using what was known before")
            self._memory = found or self._memory
        return self._memory

    def stop(self, run: JobRun) -> str | None:
        """Return why the policy wants the run to end now; None where it should go on, or is not recorded."""
        if run.id == UNRECORDED:
            return None
        return self._searcher.stop(self.job, self.memory(), run)

    def report(self, run: JobRun) -> bool:
        """Store the newest epoch; return whether the run still owns its place."""
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
            self._warn(f"{error.message}; the report is repeated later")
        return True

    def renew(self, run: JobRun) -> bool:
        """Renew the lease; return whether to try again later."""
        store = self._store
        if store is None or run.id == UNRECORDED:
            return False
        try:
            store.jobs.renew(run.id, self.lease_s)
        except (RunOver, NoSuchRun):
            return False
        except StoreError:
            return True  # the store may be back before the lease ends
        return True

    def keep_profile(self, profile: Profile) -> None:
        """Store the profile, if possible."""
        store = self._store
        if store is not None and profile.trials:
            self._try(
                lambda: store.jobs.keep_profile(self.job.name, profile), "the profile is measured again next time"
            )

    def end(self, run: JobRun, outcome: Outcome) -> None:
        """Store how the run ended, in the store or in a file that the next submission takes in."""
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
            store.jobs.record_end(end)
        except (RunOver, NoSuchRun) as error:
            self._warn(error.message)
        except StoreError as error:
            self._save_end(end, store.place, error)

    def _save_end(self, end: RunEnd, place: str, error: StoreError) -> None:
        try:
            path = write_end(end, place, self._folders)
        except StoreError as worse:
            self._warn(worse.message)
        else:
            self._warn(f"{error.message}; how the run ended is kept in {path}")

    def _submitted(self, gpu: JobGpu, replaces: str | None) -> JobRun:
        store = open_store(self._store_url)
        with suppress(StoreError):  # files that cannot be taken in are kept
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

    def _try(self, act: Callable[[], T], consequence: str) -> T | None:
        try:
            return act()
        except StoreError as error:
            self._warn(f"{error.message}; {consequence}")
            return None


PULSES = 3
"""Renewals within one lease: two may fail before the run is lost."""


class LeaseKeeper:
    """Renews a lease in the background until it is stopped or `renew` returns False."""

    def __init__(self, renew: Callable[[], bool], *, lease_s: float) -> None:
        self._renew, self._pause_s = renew, lease_s / PULSES
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="wattune-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            if not self._renew():
                return
