"""A store whose file is damaged anywhere: every operation works or raises StoreError, and commands print one line."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from job_store_contract import A_GPU, A_JOB, DAWN, LEASE_S, minutes, submitted
from store_contract import a_run
from wattune.cli.history import gpu_table, run_facts, run_table, trace_table, trial_table
from wattune.cli.main import run
from wattune.core.errors import StoreError
from wattune.core.frontier import Trial
from wattune.core.job import Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.tariff import Tariff
from wattune.levels.job.policies import searcher_named
from wattune.store.fallback import FILE_NAME, keep_run
from wattune.store.spool import entries_of
from wattune.store.sql_store import Store, open_store

PAGE = 4096
SEEDS = 8
CASES = 12
"""Damaged stores per seed."""

Damage = Callable[[random.Random, bytearray], None]


def flip_bytes(chance: random.Random, content: bytearray) -> None:
    used = [place for place, byte in enumerate(content) if byte]
    for _ in range(chance.choice((1, 1, 2, 5, 50))):
        content[chance.choice(used)] = chance.choice((0, 0xFF, chance.randrange(256)))


def cut_off(chance: random.Random, content: bytearray) -> None:
    del content[chance.randrange(len(content)) :]


def blank_page(chance: random.Random, content: bytearray) -> None:
    start = chance.randrange(0, len(content), PAGE)
    content[start : start + PAGE] = chance.choice((bytes(PAGE), chance.randbytes(PAGE)))


def wrong_page(chance: random.Random, content: bytearray) -> None:
    to, source = (chance.randrange(0, len(content), PAGE) for _ in range(2))
    content[to : to + PAGE] = content[source : source + PAGE]


DAMAGES: tuple[Damage, ...] = (flip_bytes, flip_bytes, flip_bytes, cut_off, blank_page, wrong_page)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The bytes of a valid store with runs and a job, and the id of its running run."""
    path = tmp_path_factory.mktemp("valid") / "history.db"
    store = open_store(str(path))
    for place, run_id in enumerate(("a1", "b2", "c3")):
        store.add_run(a_run(run_id, minutes=place))
    store.jobs.define_job(A_JOB, now=DAWN)
    ended = submitted(store.jobs)
    store.jobs.end_run(ended.id, Outcome.REACHED, cost=Measurement(9.0, 90.0), metrics=(0.5, 0.9), now=minutes(9))
    running = submitted(store.jobs, minute=10)
    store.jobs.report(running.id, metric=0.5, lease_s=LEASE_S, now=minutes(11))
    trials = (Trial(Setting(1200), Measurement(1.0, 200.0)),)
    store.jobs.keep_profile(A_JOB.name, Profile(gpu=A_GPU, batch_size=A_JOB.default_batch_size, trials=trials))
    return path.read_bytes(), running.id


def damaged(content: bytes, seed: int) -> list[bytes]:
    chance, stores = random.Random(seed), []
    for _ in range(CASES):
        broken = bytearray(content)
        chance.choice(DAMAGES)(chance, broken)
        stores.append(bytes(broken))
    return stores


def put(path: Path, content: bytes) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(content)


def operations(run_id: str) -> list[Callable[[Store], object]]:
    return [
        lambda store: store.runs(),
        lambda store: store.runs(kind="measure", since=DAWN, name="train", limit=2),
        lambda store: store.run("a1"),
        lambda store: store.trials(workload="resnet50", gpu="A100", simulated=True),
        lambda store: store.trial_records(),
        lambda store: store.traces(),
        lambda store: store.add_run(a_run("d4")),
        lambda store: store.jobs.job(A_JOB.name),
        lambda store: store.jobs.jobs(),
        lambda store: store.jobs.job_memory(A_JOB.name),
        lambda store: store.jobs.job_runs(A_JOB.name),
        lambda store: store.jobs.job_run(run_id),
        lambda store: submitted(store.jobs, minute=20),
        lambda store: store.jobs.report(run_id, metric=0.6, lease_s=LEASE_S),
        lambda store: store.jobs.renew(run_id, LEASE_S),
        lambda store: store.jobs.end_run(run_id, Outcome.MISSED),
        lambda store: store.jobs.define_job(A_JOB),
        lambda store: store.check(),
        lambda store: store.forget("b2"),
        lambda store: store.jobs.forget_job(A_JOB.name),
    ]


