"""The tests of stores about recurring jobs; a part of `StoreContract`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from wattune.core.errors import InputError, StoreError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
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


class JobStoreContract:
    """The tests of definitions, submissions, profiles and lists, and of reports, leases and ends of runs."""

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

    # definitions

    def test_a_job_is_stored_as_it_was_defined(self, store_url: str, job_store: JobStore) -> None:
        assert job_store.job(A_JOB.name) == A_JOB
        assert self.open(store_url).jobs.job(A_JOB.name) == A_JOB
        assert job_store.job_memory(A_JOB.name) == JobMemory()
        assert job_store.job_runs(A_JOB.name) == ()

    def test_an_unknown_job_is_refused_with_the_nearest_name(self, job_store: JobStore) -> None:
        with pytest.raises(StoreError, match="there is no job 'nightly-brt'") as caught:
            job_store.job("nightly-brt")
        assert caught.value.hint == "did you mean nightly-bert?"
        for ask in (job_store.job_memory, job_store.job_runs, job_store.forget_job):
            with pytest.raises(StoreError, match="there is no job"):
                ask("resnet")
        with pytest.raises(StoreError, match="there is no job"):
            job_store.submit("resnet", A_GPU, size(32), lease_s=LEASE_S)
        with pytest.raises(StoreError, match="there is no job"):
            job_store.keep_profile("resnet", A_PROFILE)

    def test_the_same_definition_again_changes_nothing(self, job_store: JobStore) -> None:
        job_store.define_job(A_JOB, now=minutes(5))
        (summary,) = job_store.jobs()
        assert (summary.definition, summary.defined_at) == (1, DAWN)

    def test_other_sizes_and_another_objective_keep_the_memory(self, job_store: JobStore) -> None:
        run = submitted(job_store, batch_size=16)
        changed = replace(A_JOB, batch_sizes=(32, 128), max_epochs=30, objective="energy:5%")
        assert job_store.define_job(changed) == job_store.job(A_JOB.name) == changed
        assert job_store.job_memory(A_JOB.name, now=DAWN).runs == (run,)
        (record,) = job_store.job_runs(A_JOB.name, now=DAWN)
        assert (record.definition, record.comparable) == (1, True)
        assert job_store.jobs()[0].definition == 2

    def test_another_target_starts_a_new_memory_and_keeps_all_runs(self, job_store: JobStore) -> None:
        old = submitted(job_store)
        harder = replace(A_JOB, target=0.8)
        job_store.define_job(harder)
        assert job_store.job_memory(A_JOB.name, now=DAWN).runs == ()
        new = submitted(job_store)
        assert (new.order, new.recurrence) == (1, 1)
        assert job_store.job_memory(A_JOB.name, now=DAWN).runs == (new,)
        newest, oldest = job_store.job_runs(A_JOB.name, now=DAWN)
        assert (newest.run, newest.comparable, newest.definition) == (new, True, 2)
        assert (oldest.run, oldest.comparable, oldest.definition) == (old, False, 1)
        job_store.define_job(replace(harder, target=A_JOB.target, max_epochs=99))
        assert job_store.job_memory(A_JOB.name, now=DAWN).runs == (old,)
        job_store.define_job(replace(A_JOB, higher_is_better=False))
        assert job_store.job_memory(A_JOB.name, now=DAWN).runs == ()
        assert len(job_store.job_runs(A_JOB.name)) == 2

    # submission

    def test_a_submitted_run_is_running(self, job_store: JobStore) -> None:
        decide = size(64, "to see what it costs")
        run = job_store.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=minutes(1))
        assert (run.order, run.recurrence, run.batch_size, run.gpu) == (0, 0, 64, A_GPU)
        assert (run.outcome, run.why, run.submitted_at) == (Outcome.RUNNING, "to see what it costs", minutes(1))
        assert (run.metrics, run.cost, run.profiling, run.setting, run.ended) == ((), None, None, None, None)
        record = job_store.job_run(run.id, now=minutes(1))
        assert record == job_store.job_runs(A_JOB.name, now=minutes(1))[0]
        assert record.run == run
        assert record.lease_until == minutes(11)
        assert record.host
        assert record.pid > 0

    def test_a_decision_gets_all_earlier_runs(self, job_store: JobStore) -> None:
        calls: list[tuple[Job, JobMemory]] = []

        def decide(job: Job, memory: JobMemory) -> Proposal:
            calls.append((job, memory))
            return Proposal(16, True, "")

        first, second = submitted(job_store), submitted(job_store, batch_size=64)
        third = job_store.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=DAWN)
        assert calls == [(A_JOB, JobMemory((first, second)))]
        assert third.exploring
        assert [run.order for run in job_store.job_memory(A_JOB.name).runs] == [0, 1, 2]

    def test_a_failed_decision_stores_no_run(self, job_store: JobStore) -> None:
        def fail(_job: Job, _memory: JobMemory) -> Proposal:
            raise RuntimeError("no idea")

        with pytest.raises(RuntimeError, match="no idea"):
            job_store.submit(A_JOB.name, A_GPU, fail, lease_s=LEASE_S)
        with pytest.raises(InputError, match="batch size 48 was proposed"):
            submitted(job_store, batch_size=48)
        assert job_store.job_runs(A_JOB.name) == ()
        assert submitted(job_store).order == 0

    @pytest.mark.parametrize("lease_s", [0.0, -1.0, nan, inf])
    def test_an_invalid_lease_is_refused(self, job_store: JobStore, lease_s: float) -> None:
        with pytest.raises(InputError, match="a lease of"):
            job_store.submit(A_JOB.name, A_GPU, size(32), lease_s=lease_s)
        assert job_store.job_runs(A_JOB.name) == ()

    def test_a_replacing_run_belongs_to_the_same_recurrence(self, job_store: JobStore) -> None:
        first = submitted(job_store)
        job_store.end_run(first.id, Outcome.STOPPED, now=DAWN)
        second = submitted(job_store, batch_size=16, replaces=first.id)
        third = submitted(job_store)
        assert [run.recurrence for run in (first, second, third)] == [0, 0, 1]
        assert [run.order for run in (first, second, third)] == [0, 1, 2]
        newest, middle, oldest = job_store.job_runs(A_JOB.name, now=DAWN)
        assert (newest.replaces, middle.replaces, oldest.replaces) == (None, first.id, None)
        assert (newest.replaced, middle.replaced, oldest.replaced) == (False, False, True)

    def test_what_cannot_be_replaced_is_refused(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        job_store.end_run(run.id, Outcome.REACHED, now=DAWN)
        with pytest.raises(StoreError, match="reached its target"):
            submitted(job_store, replaces=run.id)
        job_store.define_job(replace(A_JOB, name="other"))
        with pytest.raises(NoSuchRun):
            job_store.submit("other", A_GPU, size(32), lease_s=LEASE_S, replaces=run.id)
        with pytest.raises(NoSuchRun):
            submitted(job_store, replaces="nobody")
        assert len(job_store.job_runs(A_JOB.name)) == 1

    # profiles

    def test_profiles_are_stored(self, job_store: JobStore) -> None:
        job_store.keep_profile(A_JOB.name, A_PROFILE)
        memory = job_store.job_memory(A_JOB.name)
        assert memory.profiles == (A_PROFILE,)
        assert memory.profile(A_GPU, 32) == A_PROFILE
        assert memory.profile(A_GPU, 16) is None

    def test_the_newest_profile_of_a_gpu_and_size_is_used(self, job_store: JobStore) -> None:
        others = [
            replace(A_PROFILE, batch_size=16),
            replace(A_PROFILE, gpu=replace(A_GPU, count=4)),
            replace(A_PROFILE, gpu=replace(A_GPU, simulated=False)),
            replace(A_PROFILE, gpu=replace(A_GPU, name="V100")),
        ]
        for profile in (A_PROFILE, *others):
            job_store.keep_profile(A_JOB.name, profile)
        newer = replace(A_PROFILE, trials=A_PROFILE.trials[:1])
        job_store.keep_profile(A_JOB.name, newer)
        memory = job_store.job_memory(A_JOB.name)
        assert len(memory.profiles) == 5
        assert memory.profile(A_GPU, 32) == newer
        for profile in others:
            assert memory.profile(profile.gpu, profile.batch_size) == profile

    def test_an_empty_profile_is_refused(self, job_store: JobStore) -> None:
        with pytest.raises(InputError, match="makes no sense"):
            job_store.keep_profile(A_JOB.name, replace(A_PROFILE, trials=()))

    # lists

    def test_job_summaries(self, job_store: JobStore) -> None:
        job_store.define_job(replace(A_JOB, name="a job"), now=minutes(1))
        for simulated, energy_j in ((True, 100.0), (False, 30.0), (True, 50.0)):
            gpu = replace(A_GPU, simulated=simulated)
            run = job_store.submit(A_JOB.name, gpu, size(32), lease_s=LEASE_S, now=minutes(2))
            job_store.end_run(run.id, Outcome.REACHED, cost=Measurement(1.0, energy_j), now=minutes(3))
        submitted(job_store, minute=4)
        fresh, used = job_store.jobs(now=minutes(4))
        assert (fresh.name, fresh.job, fresh.runs, fresh.running) == ("a job", replace(A_JOB, name="a job"), 0, 0)
        assert (fresh.last_run_at, fresh.energy_j, fresh.simulated_energy_j, fresh.simulated) == (None,) * 3 + (False,)
        assert (used.name, used.runs, used.running, used.recurrences) == (A_JOB.name, 4, 1, 4)
        assert (used.last_run_at, used.simulated) == (minutes(4), True)
        assert (used.energy_j, used.simulated_energy_j, used.time_s, used.simulated_time_s) == (30.0, 150.0, 1.0, 2.0)

    def test_runs_of_a_job_come_newest_first(self, job_store: JobStore) -> None:
        runs = [submitted(job_store, minute=minute) for minute in range(4)]
        for run in runs:
            job_store.report(run.id, metric=run.order / 10, lease_s=LEASE_S, now=minutes(4))
        found = job_store.job_runs(A_JOB.name, limit=3, now=minutes(4))
        assert [(record.run.order, record.run.metrics) for record in found] == [(3, (0.3,)), (2, (0.2,)), (1, (0.1,))]

    def test_forgetting_a_job_deletes_everything_of_it(self, job_store: JobStore) -> None:
        job_store.define_job(replace(A_JOB, name="other"))
        other = job_store.submit("other", A_GPU, size(32), lease_s=LEASE_S, now=DAWN)
        run = submitted(job_store)
        job_store.report(run.id, metric=0.5, lease_s=LEASE_S, now=DAWN)
        job_store.keep_profile(A_JOB.name, A_PROFILE)
        assert job_store.forget_job(A_JOB.name, now=DAWN).runs == 1
        assert [summary.name for summary in job_store.jobs()] == ["other"]
        with pytest.raises(NoSuchRun):
            job_store.report(run.id, metric=0.6, lease_s=LEASE_S)
        job_store.define_job(A_JOB)
        assert job_store.job_memory(A_JOB.name) == JobMemory()
        assert submitted(job_store).order == 0
        assert job_store.job_run(other.id, now=DAWN).run == other

    def test_names_of_any_kind_and_length_are_stored(self, job_store: JobStore) -> None:
        job = replace(A_JOB, name='日本\'s "job" %_;--\n' * 9)
        gpu = replace(A_GPU, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb " * 40)
        job_store.define_job(job)
        run = job_store.submit(job.name, gpu, size(32, "x" * 5000), lease_s=LEASE_S, now=DAWN)
        assert job_store.job(job.name) == job
        assert job_store.job_memory(job.name, now=DAWN).runs == (run,)
        assert (run.gpu, run.why) == (gpu, "x" * 5000)
        repaired = job_store.define_job(replace(A_JOB, name="a\0b\ud800"))
        assert job_store.job(repaired.name) == job_store.job("a\0b\ud800") == repaired

    # reports

    def test_reports_add_up(self, job_store: JobStore) -> None:
        run = submitted(job_store)
        job_store.report(run.id, metric=0.5, cost=Measurement(10.0, 100.0), lease_s=LEASE_S, now=minutes(1))
        cost, profiling = Measurement(20.0, 190.0, 0.2, 2.0), Measurement(3.0, 30.0, 0.1, 1.0)
        limit = Setting(power_limit_w=250.0)
        now = job_store.report(
            run.id, metric=0.6, cost=cost, profiling=profiling, setting=limit, lease_s=LEASE_S, now=minutes(2)
        )
        assert (now.metrics, now.cost, now.profiling, now.setting) == ((0.5, 0.6), cost, profiling, limit)
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
        more = Measurement(9.0, 9.0)
        assert job_store.report(run.id, metric=0.5, epoch=0, cost=more, lease_s=LEASE_S, now=minutes(1)) == first
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
