"""Many processes on one store: no run is lost or stored twice."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from job_store_contract import A_JOB
from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.store.fallback import Recovered, keep_run, recover, write_run
from wattune.store.sql_store import open_store

PROCESSES, RUNS = 6, 50
# Fresh interpreters: a fork of a test process would share what no two real processes share.
processes = multiprocessing.get_context("spawn")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def write_runs(url: str, writer: int, ready: Barrier) -> None:
    ready.wait()
    store = open_store(url)
    for number in range(RUNS):
        store.add_run(a_run(f"{writer}-{number:03}", minutes=number))


def write_fallback_runs(place: str, folder: Path, writer: int, ready: Barrier) -> None:
    ready.wait()
    for number in range(RUNS):
        write_run(a_run(f"{writer}-{number:03}"), place, [folder])


def keep_runs(url: str, folder: Path, writer: int, ready: Barrier) -> None:
    """Keep runs in the store; one that a busy store does not take in time is kept in the file that the next imports."""
    ready.wait()
    for number in range(RUNS):
        with suppress(StoreError):
            keep_run(a_run(f"{writer}-{number:03}"), store_url=url, state_dir=folder)


def write_until_killed(url: str, report: Path) -> None:
    store = open_store(url)
    with report.open("a", buffering=1) as file:
        for number in range(100_000):
            store.add_run(a_run(f"{number:06}"))
            file.write(f"{number:06}\n")


def finish(*children: multiprocessing.process.BaseProcess) -> None:
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * len(children)


def test_a_fresh_store_opened_by_all_at_once_takes_every_run_once(store_url: str) -> None:
    ready = processes.Barrier(PROCESSES)
    writers = [processes.Process(target=write_runs, args=(store_url, writer, ready)) for writer in range(PROCESSES)]
    for writer in writers:
        writer.start()
    finish(*writers)
    store = open_store(store_url)
    expected = {f"{writer}-{number:03}" for writer in range(PROCESSES) for number in range(RUNS)}
    runs = store.runs()
    assert len(runs) == PROCESSES * RUNS
    assert {run.id for run in runs} == expected
    assert len(store.trial_records()) == 2 * len(expected)
    assert store.run("3-007") == a_run("3-007", minutes=7)


def test_writing_and_importing_fallback_files_at_once_loses_no_run(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path}/history.db", tmp_path / "state"
    place = open_store(url).place
    ready = processes.Barrier(4)
    writers = [
        processes.Process(target=write_fallback_runs, args=(place, folder, writer, ready)) for writer in range(2)
    ]
    keepers = [processes.Process(target=keep_runs, args=(url, folder, writer, ready)) for writer in (2, 3)]
    for child in (*writers, *keepers):
        child.start()
    finish(*writers, *keepers)
    keep_run(a_run("last"), store_url=url, state_dir=folder)
    found = [run.id for run in open_store(url).runs()]
    assert len(found) == len(set(found)) == 4 * RUNS + 1


def test_a_killed_writer_leaves_whole_runs_only(tmp_path: Path) -> None:
    url, report = f"sqlite:///{tmp_path}/history.db", tmp_path / "written"
    for _ in range(3):
        store = open_store(url)
        for run in store.runs():
            store.forget(run.id)
        report.write_text("")
        child = processes.Process(target=write_until_killed, args=(url, report))
        child.start()
        while report.stat().st_size < 70:  # ten runs reported
            child.join(0.005)
            assert child.is_alive()
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        runs = {run.id for run in store.runs()}
        assert set(report.read_text().split()) <= runs
        assert len(store.trial_records()) == 2 * len(runs)
        assert len(store.traces()) == len(runs)


def top_up(folder: Path) -> None:
    """Take the last bytes of a disk (or all that a limit allows), so that not even a small file fits."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        for _ in range(100_000):
            file.write(b"x" * 64)


def fill_up(url: str, folder: Path, limit_bytes: int, outcome: Path) -> None:
    """Write runs under a limit on the size of files, as on a disk that is full, until one is refused."""
    store = open_store(url)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    number = 0
    try:
        while number < 10_000:
            store.add_run(a_run(f"{number:06}", name="x" * 2000))
            number += 1
    except StoreError:
        top_up(Path(store.place).parent)
        try:
            keep_run(a_run(f"{number:06}", name="x" * 2000), store_url=url, state_dir=folder)
        except StoreError as error:
            outcome.write_text(f"{number}\n{error.message}\n{error.hint}")


