"""Runs of a recurring job on simulated GPUs in virtual time, for tests of what ties them together."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.job import Job, Proposal
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.job.options import JobKnob
from wattune.levels.job.session import RecurringRun
from wattune.levels.job.store_access import JobStoreAccess
from wattune.physics.catalog import load_model
from wattune.store.worker import StoreWorker
from wattune.workloads.catalog import make_workload

JOB = Job(name="nightly", batch_sizes=(32, 64, 128), default_batch_size=64, target=0.75, max_epochs=12)


@dataclass(frozen=True)
class Stubborn:
    """A searcher that always wants the same, and stops a run after so many epochs."""

    batch_size: int = 64
    patience: int | None = None
    name: str = "stubborn"

    def propose(self, job, memory, gpu):
        return Proposal(self.batch_size, exploring=False, why="always the same")

    def stop(self, job, memory, run):
        hopeless = self.patience is not None and run.epochs >= self.patience
        return "it cannot win any more" if hopeless else None


def gpu_of(name="a100"):
    return SimulatedGpu(load_model(name))


class Jobs:
    """A store, and sessions of a job on it; `warnings` are the problems that stopped nothing."""

    def __init__(self, folder):
        self.folder = folder
        self.store_url = f"sqlite:///{folder}/history.db"
        self.warnings = []

    @property
    def job_store(self):
        from wattune.store.sql_store import open_store

        return open_store(self.store_url).jobs

    def store_access(self, job=JOB, searcher=None, **changes):
        where = {"state_dir": self.folder / "state", "warn": self.warnings.append, "patience_s": 60.0}
        worker = StoreWorker(changes.pop("store_url", self.store_url), wait_s=changes.pop("wait_s", 60.0))
        return JobStoreAccess(job, searcher or Stubborn(), worker=worker, **(where | changes))

    def session(self, *gpus, job=JOB, searcher=None, store_access=None, knob=JobKnob.POWER_LIMIT, ranks=None):
        return RecurringRun(
            job,
            gpus or (gpu_of(),),
            store_access=store_access or self.store_access(job, searcher),
            knob=knob,
            ranks=ranks,
            warn=self.warnings.append,
        )


def train(session, *, steps, workload=None):
    """Run an epoch of so many iterations on all GPUs of the session."""
    workload = workload or make_workload(f"resnet50:{session.run.batch_size}")
    for _ in range(steps):
        for gpu in session.gpus:
            gpu.run(workload)
        session.step()
