"""The tests of stores about runs of recurring jobs; a part of `StoreContract`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.job_records import EpochReported, NoSuchRun, RunOver
from wattune.store.sql_job_store import Decide, JobStore
from wattune.store.sql_store import Store, open_store

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
    """Return the time so many minutes after `DAWN`."""
    return DAWN + timedelta(minutes=count)


def size(batch_size: int, why: str = "as asked") -> Decide:
    """Return a decision for a batch size, whatever is known."""
    return lambda _job, _memory: Proposal(batch_size, False, why)


def submitted(job_store: JobStore, *, minute: float = 0, batch_size: int = 32, replaces: str | None = None) -> JobRun:
    """Submit a run of `A_JOB` on `A_GPU`, some minutes after `DAWN`, with a lease of ten minutes."""
    now = minutes(minute)
    return job_store.submit(A_JOB.name, A_GPU, size(batch_size), lease_s=LEASE_S, now=now, replaces=replaces)


def changes(job_store: JobStore, run_id: str, *, now: datetime | None = None) -> tuple[Callable[[], object], ...]:
    """Return every way to change a run."""
    return (
        lambda: job_store.report(run_id, metric=0.9, lease_s=LEASE_S, now=now),
        lambda: job_store.renew(run_id, LEASE_S, now=now),
        lambda: job_store.end_run(run_id, Outcome.REACHED, now=now),
    )


class JobRunContract:
    """The tests of reports, leases and ends."""

    def open(self, url: str) -> Store:
        """Open the store at this URL."""
        return open_store(url)

    @pytest.fixture
    def store(self, store_url: str) -> Store:
        """Return a new store."""
        return self.open(store_url)

    @pytest.fixture
    def job_store(self, store: Store) -> JobStore:
        """Return the job store of a new store in which `A_JOB` is defined."""
        store.jobs.define_job(A_JOB, now=DAWN)
        return store.jobs

    # reports

    def test_reports_add_up(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        job_store.report(run.id, metric=0.5, cost=Measurement(10.0, 100.0), lease_s=LEASE_S, now=minutes(1))
        profiling, limit = Measurement(3.0, 30.0, 0.1, 1.0), Setting(power_limit_w=250.0)
        now = job_store.report(
            run.id,
            metric=0.6,
            cost=Measurement(20.0, 190.0, 0.2, 2.0),
            profiling=profiling,
            setting=limit,
            lease_s=LEASE_S,
            now=minutes(2),
        )
        assert (now.metrics, now.cost) == ((0.5, 0.6), Measurement(20.0, 190.0, 0.2, 2.0))
        assert (now.profiling, now.setting) == (profiling, limit)
        later = job_store.report(run.id, metric=0.7, lease_s=LEASE_S, now=minutes(3))
        assert later == replace(now, metrics=(0.5, 0.6, 0.7))
        assert job_store.job_run(run.id, now=minutes(3)).lease_until == minutes(13)
        assert job_store.job_memory(A_JOB.name, now=minutes(3)).runs == (later,)

    def test_the_driver_default_is_a_setting(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        assert job_store.report(run.id, metric=0.5, lease_s=LEASE_S, now=DAWN).setting is None
        assert job_store.report(run.id, metric=0.5, setting=Setting(), lease_s=LEASE_S, now=DAWN).setting == Setting()
        assert job_store.job_run(run.id).run.setting == Setting()

    def test_metrics_that_are_not_finite_are_none(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        for metric in (nan, inf, -inf, None):
            job_store.report(run.id, metric=metric, lease_s=LEASE_S, now=DAWN)
        assert job_store.job_run(run.id, now=DAWN).run.metrics == (None, None, None, None)
        with pytest.raises(InputError, match="is no metric"):
            job_store.report(run.id, metric="good", lease_s=LEASE_S, now=DAWN)  # type: ignore[arg-type]

    def test_an_epoch_is_stored_once(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        first = job_store.report(run.id, metric=0.5, epoch=0, cost=Measurement(1.0, 2.0), lease_s=LEASE_S, now=DAWN)
        again = job_store.report(
            run.id, metric=0.5, epoch=0, cost=Measurement(9.0, 9.0), lease_s=LEASE_S, now=minutes(1)
        )
        assert again == first
        for other in (0.6, nan):
            with pytest.raises(EpochReported, match=r"epoch 0 was reported before, as 0\.5"):
                job_store.report(run.id, metric=other, epoch=0, lease_s=LEASE_S, now=minutes(2))
        record = job_store.job_run(run.id, now=minutes(2))
        assert (record.run, record.lease_until) == (first, minutes(11))

    def test_a_skipped_epoch_is_none_until_it_is_reported_late(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        job_store.report(run.id, metric=0.7, epoch=2, cost=Measurement(30.0, 300.0), lease_s=LEASE_S, now=DAWN)
        assert job_store.job_run(run.id, now=DAWN).run.metrics == (None, None, 0.7)
        late = job_store.report(run.id, metric=0.5, epoch=0, cost=Measurement(10.0, 100.0), lease_s=LEASE_S, now=DAWN)
        assert (late.metrics, late.cost) == ((0.5, None, 0.7), Measurement(30.0, 300.0))

    @pytest.mark.parametrize("epoch", [-1, 20, 10**12])
    def test_an_impossible_epoch_is_refused(self, job_store: JobStore, epoch: int) -> None:
        run = submitted(job_store)
        with pytest.raises(InputError, match="there is no epoch"):
            job_store.report(run.id, metric=0.5, epoch=epoch, lease_s=LEASE_S, now=DAWN)
        assert job_store.job_run(run.id, now=DAWN).run == run

    def test_an_unknown_run_is_refused(self, job_store: JobStore) -> None:
        asks: tuple[Callable[[], object], ...] = (lambda: job_store.job_run("nobody"), *changes(job_store, "nobody"))
        for ask in asks:
            with pytest.raises(NoSuchRun, match="there is no run 'nobody'") as caught:
                ask()
            assert caught.value.hint

    # leases

    def test_a_run_whose_lease_is_over_is_lost(self, job_store: JobStore) -> None:
        silent = submitted(job_store)
        assert job_store.job_run(silent.id, now=minutes(10)).run.outcome is Outcome.RUNNING
        lost = job_store.job_run(silent.id, now=minutes(10.1))
        assert (lost.run.outcome, lost.run.ended, lost.ended_at) == (Outcome.LOST, 1, minutes(10))
        assert job_store.jobs(now=minutes(10))[0].running == 1
        assert job_store.jobs(now=minutes(10.1))[0].running == 0
        submitted(job_store, minute=11)
        submitted(job_store, minute=12)
        assert job_store.job_run(silent.id, now=minutes(12)) == lost

    def test_a_lost_run_that_reports_is_running_again(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        submitted(job_store, minute=11)
        back = job_store.report(run.id, metric=0.5, lease_s=LEASE_S, now=minutes(12))
        assert (back.outcome, back.ended, back.metrics) == (Outcome.RUNNING, None, (0.5,))
        again = job_store.renew(run.id, LEASE_S, now=minutes(30))
        assert (again.outcome, again.metrics) == (Outcome.RUNNING, (0.5,))
        assert job_store.job_run(run.id, now=minutes(40)).run == again
        assert job_store.job_run(run.id, now=minutes(40)).ended_at is None

    def test_a_lost_run_may_still_end_well(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        submitted(job_store, minute=11)
        assert job_store.end_run(run.id, Outcome.REACHED, now=minutes(12)).outcome is Outcome.REACHED
        assert job_store.job_run(run.id).run.ended == 2

    def test_a_replaced_run_stays_over(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        submitted(job_store, minute=1, replaces=run.id)
        over = job_store.job_run(run.id, now=minutes(1))
        assert (over.run.outcome, over.ended_at) == (Outcome.LOST, minutes(1))
        for change in changes(job_store, run.id, now=minutes(2)):
            with pytest.raises(RunOver, match="another run replaced it"):
                change()
        assert job_store.job_run(run.id, now=minutes(2)) == over

    # ends

    def test_the_first_end_is_final(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        submitted(job_store)
        over = job_store.end_run(run.id, Outcome.MISSED, cost=Measurement(50.0, 500.0), now=minutes(1))
        assert (over.outcome, over.ended, over.cost) == (Outcome.MISSED, 2, Measurement(50.0, 500.0))
        assert job_store.end_run(run.id, Outcome.MISSED, cost=Measurement(9.0, 9.0), now=minutes(2)) == over
        for change in changes(job_store, run.id, now=minutes(2)):
            with pytest.raises(RunOver, match="it ended as missed") as caught:
                change()
            assert caught.value.hint
        assert job_store.job_run(run.id).run == over
        assert job_store.job_run(run.id).ended_at == minutes(1)

    def test_running_is_no_ending(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        with pytest.raises(InputError, match="running is no ending"):
            job_store.end_run(run.id, Outcome.RUNNING, now=DAWN)

    def test_an_end_adds_epochs_that_were_never_reported(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        job_store.report(run.id, metric=0.5, epoch=1, lease_s=LEASE_S, now=DAWN)
        over = job_store.end_run(run.id, Outcome.REACHED, metrics=(0.3, 0.4, nan, 0.8), now=DAWN)
        assert over.metrics == (0.3, 0.5, None, 0.8)
