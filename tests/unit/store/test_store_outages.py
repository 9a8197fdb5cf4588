"""A store that is locked, stopped or slow keeps nobody waiting, and nothing is lost."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from job_runs import JOB, Jobs
from job_store_contract import A_GPU, A_JOB, DAWN, minutes
from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.core.job import JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.store.fallback import FILE_NAME, Recovered, keep_runs, move_unsaved, recover, write_run
from wattune.store.job_records import EndedRun
from wattune.store.records import StoreTimeout
from wattune.store.spool import LOCK_NAME
from wattune.store.sql_store import Store, open_store
from wattune.store.worker import StoreWorker
from wattune_bench.reliability.postgres import PostgresServer


@pytest.fixture
def url(tmp_path: Path) -> str:
    open_store(str(tmp_path / "history.db"))
    return f"sqlite:///{tmp_path}/history.db"


@contextmanager
def locked(url: str) -> Iterator[None]:
    holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Calls that wait for it return at the end of the test at the latest."""
    gate = threading.Event()
    yield gate
    gate.set()


# the worker


def test_a_call_that_is_not_answered_is_given_up_and_the_next_fails_at_once(url: str, gate: threading.Event) -> None:
    worker = StoreWorker(url, wait_s=0.05)
    with pytest.raises(StoreTimeout, match=r"history.db did not answer within 0.05 s"):
        worker.call(lambda _: gate.wait())
    called: list[Store] = []
    with pytest.raises(StoreTimeout):
        worker.call(called.append)
    gate.set()
    assert worker.post(lambda store: store.runs()).result(60) == ()
    assert called == []
    assert worker.call(lambda store: store.runs()) == ()


def test_work_of_our_own_within_a_call_is_no_outage(url: str, gate: threading.Event) -> None:
    worker = StoreWorker(url)
    worker.post(lambda store: store.runs()).result(60)
    worker.wait_s = 1.0
    late = threading.Timer(1.3, gate.set)

    def decide(store: Store) -> str:
        with worker.computing():
            late.start()
            gate.wait()
        return "decided"

    assert worker.call(decide) == "decided"


def test_errors_of_a_call_reach_the_caller(url: str) -> None:
    with pytest.raises(StoreError, match="there is no run"):
        StoreWorker(url).call(lambda store: store.run("x"))


