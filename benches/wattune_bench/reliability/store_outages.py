"""Store outages: what a program notices of a store that is locked, stopped or unreachable, and what is lost.

Each command runs a program that writes a line with the time every few milliseconds. The stall is the longest time that
the program was kept from going on by a line that it wrote; for the Python interface, by a call. The delay is the
longest time that a line took to come out of the command, where policies compute too. The waits are those of the command
for its store, before and after the program. When the outage is over, records are counted.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from wattune.store.fallback import fallback_folders, recover
from wattune.store.sql_store import open_store
from wattune.store.worker import WAIT_S
from wattune_bench.reliability.postgres import PostgresServer, running_postgres, server_programs
from wattune_bench.result import Bench, Row, at_most, part

PROGRAM_S = 6.0
STALL_MS = 50.0
HEALTHY = "none"

_NOTE = (
    "Store outages: waits include loading the database library, which is no wait for the store; it takes "
    "seconds on a busy machine, where a stall may also be that of the system. Compare with the rows of outage none."
)

PROGRAM = """
import sys, time
length_s, worst_s, epochs = float(sys.argv[1]), 0.0, 0
start_s = time.monotonic()
while time.monotonic() - start_s < length_s:
    time.sleep(0.004)
    if time.monotonic() - start_s > (epochs + 1) * length_s / 10:
        epochs += 1
        sys.stdout.write(f"accuracy: {0.5 + epochs / 100}\\n")
    before_s = time.monotonic()
    sys.stdout.write(f"line {before_s!r}\\n")
    sys.stdout.flush()
    worst_s = max(worst_s, time.monotonic() - before_s)
sys.stdout.write("accuracy: 0.9\\n")
print(f"program {start_s!r} {time.monotonic()!r} {worst_s!r}", flush=True)
"""

LIBRARY = """
import logging, sys, time
from wattune import recurring_job
logging.disable()
length_s, worst_s = float(sys.argv[1]), 0.0
job = dict(batch_sizes=[16, 32], default=16, target=0.8, max_epochs=20, devices=["sim:a100"])
with recurring_job("nightly", **job) as run:
    start_s = time.monotonic()
    for epoch in range(11):
        end_s = start_s + (epoch + 1) * length_s / 11
        while time.monotonic() < end_s:
            time.sleep(0.004)
            before_s = time.monotonic()
            print(f"line {before_s!r}", flush=True)
            run.step()
            worst_s = max(worst_s, time.monotonic() - before_s)
        before_s = time.monotonic()
        run.report(0.5 + epoch / 100 if epoch < 10 else 0.9)
        worst_s = max(worst_s, time.monotonic() - before_s)
    print(f"program {start_s!r} {time.monotonic()!r} {worst_s!r}", flush=True)
"""

TIMED = """
import sys, time
from wattune.store.worker import StoreWorker
waiting = StoreWorker.result
def timed(self, future, *, wait_s):
    start_s = time.monotonic()
    try:
        return waiting(self, future, wait_s=wait_s)
    finally:
        print(f"waited {start_s!r} {time.monotonic()!r}", file=sys.stderr, flush=True)
