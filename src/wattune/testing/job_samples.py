"""A job, a GPU and a profile to test stores of recurring jobs with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from wattune.core.job import Job, JobGpu, JobRun, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.trial import Trial
from wattune.store.job_book import Decide, JobBook

DAWN = datetime(2025, 3, 1, 6, tzinfo=UTC)
LEASE_S = 600.0
A_JOB = Job(name="nightly-bert", batch_sizes=(16, 32, 64), default_batch_size=32, target=0.75, max_epochs=20)
A_GPU = JobGpu(name="NVIDIA A100-SXM4-80GB", simulated=True, max_power_w=400.0)
A_PROFILE = Profile(
    gpu=A_GPU,
    batch_size=32,
    trials=(
        Trial(Setting(power_limit_w=400.0), Measurement(100.0, 38_000.0, 0.5, 200.0)),
        Trial(Setting(1410, 1593), Measurement(101.0, 36_000.0)),
        Trial(Setting(), Measurement(99.5, 38_500.25)),
    ),
)


def minutes(count: float) -> datetime:
    """So many minutes after dawn."""
    return DAWN + timedelta(minutes=count)


def size(batch_size: int, why: str = "as told") -> Decide:
    """A decision for a batch size, whatever is known."""
    return lambda _job, _memory: Proposal(batch_size, False, why)


def submitted(book: JobBook, *, minute: float = 0, batch_size: int = 32, replaces: str | None = None) -> JobRun:
    """A run of `A_JOB` on `A_GPU`, submitted some minutes after dawn with a lease of ten."""
    now = minutes(minute)
    return book.submit(A_JOB.name, A_GPU, size(batch_size), lease_s=LEASE_S, now=now, replaces=replaces)
