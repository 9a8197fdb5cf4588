"""How many statements a call costs, and what is locked while a policy decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from job_store_contract import A_GPU, A_JOB, DAWN, LEASE_S, minutes, size, submitted
from store_contract import a_run
from wattune.control.recall import load_memory
from wattune.core.job import Job, JobMemory, Outcome, Proposal
from wattune.store.sql_store import Store, open_store

Counted = Callable[[Callable[[], object]], list[str]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "history.db"))


@pytest.fixture
def selects() -> Counted:
    """Returns the statements of a call that read or write rows."""

    def counted(call: Callable[[], object]) -> list[str]:
        statements: list[str] = []

        def note(*execution: object) -> None:
            statement = str(execution[2])
            if not statement.startswith(("BEGIN", "PRAGMA")):
                statements.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        try:
            call()
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        return statements

    return counted


def test_a_job_among_100_is_found_by_one_statement(store: Store, selects: Counted) -> None:
    for number in range(100):
        store.jobs.define_job(replace(A_JOB, name=f"job {number}"), now=DAWN)
    store.jobs.define_job(replace(A_JOB, name="job 7", target=0.9), now=minutes(1))
    assert store.jobs.find_job("job 7") == replace(A_JOB, name="job 7", target=0.9)
    assert store.jobs.find_job("job") is None
    assert len(selects(lambda: store.jobs.find_job("job 7"))) == 1
    assert len(store.jobs.jobs()) == 100
    assert len(selects(store.jobs.jobs)) == 2


def test_the_costs_in_a_list_of_jobs_are_those_of_comparable_runs(store: Store) -> None:
    store.jobs.define_job(A_JOB, now=DAWN)
    submitted(store.jobs)
    store.jobs.define_job(replace(A_JOB, target=0.5), now=DAWN)
    run = submitted(store.jobs, minute=1)
    cost = a_run("a").trials[0].cost
    store.jobs.end_run(run.id, Outcome.REACHED, cost=cost, now=minutes(2))
    (summary,) = store.jobs.jobs(now=minutes(2))
    assert (summary.runs, [(at, one.energy_j) for at, one in summary.spent]) == (2, [(minutes(1), cost.energy_j)])


def test_the_memory_of_a_program_is_its_latest_run_by_one_statement(store: Store, selects: Counted) -> None:
    for place in range(3):
        full = a_run(f"{place}", kind="run", minutes=place)
        trials = tuple(replace(trial, workload="python train.py") for trial in full.trials[: place + 1])
        store.add_run(replace(full, trials=trials))
    other = a_run("s", kind="sweep", minutes=9)
    store.add_run(replace(other, trials=tuple(replace(one, workload="python train.py") for one in other.trials)))
    memory = load_memory(store, "python train.py", gpu="A100", simulated=True)
    assert memory is not None
    assert memory.base == a_run("2").trials[1].cost
    assert [trial.choice for trial in memory.trials] == [a_run("2").trials[0].setting]
    assert load_memory(store, "python train.py", gpu="A100", simulated=False) is None
    assert load_memory(store, "python other.py", gpu="A100", simulated=True) is None
    found = selects(lambda: load_memory(store, "python train.py", gpu="A100", simulated=True))
    assert len(found) == 1


def test_nothing_is_locked_while_a_policy_decides(store: Store) -> None:
    store.jobs.define_job(A_JOB, now=DAWN)

    def decide(job: Job, memory: JobMemory) -> Proposal:
        other = sqlite3.connect(store.place, isolation_level=None, timeout=0.0)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        return Proposal(32, False, "")

    assert store.jobs.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=DAWN).order == 0


@pytest.mark.parametrize("change", ["submits", "ends", "redefines"])
def test_a_decision_is_made_again_if_another_writer_came_first(store: Store, change: str) -> None:
    store.jobs.define_job(A_JOB, now=DAWN)
    first = submitted(store.jobs)
    harder = replace(A_JOB, target=0.9)
    writers: dict[str, Callable[[], object]] = {
        "submits": lambda: store.jobs.submit(A_JOB.name, A_GPU, size(64), lease_s=LEASE_S, now=DAWN),
        "ends": lambda: store.jobs.end_run(first.id, Outcome.REACHED, now=DAWN),
        "redefines": lambda: store.jobs.define_job(harder, now=DAWN),
    }
    seen: list[tuple[Job, tuple[Outcome, ...]]] = []

    def decide(job: Job, memory: JobMemory) -> Proposal:
        seen.append((job, tuple(run.outcome for run in memory.runs)))
        if len(seen) == 1:
            writers[change]()
        return Proposal(16, True, f"{len(seen)}")

    run = store.jobs.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=DAWN)
    running = Outcome.RUNNING
    after = {"submits": (A_JOB, (running, running)), "ends": (A_JOB, (Outcome.REACHED,)), "redefines": (harder, ())}
    assert seen == [(A_JOB, (running,)), after[change]]
    assert (run.why, run.order) == ("2", 2 if change == "submits" else 1)


def test_a_report_meanwhile_does_not_repeat_a_decision(store: Store) -> None:
    """Otherwise, a policy that computes for long would never come to a run of a busy job."""
    store.jobs.define_job(A_JOB, now=DAWN)
    first = submitted(store.jobs)
    calls: list[int] = []

    def decide(job: Job, memory: JobMemory) -> Proposal:
        calls.append(len(memory.runs))
        store.jobs.report(first.id, metric=0.5, lease_s=LEASE_S, now=DAWN)
        return Proposal(16, True, "")

    store.jobs.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=DAWN)
    assert calls == [1]


def test_a_running_run_that_is_replaced_is_lost_to_the_decision(store: Store) -> None:
    store.jobs.define_job(A_JOB, now=DAWN)
    first = submitted(store.jobs)
    seen: list[Outcome] = []

    def decide(job: Job, memory: JobMemory) -> Proposal:
        seen.extend(run.outcome for run in memory.runs)
        return Proposal(16, True, "")

    store.jobs.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S, now=DAWN, replaces=first.id)
    assert seen == [Outcome.LOST]
    assert store.jobs.job_run(first.id, now=DAWN).run.outcome is Outcome.LOST
