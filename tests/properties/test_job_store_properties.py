"""After any sequence of submissions, reports, ends, redefinitions and expiries the store equals a simple model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from math import isfinite
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from job_store_contract import A_GPU, A_JOB, DAWN
from wattune.core.errors import InputError, StoreError
from wattune.core.job import JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.store.job_records import EpochReported, RunOver
from wattune.store.sql_job_store import JobStore
from wattune.store.sql_store import open_store

names = count()
metrics = st.floats() | st.none() | st.just(0.5)
# Few different values, so that moments often coincide and epochs often repeat.
leases_s = st.sampled_from([10.0, 30.0])
epochs = st.none() | st.integers(-1, 3) | st.just(A_JOB.max_epochs)
endings = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.RUNNING])
costs = st.none() | st.builds(Measurement, st.floats(0, 1e9), st.floats(0, 1e9))


@dataclass
class Replayed:
    """One run in the reference model."""

    id: str
    order: int
    recurrence: int
    batch_size: int
    target: float
    lease_until: datetime
    outcome: Outcome = Outcome.RUNNING
    ended: int | None = None
    replaced: bool = False
    reported: dict[int, float | None] = field(default_factory=dict)
    cost: Measurement | None = None

    def may_go_on(self) -> bool:
        return not self.replaced and self.outcome in (Outcome.RUNNING, Outcome.LOST)

    def metrics(self) -> tuple[float | None, ...]:
        return tuple(self.reported.get(epoch) for epoch in range(1 + max(self.reported, default=-1)))


def plain(metric: float | None) -> float | None:
    return metric if metric is not None and isfinite(metric) else None


def refused(kind: type[Exception], action: Callable[[], object]) -> bool:
    try:
        action()
    except kind:
        return True
    return False


class JobStoreMachine(RuleBasedStateMachine):
    def __init__(self, job_store: JobStore) -> None:
        super().__init__()
        self.job_store = job_store
        self.job = replace(A_JOB, name=f"job {next(names)}")
        self.job_store.define_job(self.job, now=DAWN)
        self.now = DAWN
        self.runs: list[Replayed] = []

    def lapse(self) -> None:
        """Every run whose lease is over is lost, as of the runs submitted by now."""
        for run in self.runs:
            if run.outcome is Outcome.RUNNING and run.lease_until < self.now:
                run.outcome, run.ended = Outcome.LOST, len(self.runs)

    @rule(seconds=st.sampled_from([10, 20, 31]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.lapse()

    @rule(aim=st.sampled_from([0.7, 0.75]), sizes=st.sampled_from([(16, 32, 64), (32, 128)]))
    def redefine(self, aim: float, sizes: tuple[int, ...]) -> None:
        self.job = replace(self.job, target=aim, batch_sizes=sizes)
        self.job_store.define_job(self.job, now=self.now)

    @rule(lease_s=leases_s, data=st.data())
    def submit(self, lease_s: float, data: st.DataObject) -> None:
        size = data.draw(st.sampled_from(self.job.batch_sizes))
        before = data.draw(st.none() | st.sampled_from(self.runs)) if self.runs else None

        def submission() -> JobRun:
            return self.job_store.submit(
                self.job.name,
                A_GPU,
                lambda _job, _memory: Proposal(size, False, ""),
                lease_s=lease_s,
                now=self.now,
                replaces=before and before.id,
            )

        if before is not None and before.outcome is Outcome.REACHED:
            assert refused(StoreError, submission)
            return
        recurrence = len({run.recurrence for run in self.runs})
        if before is not None:
            if before.outcome is Outcome.RUNNING:
                before.outcome, before.ended = Outcome.LOST, len(self.runs)
            before.replaced, recurrence = True, before.recurrence
        lease_until = self.now + timedelta(seconds=lease_s)
        new = Replayed(submission().id, len(self.runs), recurrence, size, self.job.target, lease_until)
        self.runs.append(new)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), metric=metrics, epoch=epochs, lease_s=leases_s, cost=costs)
    def report(
        self, data: st.DataObject, metric: float | None, epoch: int | None, lease_s: float, cost: Measurement | None
    ) -> None:
        run = data.draw(st.sampled_from(self.runs))

        def telling() -> JobRun:
            return self.job_store.report(run.id, metric=metric, epoch=epoch, cost=cost, lease_s=lease_s, now=self.now)

        following = 1 + max(run.reported, default=-1)
        place = following if epoch is None else epoch
        if not run.may_go_on():
            assert refused(RunOver, telling)
        elif place in run.reported and run.reported[place] != plain(metric):
            assert refused(EpochReported, telling)
        elif place != following and not 0 <= place < max(following, self.job.max_epochs):
            assert refused(InputError, telling)
        else:
            telling()
            run.outcome, run.ended, run.lease_until = Outcome.RUNNING, None, self.now + timedelta(seconds=lease_s)
            run.reported.setdefault(place, plain(metric))
            if place >= following and cost is not None:
                run.cost = cost

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), lease_s=leases_s)
    def renew(self, data: st.DataObject, lease_s: float) -> None:
        run = data.draw(st.sampled_from(self.runs))
        if not run.may_go_on():
            assert refused(RunOver, lambda: self.job_store.renew(run.id, lease_s, now=self.now))
            return
        self.job_store.renew(run.id, lease_s, now=self.now)
        run.outcome, run.ended, run.lease_until = Outcome.RUNNING, None, self.now + timedelta(seconds=lease_s)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), outcome=endings, reported=st.lists(metrics, max_size=4), cost=costs)
    def end(
        self, data: st.DataObject, outcome: Outcome, reported: list[float | None], cost: Measurement | None
    ) -> None:
        run = data.draw(st.sampled_from(self.runs))

        def ending() -> JobRun:
            return self.job_store.end_run(run.id, outcome, metrics=reported, cost=cost, now=self.now)

        if run.outcome is outcome:
            ending()
        elif not run.may_go_on():
            assert refused(RunOver, ending)
        else:
            ending()
            run.outcome, run.ended = outcome, len(self.runs)
            run.reported = {epoch: plain(metric) for epoch, metric in enumerate(reported)} | run.reported
            run.cost = cost or run.cost

    @invariant()
    def the_store_is_the_replay(self) -> None:
        records = self.job_store.job_runs(self.job.name, now=self.now)[::-1]
        assert [record.run.order for record in records] == list(range(len(self.runs)))
        assert [self.observed(record.run) for record in records] == [self.replayed(run) for run in self.runs]
        comparable = [run.id for run in self.runs if run.target == self.job.target]
        assert [run.id for run in self.job_store.job_memory(self.job.name, now=self.now).runs] == comparable
        assert [record.run.id for record in records if record.comparable] == comparable
        assert [record.replaced for record in records] == [run.replaced for run in self.runs]

    @invariant()
    def a_run_has_ended_or_is_running(self) -> None:
        for record in self.job_store.job_runs(self.job.name, now=self.now):
            running = record.run.outcome is Outcome.RUNNING
            assert running == (record.run.ended is None) == (record.ended_at is None)
            assert not running or record.lease_until >= self.now

    def observed(self, run: JobRun) -> tuple[object, ...]:
        return (run.id, run.recurrence, run.batch_size, run.outcome, run.ended, run.metrics, run.cost)

    def replayed(self, run: Replayed) -> tuple[object, ...]:
        return (run.id, run.recurrence, run.batch_size, run.outcome, run.ended, run.metrics(), run.cost)


def test_the_store_is_a_replay_of_what_was_written(tmp_path: Path) -> None:
    job_store = open_store(str(tmp_path / "history.db")).jobs
    few = settings(max_examples=25, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(lambda: JobStoreMachine(job_store), settings=few)  # type: ignore[arg-type]