def test_a_thread_without_calls_ends_and_the_next_call_starts_another(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattune.store.worker.IDLE_S", 0.01)
    worker = StoreWorker(url)
    threads = {worker.call(lambda _: threading.current_thread())}
    for thread in threads:
        thread.join()
    threads.add(worker.call(lambda _: threading.current_thread()))
    assert len(threads) == 2


# runs


def test_a_run_for_a_locked_store_goes_to_a_private_file_and_comes_in_once(url: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with locked(url), pytest.raises(StoreError, match=f"the runs are kept in {state}") as caught:
        keep_runs([a_run("a"), a_run("b")], store_url=url, state_dir=state, wait_s=0.05)
    assert "\n" not in caught.value.message
    assert (state / FILE_NAME).stat().st_mode & 0o777 == 0o600
    keep_runs([a_run("c")], store_url=url, state_dir=state)
    assert sorted(run.id for run in open_store(url).runs()) == ["a", "b", "c"]
    assert not (state / FILE_NAME).exists()


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FILE_NAME).symlink_to(tmp_path / "precious")
    assert write_run(a_run("a"), None, [tmp_path / "state", tmp_path / "other"]) == tmp_path / "other" / FILE_NAME
    assert (tmp_path / "precious").read_text() == "kept"


def test_unsaved_runs_of_a_folder_that_goes_are_moved(url: str, tmp_path: Path) -> None:
    store, kept = open_store(url), tmp_path / "kept"
    for run_id in ("a", "b"):
        write_run(a_run(run_id), store.place, [tmp_path / "goes"])
    move_unsaved(tmp_path / "goes", [kept])
    move_unsaved(tmp_path / "goes", [kept])
    assert not (tmp_path / "goes" / FILE_NAME).exists()
    assert recover(store, [kept], meant_for=store.place) == Recovered(taken=2, left=0)


def test_a_file_that_a_stopped_process_keeps_locked_loses_no_run(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattune.store.spool.LOCK_S", 0.01)
    store = open_store(url)
    write_run(a_run("a"), store.place, [tmp_path])
    with (tmp_path / LOCK_NAME).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert write_run(a_run("b"), store.place, [tmp_path]) != tmp_path / FILE_NAME
    assert recover(store, [tmp_path], meant_for=store.place) == Recovered(taken=2, left=0)
    assert sorted(path.name for path in tmp_path.glob("unsaved*")) == []


def test_a_signal_while_waiting_loses_no_run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: StoreWorker, act: Callable[[Store], object]) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreWorker, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keep_runs([a_run("a")], store_url=url, state_dir=tmp_path / "state")
    store = open_store(url)
    assert recover(store, [tmp_path / "state"], meant_for=store.place).taken == 1


def test_an_import_does_not_keep_others_from_writing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(url)
    write_run(a_run("a"), store.place, [tmp_path])
    add = Store.add_run

    def slow(self: Store, full: object) -> None:
        if full == a_run("a"):  # while this one is stored, another process writes and a third one imports too
            write_run(a_run("b"), store.place, [tmp_path])
            with monkeypatch.context() as patch:
                patch.setattr(Store, "add_run", add)
                assert recover(store, [tmp_path], meant_for=store.place) == Recovered(taken=2, left=0)
            write_run(a_run("c"), store.place, [tmp_path])
        add(self, full)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "add_run", slow)
    assert recover(store, [tmp_path], meant_for=store.place) == Recovered(taken=0, left=1)
    assert recover(store, [tmp_path], meant_for=store.place) == Recovered(taken=1, left=0)
    assert sorted(run.id for run in store.runs()) == ["a", "b", "c"]


# runs of recurring jobs


COST = Measurement(9.0, 90.0)
LATE = EndedRun(
    job=A_JOB,
    run=JobRun(
        id="r1",
        order=0,
        recurrence=0,
        batch_size=A_JOB.default_batch_size,
        gpu=A_GPU,
        why="the default",
        submitted_at=DAWN,
        outcome=Outcome.REACHED,
        metrics=(0.5, 0.9),
        cost=COST,
    ),
    ended_at=minutes(9),
    submitted=False,
    host="h",
    pid=7,
)


