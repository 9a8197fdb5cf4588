"""Many processes and threads submit one job at once: no run is lost or stored twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from job_store_contract import A_GPU, A_JOB
from wattune.core.job import Job, JobMemory, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.store.sql_job_store import JobStore
from wattune.store.sql_store import open_store

PROCESSES, THREADS, LEASE_S = 3, 16, 3600.0
processes = multiprocessing.get_context("spawn")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def decide(job: Job, memory: JobMemory) -> Proposal:
    """Choose the sizes in turn, and give the number of known runs as the reason."""
    known = len(memory.runs)
    return Proposal(job.batch_sizes[known % len(job.batch_sizes)], False, str(known))


def one_run(job_store: JobStore) -> str:
    run = job_store.submit(A_JOB.name, A_GPU, decide, lease_s=LEASE_S)
    job_store.report(run.id, metric=0.5, cost=Measurement(1.0, 10.0), lease_s=LEASE_S)
    job_store.end_run(run.id, Outcome.REACHED, cost=Measurement(2.0, 20.0))
    return run.id


def many_runs(url: str, ready: Barrier) -> None:
    """As many submissions at once as there are threads; all processes define the job first, also at once."""
    ready.wait()
    job_store = open_store(url).jobs
    job_store.define_job(A_JOB)
    with ThreadPoolExecutor(THREADS) as threads:
        assert len(set(threads.map(lambda _: one_run(job_store), range(THREADS)))) == THREADS


def test_many_submissions_at_once_lose_nothing(store_url: str) -> None:
    ready = processes.Barrier(PROCESSES)
    children = [processes.Process(target=many_runs, args=(store_url, ready)) for _ in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * PROCESSES
    job_store = open_store(store_url).jobs
    runs = job_store.job_memory(A_JOB.name).runs
    count = PROCESSES * THREADS
    assert [run.order for run in runs] == [run.recurrence for run in runs] == list(range(count))
    assert [run.why for run in runs] == [str(order) for order in range(count)]
    assert {(run.outcome, run.metrics, run.cost) for run in runs} == {(Outcome.REACHED, (0.5,), Measurement(2.0, 20.0))}
    assert all(run.ended is not None and run.order < run.ended <= count for run in runs)
    (summary,) = job_store.jobs()
    assert (summary.runs, summary.running, summary.definition) == (count, 0, 1)


def explore_slowly(url: str, ready: Barrier, decisions: Barrier) -> None:
    """Take the size that no run has yet, with another process that decides at the same time."""
    store, calls = open_store(url).jobs, list[int]()

    def unexplored(job: Job, memory: JobMemory) -> Proposal:
        taken = {run.batch_size for run in memory.runs}
        calls.append(len(taken))
        if len(calls) == 1:
            decisions.wait()
        return Proposal(next(size for size in job.batch_sizes if size not in taken), True, "")

    ready.wait()
    store.submit(A_JOB.name, A_GPU, unexplored, lease_s=LEASE_S)


def test_two_that_decide_at_once_do_not_explore_the_same(store_url: str) -> None:
    job_store = open_store(store_url).jobs
    job_store.define_job(A_JOB)
    ready, decisions = processes.Barrier(2), processes.Barrier(2)
    children = [processes.Process(target=explore_slowly, args=(store_url, ready, decisions)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert [run.batch_size for run in job_store.job_memory(A_JOB.name).runs] == list(A_JOB.batch_sizes[:2])


def submit_until_killed(url: str, report: Path) -> None:
    job_store = open_store(url).jobs
    with report.open("a", buffering=1) as file:
        for _ in range(100_000):
            file.write(f"{one_run(job_store)}\n")


def test_a_submitter_that_is_killed_blocks_nobody(tmp_path: Path) -> None:
    url, report = f"sqlite:///{tmp_path}/history.db", tmp_path / "written"
    job_store = open_store(url).jobs
    job_store.define_job(A_JOB)
    report.write_text("")
    child = processes.Process(target=submit_until_killed, args=(url, report))
    child.start()
    while report.stat().st_size < 370:  # ten runs reported
        child.join(0.005)
        assert child.is_alive()
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    one_run(job_store)
    runs = job_store.job_memory(A_JOB.name).runs
    assert set(report.read_text().split()) <= {run.id for run in runs}
    assert [run.order for run in runs] == list(range(len(runs)))
