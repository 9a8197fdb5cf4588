"""A run that ends while the store is away: its ending waits in a file and comes in with the next submission."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from job_store_contract import A_JOB, DAWN, LEASE_S, minutes, submitted
from store_contract import a_run
from wattune.core.codec import from_json, to_json
from wattune.core.errors import InputError, StoreError
from wattune.core.job import Outcome
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.fallback import Recovered, recover, write_end, write_run
from wattune.store.job_records import RunEnd
from wattune.store.sql_store import Store, open_store
from wattune.store.unsaved_file import FILE_NAME

END = RunEnd(
    run_id="5f0c",
    outcome=Outcome.REACHED,
    ended_at=minutes(5),
    cost=Measurement(300.0, 60_000.0, 1.0, 20.0),
    profiling=Measurement(30.0, 6000.0),
    setting=Setting(),
    metrics=(0.5, None, 0.8),
)


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
    store.jobs.record_end(replace(END, run_id=run.id))
    record = store.jobs.job_run(run.id)
    assert (record.run.outcome, record.run.cost, record.run.setting) == (END.outcome, END.cost, END.setting)
    assert (record.run.metrics, record.ended_at) == (END.metrics, END.ended_at)


def test_an_end_in_the_fallback_file_is_imported_later(store: Store, state: Path, away: Callable[[], None]) -> None:
    run = submitted(store.jobs)
    store.jobs.report(run.id, metric=0.5, lease_s=LEASE_S, now=minutes(1))
    away()
    end = replace(END, run_id=run.id)
    with pytest.raises(StoreError):
        store.jobs.record_end(end)
    assert write_end(end, store.place, [state]) == state / FILE_NAME
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
    forgotten = replace(END, run_id="unknown")
    for end in (replace(END, run_id=first.id), replace(END, run_id=second.id), forgotten):
        write_end(end, store.place, [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=0, left=0)
    outcomes = [record.run.outcome for record in store.jobs.job_runs(A_JOB.name, now=DAWN)]
    assert outcomes == [Outcome.RUNNING, Outcome.LOST, Outcome.CRASHED]


def test_an_end_for_another_store_stays(store: Store, state: Path) -> None:
    write_end(END, "/elsewhere/history.db", [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=0, left=1)
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=1)


def test_runs_and_ends_share_the_file(store: Store, state: Path) -> None:
    run = submitted(store.jobs)
    write_run(a_run("a"), store.place, [state])
    write_end(replace(END, run_id=run.id), store.place, [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=2, left=0)
    assert store.run("a") == a_run("a")
    assert store.jobs.job_run(run.id).run.outcome is Outcome.REACHED


@pytest.mark.parametrize(
    "line",
    [
        '{"store": null, "job_end": null}',
        '{"store": null, "job_end": []}',
        '{"store": null, "job_end": {"run_id": "a"}}',
        json.dumps({"store": None, "job_end": to_json(END) | {"metrics": ["good"]}}),
        json.dumps({"store": None, "job_end": to_json(END) | {"outcome": "splendid"}}),
        json.dumps({"store": None, "job_end": to_json(END) | {"outcome": "running"}}),
        json.dumps({"store": None, "job_end": to_json(END) | {"ended_at": "2025-03-01T06:00:00"}}),
        json.dumps({"store": None, "job_end": to_json(END) | {"cost": {"time_s": -1}}}),
    ],
)
def test_invalid_lines_stay_in_the_file(store: Store, state: Path, line: str) -> None:
    state.mkdir()
    (state / FILE_NAME).write_text(line + "\n")
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=1)
    assert (state / FILE_NAME).read_text() == line + "\n"


def test_running_is_no_ending() -> None:
    with pytest.raises(InputError, match="running is no ending"):
        replace(END, outcome=Outcome.RUNNING)


def test_json_round_trip() -> None:
    assert from_json(RunEnd, json.loads(json.dumps(to_json(END), allow_nan=False))) == END
    bare = RunEnd(run_id="a", outcome=Outcome.CRASHED, ended_at=DAWN)
    assert from_json(RunEnd, to_json(bare)) == bare
    invalid = replace(END, metrics=(nan, 0.5))
    assert from_json(RunEnd, to_json(invalid)).metrics == (None, 0.5)