def test_a_run_that_could_not_be_submitted_comes_in_once(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    for taken in (1, 0):
        write_run(LATE, store.place, [tmp_path / "state"])
        assert recover(store, [tmp_path / "state"], meant_for=store.place) == Recovered(taken=taken, left=0)
    (record,) = store.jobs.job_runs(A_JOB.name)
    run = record.run
    assert (run.id, run.outcome, run.metrics, run.cost) == ("r1", Outcome.REACHED, (0.5, 0.9), COST)
    assert (run.order, run.recurrence, run.ended, record.definition) == (0, 0, 1, 1)
    assert store.jobs.job_memory(A_JOB.name).runs == (run,)
    assert store.jobs.jobs()[0].definition == 1


def test_a_late_run_leaves_a_job_as_it_is_defined_today(url: str) -> None:
    jobs = open_store(url).jobs
    today = replace(A_JOB, target=A_JOB.target + 0.1)
    jobs.define_job(today)
    jobs.submit(today.name, A_GPU, lambda job, _: Proposal(job.default_batch_size, False, ""), lease_s=60)
    jobs.add_ended_run(LATE)
    assert jobs.job(today.name) == today
    late = jobs.job_run("r1")
    assert (late.run.order, late.run.recurrence, late.comparable) == (1, 1, False)


def test_a_late_run_replaces_one_that_the_store_has(url: str) -> None:
    jobs = open_store(url).jobs
    jobs.define_job(A_JOB)
    first = jobs.submit(A_JOB.name, A_GPU, lambda job, _: Proposal(job.default_batch_size, False, ""), lease_s=60)
    jobs.end_run(first.id, Outcome.MISSED)
    jobs.add_ended_run(replace(LATE, replaces=first.id))
    jobs.add_ended_run(replace(LATE, run=replace(LATE.run, id="r2"), replaces="unknown"))
    assert [(run.id, run.recurrence) for run in jobs.job_memory(A_JOB.name).runs] == [
        (first.id, 0),
        ("r1", 0),
        ("r2", 1),
    ]
    assert jobs.job_run(first.id).replaced


def test_a_submission_that_was_given_up_and_came_through_is_the_same_run(url: str) -> None:
    jobs = open_store(url).jobs
    jobs.define_job(A_JOB)
    other = next(size for size in A_JOB.batch_sizes if size != A_JOB.default_batch_size)
    jobs.submit(A_JOB.name, A_GPU, lambda *_: Proposal(other, True, ""), lease_s=60, run_id="r1", now=DAWN)
    jobs.add_ended_run(LATE)
    (run,) = jobs.job_memory(A_JOB.name).runs
    assert (run.id, run.batch_size, run.outcome) == ("r1", A_JOB.default_batch_size, Outcome.REACHED)


def test_a_job_without_its_history_runs_the_default_says_so_and_is_stored_later(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.job_store.define_job(JOB)
    with locked(jobs.store_url):
        session = jobs.session(store_access=jobs.store_access(wait_s=0.05))
        run = session.start()
        assert run.batch_size == JOB.default_batch_size
        assert "this run has the default batch size 64, without the history of the job" in jobs.warnings[0]
        assert session.report(0.2)
        assert not session.report(0.9)
        session.end()
    assert "how the run ended is kept in" in jobs.warnings[-1]
    assert jobs.job_store.job_memory(JOB.name) == JobMemory()
    after = jobs.session()
    after.start()
    after.end()
    first, _ = jobs.job_store.job_memory(JOB.name).runs
    assert (first.id, first.outcome, first.metrics) == (run.id, Outcome.REACHED, (0.2, 0.9))


def test_reports_to_a_locked_store_do_not_wait(tmp_path: Path) -> None:
    """The calls return, although the store is locked for longer than the test: nothing else can end them."""
    jobs = Jobs(tmp_path)
    access = jobs.store_access(patience_s=0.0)
    session = jobs.session(store_access=access)
    run = session.start()
    access.worker.wait_s = 0.05
    with locked(jobs.store_url):
        assert all(session.report(0.1 + epoch / 100) for epoch in range(11))
        assert not session.report(0.9)
        session.end()
    store = open_store(jobs.store_url)
    assert sum("how the run ended is kept in" in line for line in jobs.warnings) == 1
    recover(store, [tmp_path / "state"], meant_for=store.place)
    found = store.jobs.job_run(run.id).run
    assert (found.outcome, len(found.metrics)) == (Outcome.REACHED, 12)


@pytest.mark.postgres
def test_a_stopped_server_keeps_nobody_waiting(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.new_url()
    store, state = open_store(url), tmp_path / "state"
    worker = StoreWorker(url, wait_s=0.2)
    with postgres_server.stopped():
        with pytest.raises(StoreTimeout):
            worker.call(lambda store: store.runs())
        with pytest.raises(StoreError, match="the run is kept in"):
            keep_runs([a_run("a")], store_url=url, state_dir=state, wait_s=0.2)
    assert b"secret" not in (state / FILE_NAME).read_bytes()
    recover(store, [state], meant_for=store.place)
    assert [run.id for run in store.runs()] == ["a"]


@pytest.mark.postgres
def test_statements_of_a_server_have_a_limit(postgres_url: str) -> None:
    from sqlalchemy import text

    from wattune.store.engine import engine_of, writing

    open_store(postgres_url)
    engine = engine_of(postgres_url, timeout_s=0.05)
    with pytest.raises(StoreTimeout, match="took too long"), writing(engine) as connection:
        connection.execute(text("SELECT pg_sleep(60)"))
    holder = engine_of(postgres_url)
    with writing(holder) as first:
        first.execute(text("LOCK TABLE wattune_runs"))
        with pytest.raises(StoreTimeout, match=r"locked|too long"):
            Store(engine).add_run(a_run("a"))