StoreWorker.result = timed
"""
"""Lets a process print each wait for its store."""
_WATTUNE = (sys.executable, "-c", f"{TIMED}\nfrom wattune.cli.main import main\nmain()")
_JOB = "job run nightly --device sim:a100 --batch-sizes 16,32 --default 16 --target 0.8"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "measure": (*_WATTUNE, "measure", "--device", "sim:a100", "--"),
    "run": (*_WATTUNE, "run", "--device", "sim:a100", "--"),
    "job run": (*_WATTUNE, *_JOB.split(), "--metric-pattern", r"accuracy: ([0-9.]+)", "--keep-going", "--"),
    "sweep": (*_WATTUNE, "simulate", "--", *_WATTUNE, "sweep", "--points", "1", "--"),
    "recurring_job": (),
}
"""The words before the program; the last is the Python interface, whose program calls it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A kind of outage: the URL of the store, and the outage as a block, which begins so long after the command."""

    name: str
    url: str
    block: Callable[[], AbstractContextManager[None]]
    after_s: float | None = None
    """Seconds after the start of the command; None begins before."""
    returns: bool = True
    """False where the store is never reached, so that records are imported into another one."""


@dataclass(frozen=True, slots=True)
class _Timing:
    """The waits before and after the program, the longest stall and the longest delay, in seconds."""

    start_wait_s: float
    end_wait_s: float
    stall_s: float
    delay_s: float


def store_rows(
    *, seconds: float = PROGRAM_S, commands: tuple[str, ...] = tuple(COMMANDS), on_case: Callable[[int], None]
) -> tuple[Row, ...]:
    """Run each command in each outage that can be had here, and return a row for each pair."""
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattune-outage-")))
        programs = server_programs()
        server = None if programs is None else stack.enter_context(running_postgres(programs))
        for command in commands:
            for outage in outages(folder / command.replace(" ", "-"), server, middle_s=seconds / 3):
                case = folder / f"{len(rows)}"
                rows.append(_row(outage, command, folder=case, seconds=seconds))
                on_case(len(rows))
    return tuple(rows)


def outages(folder: Path, server: PostgresServer | None, *, middle_s: float) -> Iterator[Outage]:
    """Yield the outages, the healthy store first; those of a server only where there is one."""
    folder.mkdir()
    file = folder / "history.db"
    yield Outage(HEALTHY, f"sqlite:///{folder}/healthy.db", nullcontext)
    open_store(str(file))
    yield Outage("SQLite file locked", f"sqlite:///{file}", lambda: _locked(file))
    if server is None:
        return
    for name, after_s in (("PostgreSQL stopped", None), ("PostgreSQL stopped on the way", middle_s)):
        url = server.new_url()
        open_store(url)
        yield Outage(name, url, server.stopped, after_s)
    with _black_hole() as port:
        url = f"postgresql://me:secret@127.0.0.1:{port}/history"
        yield Outage("PostgreSQL unreachable", url, nullcontext, returns=False)


def store_part(*, seconds: float = PROGRAM_S, on_case: Callable[[int], None]) -> Bench:
    """Run the section: rows, goals, and what was left out."""
    rows = store_rows(seconds=seconds, on_case=on_case)
    failing = [row for row in rows if row["outage"] != HEALTHY]
    worst = {name: max(row[name] for row in failing) for name in ("stall_ms", "start_wait_s", "end_wait_s")}
    goals = (
        at_most("store outages, longest stall of a program (ms)", worst["stall_ms"], STALL_MS),
        at_most("store outages, longest wait before a program (s)", worst["start_wait_s"], WAIT_S + 1.0),
        at_most("store outages, longest wait after a program (s)", worst["end_wait_s"], WAIT_S + 1.0),
        at_most("store outages, records lost", sum(row["lost"] for row in rows), 0),
        at_most("store outages, records stored twice", sum(row["doubled"] for row in rows), 0),
    )
    notes = [_NOTE]
    if server_programs() is None:
        notes.append("Store outages: no PostgreSQL server here, so that only SQLite was tried.")
    return part(rows, goals, notes)


def _row(outage: Outage, command: str, *, folder: Path, seconds: float) -> Row:
    environment = _environment(folder, outage.url)
    timing = _run(outage, command, seconds=seconds, environment=environment)
    count = _count(outage, environment, command)
    return {
        "section": "store",
        "outage": outage.name,
        "command": command,
        "simulated": True,
        "stall_ms": 1000.0 * timing.stall_s,
        "delay_ms": 1000.0 * timing.delay_s,
        "start_wait_s": timing.start_wait_s,
        "end_wait_s": timing.end_wait_s,
        "lost": max(0, 1 - count),
        "doubled": max(0, count - 1),
    }


def _environment(folder: Path, url: str) -> dict[str, str]:
    folder.mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("WATTUNE_") or "CACHE" in name}
    return ours | {
        "WATTUNE_STORE": url,
        "WATTUNE_STATE": str(folder / "state"),
        "WATTUNE_CONFIG": str(folder / "none.toml"),
        "TMPDIR": str(folder),
    }


def _run(outage: Outage, command: str, *, seconds: float, environment: Mapping[str, str]) -> _Timing:
    """Run a command during an outage, and read its output as it comes."""
    words = [*COMMANDS[command], sys.executable, "-c", PROGRAM if COMMANDS[command] else TIMED + LIBRARY, str(seconds)]
    with ExitStack() as stack:
        if outage.after_s is None:
            stack.enter_context(outage.block())
        process = stack.enter_context(
            subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
        stack.callback(process.kill)
        lines = _OutputLines()
        for line in process.stdout or ():
            lines.take(line.decode(errors="replace"), now_s=time.monotonic())
            if outage.after_s is not None and lines.is_due(outage.after_s):
                stack.enter_context(outage.block())
                outage = replace(outage, after_s=None)
        process.wait()
        return lines.timing()


class _OutputLines:
    """The lines of a program, and how late each came."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._latest_s = 0.0
        self._program: tuple[float, float, float] | None = None
        self._waits: list[tuple[float, float]] = []
        self._others: list[str] = []

    def take(self, line: str, *, now_s: float) -> None:
        match line.split():
            case ["line", written]:
                self._first_s = self._first_s or float(written)
                self._latest_s = max(self._latest_s, now_s - float(written))
            case ["program", start, end, worst]:
                self._program = (float(start), float(end), float(worst))
            case ["waited", start, end]:
                self._waits.append((float(start), float(end)))
            case _:
                self._others.append(line)

    def is_due(self, after_s: float) -> bool:
        """Return whether the program has run for so long."""
        return self._first_s is not None and time.monotonic() - self._first_s > after_s

    def timing(self) -> _Timing:
        if self._program is None:
            raise RuntimeError(f"the program did not end: {''.join(self._others)}")
        start_s, end_s, worst_s = self._program
        before_s = sum(end - start for start, end in self._waits if end <= start_s)
        after_s = sum(end - start for start, end in self._waits if start >= end_s)
        return _Timing(before_s, after_s, worst_s, self._latest_s)


def _count(outage: Outage, environment: Mapping[str, str], command: str) -> int:
    """Return how often the record of a command is in the store, once the next command has reached it."""
    state = Path(environment["WATTUNE_STATE"])
    store = open_store(outage.url if outage.returns else str(state.parent / "other.db"))
    recover(store, fallback_folders(state), meant_for=store.place if outage.returns else None)
    if command in ("job run", "recurring_job"):
        runs = [run for job in store.jobs.jobs() for run in store.jobs.job_runs(job.name)]
        return sum(record.run.outcome.value == "reached" for record in runs)
    return len(store.runs(kind=command))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the write lock of an SQLite file."""
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


@contextmanager
def _black_hole() -> Iterator[int]:
    """Yield a local port that answers no connection: its queue is full, so that the kernel drops every request."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
