"""Concurrent writers: processes that store runs while the store is locked now and then, and some of them are killed.

A run counts as written once `keep_runs` has returned or has named the file that keeps it. All of them must be in the
store afterwards, whole and once.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path

from wattune.core.errors import StoreError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.fallback import fallback_folders, keep_runs, new_run, recover
from wattune.store.records import FullRun, RunGpu, TrialRecord
from wattune.store.sql_store import Store, open_store
from wattune_bench.reliability.postgres import running_postgres, server_programs
from wattune_bench.result import Bench, Row, at_most, part

WRITERS, KILLED, RUNS = 30, 10, 20
_WAIT_S = 0.5
"""Short, so that many runs take the way through the file."""


TRIALS = 3
"""Trials of each run: a run without all of them is torn."""


def write_runs(url: str, folder: Path, writer: int, runs: int) -> None:
    """Store so many runs, and note the id of each that was written."""
    with (folder / f"written-{writer}").open("a", buffering=1) as notes:
        for number in range(runs):
            full = _sample(f"{writer:04}-{number:04}")
            with suppress(StoreError):  # the run is in the file
                keep_runs([full], store_url=url, state_dir=folder / "state", wait_s=_WAIT_S)
            notes.write(f"{full.run.id}\n")


def _sample(run_id: str) -> FullRun:
    gpu = RunGpu(uuid="GPU-0", name="sample", simulated=True, time_s=1.0, energy_j=100.0)
    run = replace(new_run("measure", "sample", started_at=datetime.now(UTC), gpus=[gpu]), id=run_id)
    trials = [Trial(Setting(sm_mhz=1000 + place), Measurement(1.0, 100.0)) for place in range(TRIALS)]
    return FullRun(
        run, tuple(TrialRecord.of(trial, workload="sample", gpu="sample", simulated=True) for trial in trials)
    )


def writers_row(url: str, *, writers: int = WRITERS, killed: int = KILLED, runs: int = RUNS, seed: int = 0) -> Row:
    """Let writers work at once, kill some of them, and count what is in the store."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="wattune-writers-") as name:
        folder = Path(name)
        store = open_store(url)
        spawn = multiprocessing.get_context("spawn")
        children: list[BaseProcess] = [
            spawn.Process(target=write_runs, args=(url, folder, writer, runs)) for writer in range(writers)
        ]
        for child in children:
            child.start()
        _kill(children, killed, folder, chance=chance)
        _disturb(store, children, chance)
        for child in children:
            child.join()
        recover(store, fallback_folders(folder / "state"), meant_for=store.place)
        written = {line for path in folder.glob("written-*") for line in path.read_text().split()}
        return {"section": "writers", "writers": writers, "killed": killed, **_counted(store, written)}


def writers_part(*, writers: int = WRITERS, killed: int = KILLED, on_case: Callable[[int], None]) -> Bench:
    """Run the section on SQLite and, where there is a server, on PostgreSQL."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="wattune-writers-") as folder:
        url = f"sqlite:///{folder}/history.db"
        rows.append({"store": "SQLite", **writers_row(url, writers=writers, killed=killed)})
        on_case(1)
    programs = server_programs()
    if programs is not None:
        with running_postgres(programs) as server:
            rows.append({"store": "PostgreSQL", **writers_row(server.new_url(), writers=writers, killed=killed)})
        on_case(2)
    goals = [
        at_most(f"concurrent writers, runs {what}", sum(row[what] for row in rows), 0)
        for what in ("lost", "doubled", "torn")
    ]
    notes = () if programs else ("Concurrent writers: no PostgreSQL server here, so that only SQLite was tried.",)
    return part(rows, goals, notes)


def _kill(children: list[BaseProcess], killed: int, folder: Path, *, chance: random.Random) -> None:
    """Kill some of the writers, each once it has written something."""
    for place in chance.sample(range(len(children)), killed):
        notes = folder / f"written-{place}"
        while children[place].is_alive() and not (notes.exists() and notes.stat().st_size):
            children[place].join(0.005)
        children[place].join(chance.uniform(0.0, 0.1))
        if children[place].is_alive():
            os.kill(children[place].pid or 0, signal.SIGKILL)


def _disturb(store: Store, children: list[BaseProcess], chance: random.Random) -> None:
    """Lock an SQLite file for a moment, again and again, while writers are alive."""
    if store.place.startswith("postgresql:"):
        return
    while any(child.is_alive() for child in children):
        holder = sqlite3.connect(store.place, isolation_level=None, timeout=0.0)
        with suppress(sqlite3.OperationalError):
            holder.execute("BEGIN IMMEDIATE")
            time.sleep(chance.uniform(0.0, 1.5 * _WAIT_S))
        holder.close()
        time.sleep(_WAIT_S)


def _counted(store: Store, written: set[str]) -> Row:
    found = [run.id for run in store.runs()]
    trials = Counter(run.id for run, _ in store.trial_records())
    return {
        "runs": len(written),
        "lost": len(written - set(found)),
        "doubled": len(found) - len(set(found)),
        "torn": sum(trials[run_id] != TRIALS for run_id in found),
    }
