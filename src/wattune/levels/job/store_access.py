"""Access of a running job to its history; neither a failure nor a delay of the store reaches the training.

Everything but the submission is posted to a thread. Reports that fail are repeated by the end of the run, which has all
metrics. An end that fails, and the whole run where it could not be submitted, is saved in a file, which the next
submission takes in.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

from wattune.core.errors import StoreError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.levels.job.policies import JobSearcher
from wattune.store.fallback import fallback_folders, recover, write_run
from wattune.store.job_records import EndedRun, NoSuchRun, RunOver, storable_gpu
from wattune.store.sql_store import Store
from wattune.store.worker import PATIENCE_S, StoreWorker

LEASE_S = 900.0
"""A run without a sign of life for a quarter of an hour is lost; a thread renews the lease long before."""

MOST_WAITING = 8
"""Reports that wait for the store; more are left to the end of the run."""

Warn = Callable[[str], None]


class JobStoreAccess:
    """Submits, reports and ends the runs of one job."""

    def __init__(
        self,
        job: Job,
        searcher: JobSearcher,
        *,
        worker: StoreWorker,
        state_dir: Path,
        warn: Warn,
        lease_s: float = LEASE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.job, self.lease_s = job, lease_s
        self.worker, self._searcher, self._warn, self._patience_s = worker, searcher, warn, patience_s
        self._folders = fallback_folders(state_dir)
        self._memory = JobMemory()
        self._replaces: str | None = None
        self._submitted = True
        """False while the store does not have the present run."""
        self._over = False
        """True once another run has taken the place of the present one."""
        self._waiting: list[tuple[Future[None], str]] = []
        """Calls whose result is not known yet, with the consequence of a failure."""
        self._ending: tuple[EndedRun, Future[bool]] | None = None
        self._warned: str | None = None

    def submit(self, gpu: JobGpu, *, replaces: str | None = None) -> tuple[JobRun, JobMemory]:
        """Submit the next run of the job; return it and what was known when it was chosen.

        Where the history cannot be reached in time, it is a run at the default batch size, which is stored when it has
        ended.
        """
        self._over, self._submitted, self._replaces = False, True, replaces
        run_id, given_up = str(uuid.uuid4()), Event()
        try:
            run = self.worker.call(
                lambda store: self._submit(store, gpu, run_id=run_id, replaces=replaces, given_up=given_up)
            )
            return run, self._memory
        except StoreError as error:
            given_up.set()
            self._tell(
                f"{error.message}; this run has the default batch size {self.job.default_batch_size}, without the "
                "history of the job, and is stored when it has ended"
            )
        self._memory, self._submitted = JobMemory(), False
        return self._default_run(gpu, run_id), JobMemory()

    def stop(self, run: JobRun) -> str | None:
        """Return why the policy wants the run to end now; None where it should go on, or its history is not known."""
        return self._searcher.stop(self.job, self._memory, run) if self._submitted else None

    def report(self, run: JobRun) -> bool:
        """Store the newest epoch, soon; return whether the run still owns its place, as far as is known."""
        if self._submitted:
            self._post(lambda store: self._reported(store, run), "the report is repeated later")
        return not self._over

    def renew(self, run: JobRun) -> bool:
        """Renew the lease and wait for it; return whether to try again later."""
        if not self._submitted:
            return False
        try:
            self.worker.post(lambda store: store.jobs.renew(run.id, self.lease_s)).result(self.lease_s)
        except (RunOver, NoSuchRun):
            return False
        except (StoreError, TimeoutError):
            return True  # the store may be back before the lease ends
        return True

    def keep_profile(self, profile: Profile) -> None:
        """Store the profile, if possible."""
        name = self.job.name
        if profile.trials and self._submitted:
            self._post(lambda store: store.jobs.keep_profile(name, profile), "the profile is measured again next time")

    def end(self, run: JobRun, outcome: Outcome) -> None:
        """Store how the run ended, soon; `finish` waits for it."""
        ended = EndedRun(
            job=self.job,
            run=replace(run, outcome=outcome),
            ended_at=datetime.now(UTC),
            submitted=self._submitted,
            replaces=self._replaces,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        self._ending = (ended, self.worker.post(lambda store: store.jobs.add_ended_run(ended)))
        if not self._waiting:
            wait([self._ending[1]], self._patience_s)

    def finish(self) -> None:
        """Wait until the end of the run is stored, a few seconds at most; then save it in a file.

        The next submission takes it in from there.
        """
        if self._ending is None:
            return
        (record, future), self._ending = self._ending, None
        try:
            self.worker.result(future, wait_s=self.worker.rest_s)
        except (RunOver, NoSuchRun) as error:
            self._tell(error.message)
        except StoreError as error:
            self._save(record, error.message)
        except BaseException:  # a signal while waiting
            self._save(record, "the store was not waited for")
            raise
        finally:
            self._settle()

    def _submit(self, store: Store, gpu: JobGpu, *, run_id: str, replaces: str | None, given_up: Event) -> JobRun:
        with suppress(StoreError):  # files that cannot be taken in are kept
            recover(store, self._folders, meant_for=store.place)
        store.jobs.define_job(self.job)

        def decide(job: Job, memory: JobMemory) -> Proposal:
            with self.worker.computing():
                proposal = self._searcher.propose(job, memory, gpu)
            if given_up.is_set():
                raise StoreError("the run has begun without the store")
            self._memory = memory
            return proposal

        return store.jobs.submit(self.job.name, gpu, decide, lease_s=self.lease_s, replaces=replaces, run_id=run_id)

    def _default_run(self, gpu: JobGpu, run_id: str) -> JobRun:
        """Return a run at the default batch size that the store gets when it has ended."""
        return JobRun(
            id=run_id,
            order=0,
            recurrence=0,
            batch_size=self.job.default_batch_size,
            gpu=storable_gpu(gpu),
            why="the default, since the history of the job cannot be reached",
            submitted_at=datetime.now(UTC),
        )

    def _reported(self, store: Store, run: JobRun) -> None:
        """Write the newest epoch and read what is known of the job by now."""
        store.jobs.report(
            run.id,
            metric=run.metrics[-1],
            epoch=run.epochs - 1,
            cost=run.cost,
            profiling=run.profiling,
            setting=run.setting,
            lease_s=self.lease_s,
        )
        self._memory = store.jobs.job_memory(self.job.name)

    def _post(self, act: Callable[[Store], None], consequence: str) -> None:
        """Post a call, and wait a moment for its result where no earlier one is late."""
        is_late = bool(self._waiting)
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((self.worker.post(act), consequence))
        if not is_late:
            wait([self._waiting[-1][0]], self._patience_s)
        self._settle()

    def _settle(self) -> None:
        """Handle the calls that have been answered. Warnings come from here only, in the thread of the program."""
        answered = [(future, consequence) for future, consequence in self._waiting if future.done()]
        self._waiting = [pair for pair in self._waiting if pair not in answered]
        for future, consequence in answered:
            try:
                future.result()
            except RunOver as error:
                self._over = True
                self._tell(error.message)
            except StoreError as error:
                self._tell(f"{error.message}; {consequence}")
            except (Exception, CancelledError) as error:
                self._tell(f"{type(error).__name__}: {error}; {consequence}")

    def _save(self, ended: EndedRun, reason: str) -> None:
        try:
            path = write_run(ended, self.worker.place, self._folders)
        except StoreError as worse:
            self._tell(worse.message)
        else:
            self._tell(f"{reason}; how the run ended is kept in {path}, and is stored by the next run of the job")

    def _tell(self, text: str) -> None:
        """Warn, but not of the same again and again."""
        if text != self._warned:
            self._warn(text)
        self._warned = text


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
        # A renewal that waits for the store is left alone: it changes nothing once the run has ended.
        self._ended.set()

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            if not self._renew():
                return
