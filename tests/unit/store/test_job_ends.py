"""A run that ends while the store is away: its ending waits in a file and comes in with the next submission."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from job_store_contract import A_GPU, A_JOB, DAWN, LEASE_S, minutes, submitted
from store_contract import a_run
from wattune.core.codec import to_json
from wattune.core.errors import InputError, StoreError
from wattune.core.job import JobRun, Outcome, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.fallback import FILE_NAME, LINES_NAME, Recovered, recover, write_run
from wattune.store.job_records import EndedRun
from wattune.store.spool import entries_of
from wattune.store.sql_store import Store, open_store

END = EndedRun(
    job=A_JOB,
    run=JobRun(
        id="5f0c",
        order=3,
        recurrence=2,
        batch_size=32,
        gpu=A_GPU,
        submitted_at=DAWN,
        outcome=Outcome.REACHED,
        cost=Measurement(300.0, 60_000.0, 1.0, 20.0),
        profiling=Measurement(30.0, 6000.0),
        setting=Setting(),
        steps=StepAccount(total=9, count=8, cost=Measurement(290.0, 59_000.0)),
        metrics=(0.5, None, 0.8),
    ),
    ended_at=minutes(5),
    submitted=True,
    host="node1",
    pid=7,
)
LINE = {"run_id": "5f0c", "outcome": "reached", "ended_at": "2025-03-01T06:05:00+00:00", "metrics": [0.5, None, 0.8]}
"""The end of a run as earlier versions wrote it."""


TOTALS = ("outcome", "cost", "profiling", "setting", "steps", "metrics")


def in_spool(run: JobRun) -> JobRun:
    """A run as a spool has it, where its place among other runs means nothing."""
    return replace(run, order=0, recurrence=0, ended=0)


def end_of(run: JobRun) -> EndedRun:
    return replace(END, run=replace(END.run, id=run.id))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "history.db"))
    store.jobs.define_job(A_JOB, now=DAWN)
    return store


@pytest.fixture
def away(tmp_path: Path, store: Store) -> Callable[[], None]:
    """Takes the store away; a second call brings it back."""
    place, hidden = Path(store.place), tmp_path / "hidden.db"

    def swap() -> None:
        if place.is_dir():
            place.rmdir()
            hidden.rename(place)
        else:
            place.rename(hidden)
            place.mkdir()

    return swap


def test_the_end_of_a_run_is_stored(store: Store) -> None:
    run = submitted(store.jobs)
    assert store.jobs.add_ended_run(end_of(run))
    assert not store.jobs.add_ended_run(end_of(run))
    record = store.jobs.job_run(run.id)
    expected = replace(run, ended=1, **{name: getattr(END.run, name) for name in TOTALS})
    assert (record.run, record.ended_at) == (expected, END.ended_at)


def test_an_end_in_the_fallback_file_is_imported_later(store: Store, state: Path, away: Callable[[], None]) -> None:
    run = submitted(store.jobs)
    store.jobs.report(run.id, metric=0.5, lease_s=LEASE_S, now=minutes(1))
    away()
    end = end_of(run)
    with pytest.raises(StoreError):
        store.jobs.add_ended_run(end)
    assert write_run(end, store.place, [state]) == state / FILE_NAME
    assert [entry.run for entry in entries_of(state / FILE_NAME)] == [replace(end, run=in_spool(end.run))]
    away()
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=1, left=0)
    submitted(store.jobs, minute=60)
    found = store.jobs.job_run(run.id, now=minutes(60)).run
    assert (found.outcome, found.metrics, found.ended) == (Outcome.REACHED, (0.5, None, 0.8), 1)
    assert not (state / FILE_NAME).exists()


def test_an_end_that_contradicts_the_store_is_dropped(store: Store, state: Path) -> None:
    first, second = submitted(store.jobs), submitted(store.jobs)
    store.jobs.end_run(first.id, Outcome.CRASHED, now=DAWN)
    submitted(store.jobs, replaces=second.id)
    for end in (end_of(first), end_of(second), END):
        write_run(end, store.place, [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=0, left=0)
    outcomes = [record.run.outcome for record in store.jobs.job_runs(A_JOB.name, now=DAWN)]
    assert outcomes == [Outcome.RUNNING, Outcome.LOST, Outcome.CRASHED]


def test_an_end_for_another_store_stays(store: Store, state: Path) -> None:
    write_run(END, "/elsewhere/history.db", [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=0, left=1)
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=1)


def test_runs_and_ends_share_the_file(store: Store, state: Path) -> None:
    run = submitted(store.jobs)
    write_run(a_run("a"), store.place, [state])
    write_run(end_of(run), store.place, [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=2, left=0)
    assert store.run("a") == a_run("a")
    assert store.jobs.job_run(run.id).run.outcome is Outcome.REACHED


def test_jobs_of_one_name_and_two_definitions_share_the_file(store: Store, state: Path) -> None:
    other = replace(A_JOB, target=0.9)
    for number, job in enumerate((A_JOB, other, A_JOB)):
        late = replace(END, job=job, submitted=False, run=replace(END.run, id=f"late{number}"))
        write_run(late, store.place, [state])
    found = [entry.run.job for entry in entries_of(state / FILE_NAME) if isinstance(entry.run, EndedRun)]
    assert found == [A_JOB, other, A_JOB]
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=3, left=0)
    assert len(store.jobs.job_memory(A_JOB.name).runs) == 2
    assert store.jobs.job(A_JOB.name) == A_JOB


# lines of earlier versions


def test_an_end_that_an_earlier_version_kept_is_imported(store: Store, state: Path) -> None:
    run = submitted(store.jobs)
    state.mkdir()
    line = {"store": store.place, "job_end": LINE | {"run_id": run.id, "cost": {"time_s": 9.0, "energy_j": 90.0}}}
    (state / LINES_NAME).write_text(json.dumps(line) + "\n")
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=1, left=0)
    found = store.jobs.job_run(run.id)
    assert (found.run.outcome, found.run.metrics, found.ended_at) == (Outcome.REACHED, (0.5, None, 0.8), minutes(5))
    assert (found.run.batch_size, found.run.cost) == (run.batch_size, Measurement(9.0, 90.0))


def test_a_run_that_an_earlier_version_kept_is_imported(store: Store, state: Path) -> None:
    job_run = {
        "job": to_json(A_JOB),
        "batch_size": 32,
        "gpu": {"name": A_GPU.name, "simulated": True, "max_power_w": 400.0, "count": 1},
        "why": "the default",
        "submitted_at": "2025-03-01T06:00:00+00:00",
        "host": "node1",
        "pid": 7,
        "end": LINE,
    }
    state.mkdir()
    (state / LINES_NAME).write_text(json.dumps({"store": None, "job_run": job_run | {"run_id": "5f0c"}}) + "\n")
    assert recover(store, [state], meant_for=None) == Recovered(taken=1, left=0)
    (run,) = store.jobs.job_memory(A_JOB.name).runs
    assert (run.id, run.gpu, run.why, run.submitted_at) == ("5f0c", A_GPU, "the default", DAWN)
    assert (run.outcome, run.metrics) == (Outcome.REACHED, (0.5, None, 0.8))


@pytest.mark.parametrize(
    "end",
    [
        None,
        [],
        {"run_id": "a"},
        LINE | {"metrics": ["good"]},
        LINE | {"outcome": "splendid"},
        LINE | {"outcome": "running"},
        LINE | {"ended_at": "2025-03-01T06:00:00"},
        LINE | {"cost": {"time_s": -1}},
    ],
)
def test_invalid_lines_stay_in_the_file(store: Store, state: Path, end: object) -> None:
    state.mkdir()
    line = json.dumps({"store": None, "job_end": end}) + "\n"
    (state / LINES_NAME).write_text(line)
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=1)
    assert (state / LINES_NAME).read_text() == line


def test_running_is_no_ending(store: Store) -> None:
    run = submitted(store.jobs)
    with pytest.raises(InputError, match="running is no ending"):
        store.jobs.add_ended_run(replace(END, run=run))