def check_full(url: str, folder: Path, outcome: Path, *, kept_in: Path) -> None:
    number, message, hint = outcome.read_text().split("\n")
    assert "disk" in message
    assert f"the run is kept in {kept_in}" in message
    assert "wattune history --recover" in hint
    keep_run(a_run("last"), store_url=url, state_dir=folder)
    found = sorted(run.id for run in open_store(url).runs())
    assert found == [f"{place:06}" for place in range(int(number) + 1)] + ["last"]
    assert open_store(url).run(f"{int(number):06}").trials == a_run("x").trials


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    url, folder, outcome = f"sqlite:///{tmp_path}/history.db", tmp_path / "state", tmp_path / "outcome"
    child = processes.Process(target=fill_up, args=(url, folder, 200_000, outcome))
    child.start()
    finish(child)
    check_full(url, folder, outcome, kept_in=folder)


@pytest.mark.parametrize("state_on_same_disk", [False, True])
def test_a_disk_that_is_really_full_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_on_same_disk: bool
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("TMPDIR", str(disk))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be mounted here (needs root)")
    try:
        url, outcome = f"sqlite:///{disk}/history.db", tmp_path / "outcome"
        folder = (disk if state_on_same_disk else tmp_path) / "state"
        child = processes.Process(target=fill_up, args=(url, folder, -1, outcome))
        child.start()
        finish(child)
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        check_full(url, folder, outcome, kept_in=Path("/tmp") if state_on_same_disk else folder)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def write_without_permission(folder: Path, outcome: Path) -> None:
    url, state = f"sqlite:///{folder}/history.db", folder / "state"
    keep_run(a_run("a"), store_url=url, state_dir=state)  # imports all that is needed while it can still be read
    write_run(a_run("b"), None, [folder / "elsewhere"])
    with outcome.open("w") as file:
        (folder / "history.db").chmod(0o444)
        folder.chmod(0o555)
        if os.geteuid() == 0:  # nothing is forbidden to root
            os.setgid(65534)
            os.setuid(65534)
        for attempt in (f"{folder}/history.db", f"{folder}/new.db", f"{folder}/new/history.db"):
            try:
                open_store(attempt).add_run(a_run("c"))
            except StoreError as error:
                file.write(f"{error.message}\n")


def test_a_store_without_permission_is_one_line_and_stays_as_it_was(tmp_path: Path) -> None:
    folder, outcome = Path(tempfile.mkdtemp(prefix="wattune-")), tmp_path / "outcome"
    folder.chmod(0o755)
    try:
        child = processes.Process(target=write_without_permission, args=(folder, outcome))
        child.start()
        finish(child)
        owned, fresh, folder_less = outcome.read_text().splitlines()
        folder.chmod(0o755)
        (folder / "history.db").chmod(0o644)
        assert owned == f"the store {folder}/history.db may not be written"
        assert fresh == f"the store {folder}/new.db cannot be opened"
        assert folder_less == f"cannot make the store's folder {folder}/new: Permission denied"
        assert [run.id for run in open_store(str(folder / "history.db")).runs()] == ["a"]
    finally:
        shutil.rmtree(folder)


def read_without_permission(folder: Path, mode: int, outcome: Path) -> None:
    store = open_store(f"{folder}/history.db")
    store.add_run(a_run("a"))
    store.jobs.define_job(A_JOB)
    with outcome.open("w") as file:
        (folder / "history.db").chmod(0o444)
        folder.chmod(mode)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        store = open_store(f"{folder}/history.db")
        full = store.run("a") == a_run("a")
        file.write(f"{[run.id for run in store.runs()]} {full} {[job.name for job in store.jobs.jobs()]}\n")
        file.write(f"{recover(store, [folder / 'state'], meant_for=None)}\n")
        for change in (lambda: store.add_run(a_run("b")), lambda: store.forget("a")):
            try:
                change()
            except StoreError as error:
                file.write(f"{error.message}\n")


@pytest.mark.parametrize("mode", [0o555, 0o777])
def test_a_store_that_may_only_be_read_is_read(tmp_path: Path, mode: int) -> None:
    folder, outcome = Path(tempfile.mkdtemp(prefix="wattune-")), tmp_path / "outcome"
    folder.chmod(0o755)
    try:
        child = processes.Process(target=read_without_permission, args=(folder, mode, outcome))
        child.start()
        finish(child)
        refused = f"the store {folder}/history.db may not be written"
        assert outcome.read_text().splitlines() == [
            f"['a'] True ['{A_JOB.name}']",
            str(Recovered(taken=0, left=0)),
            refused,
            refused,
        ]
        assert sorted(path.name for path in folder.iterdir()) == ["history.db"]
    finally:
        shutil.rmtree(folder)