VALUES = ("abc", b"\xff\xfe", -1, 1e308, float("inf"), 2**62, "", "{}", '{"sizes": "x", "trials": [{}]}', "\0\x1b[31m")
"""What SQLite takes in a column of any type."""


def with_other_value(chance: random.Random, path: Path) -> None:
    """Put a value of another type or size into a column."""
    database = sqlite3.connect(path, isolation_level=None)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = chance.choice(sorted(tables))
    column = chance.choice([row[1] for row in database.execute(f"PRAGMA table_info({table})")])
    with suppress(sqlite3.Error):  # a key must stay unique
        database.execute(f"UPDATE {table} SET {column} = ?", (chance.choice(VALUES),))
    database.close()


def failure(call: Callable[[], object]) -> StoreError | None:
    try:
        call()
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_operation_works_or_raises_a_store_error(seed: int, content: tuple[bytes, str], tmp_path: Path) -> None:
    good, run_id = content
    path, failures = tmp_path / "history.db", list[StoreError | None]()
    for broken in damaged(good, seed):
        put(path, broken)
        failures.append(failure(lambda: open_store(str(path), timeout_s=1.0)))
        if failures[-1] is None:
            store = open_store(str(path), timeout_s=1.0)
            failures += [failure(lambda: operation(store)) for operation in operations(run_id)]  # noqa: B023
    raised = [error for error in failures if error is not None]
    assert raised  # the damage was felt
    assert [error for error in raised if "\n" in error.message or not error.hint] == []


@pytest.mark.parametrize("seed", range(300, 300 + SEEDS // 2))
def test_values_of_other_types_are_store_errors_too(seed: int, content: tuple[bytes, str], tmp_path: Path) -> None:
    good, run_id = content
    chance, path = random.Random(seed), tmp_path / "history.db"
    for _ in range(CASES):
        put(path, good)
        with_other_value(chance, path)
        if failure(lambda: open_store(str(path))) is None:
            store = open_store(str(path))
            for operation in (*operations(run_id), propose, print_tables):
                failure(lambda: operation(store))  # noqa: B023


def print_tables(store: Store) -> None:
    full = store.run("a1")
    for table in (run_facts(full.run, Tariff(None, None)), gpu_table(full), trial_table(full), trace_table(full)):
        assert table.row_count
    assert run_table(store.runs(), width=80).row_count


def propose(store: Store) -> None:
    """Choose a batch size by what the store has, as a run of the job does."""
    memory = store.jobs.job_memory(A_JOB.name)
    searcher_named("wattune").propose(store.jobs.job(A_JOB.name), memory, A_GPU)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("wattune.store.fallback.TEMPORARY", ())
    for variable, place in (("STORE", "history.db"), ("STATE", "state"), ("LOCKS", "locks"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    return tmp_path


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS // 2))
def test_commands_print_what_they_can_or_one_line(
    seed: int, content: tuple[bytes, str], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good, _ = content
    commands = (
        ["history"],
        ["history", "a1"],
        ["history", "--json"],
        ["history", "--recover"],
        ["export", "--what", "trials"],
        ["export", "--what", "traces", "--format", "json"],
        ["job", "list"],
        ["job", "show", A_JOB.name],
        ["doctor"],
    )
    for broken in damaged(good, seed):
        for words in commands:
            put(home / "history.db", broken)
            assert run(words) in (0, 1)
            lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("error", "hint"))]
            assert len(lines) in (0, 2), lines


@pytest.mark.parametrize("seed", range(200, 200 + SEEDS // 2))
def test_a_run_is_in_the_store_or_kept_beside_it(seed: int, content: tuple[bytes, str], home: Path) -> None:
    path = home / "history.db"
    for place, broken in enumerate(damaged(content[0], seed)):
        put(path, broken)
        full = a_run(f"new{place}")
        error = failure(lambda: keep_run(full, store_url=str(path), state_dir=home / "state"))  # noqa: B023
        if error is None:
            assert open_store(str(path)).run(full.run.id) == full
        else:
            assert "the run is kept in" in error.message
            kept = entries_of(home / "state" / FILE_NAME)
            assert full in [entry.run for entry in kept]
