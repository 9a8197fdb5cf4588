from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.store import fallback
from wattune.store.fallback import FILE_NAME, LINES_NAME, Recovered, keep_run, recover
from wattune.store.records import FullRun, full_run_to_json
from wattune.store.spool import LOCK_NAME, entries_of
from wattune.store.sql_store import open_store


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder, and a temporary folder that is not the real one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("wattune.store.fallback.TEMPORARY", ())
    (tmp_path / "temporary").mkdir()
    return tmp_path / "state"


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """The path of a store that cannot be opened, because it is a folder."""
    path = tmp_path / "history.db"
    path.mkdir()
    return path


def ids(url: Path) -> list[str]:
    return sorted(run.id for run in open_store(str(url)).runs())


def test_a_run_that_cannot_be_stored_goes_to_a_file_that_the_error_names(state: Path, blocked: Path) -> None:
    with pytest.raises(StoreError, match="is a folder") as caught:
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    assert f"the run is kept in {state / FILE_NAME}" in caught.value.message
    assert "wattune history --recover" in (caught.value.hint or "")
    assert "\n" not in caught.value.message
    assert [entry.run for entry in entries_of(state / FILE_NAME)] == [a_run("a")]
    assert (state / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_the_next_stored_run_imports_the_fallback_file(state: Path, blocked: Path) -> None:
    for run_id in ("a", "b"):
        with pytest.raises(StoreError):
            keep_run(a_run(run_id), store_url=str(blocked), state_dir=state)
    blocked.rmdir()
    keep_run(a_run("c"), store_url=str(blocked), state_dir=state)
    assert ids(blocked) == ["a", "b", "c"]
    assert open_store(str(blocked)).run("a") == a_run("a")
    assert list(state.iterdir()) == []


def test_runs_for_another_store_stay_unless_all_are_imported(tmp_path: Path, state: Path, blocked: Path) -> None:
    with pytest.raises(StoreError):
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    other = open_store(str(tmp_path / "other.db"))
    assert recover(other, [state], meant_for=other.place) == Recovered(taken=0, left=1)
    assert recover(other, [state], meant_for=None) == Recovered(taken=1, left=0)
    assert recover(other, [state], meant_for=None) == Recovered(taken=0, left=0)


def test_a_run_is_imported_once(tmp_path: Path, state: Path) -> None:
    store = open_store(str(tmp_path / "history.db"))
    store.add_run(a_run("a"))
    fallback.write_run(a_run("a"), store.place, [state])
    fallback.write_run(a_run("b"), store.place, [state])
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=1, left=0)
    assert [run.id for run in store.runs()] == ["a", "b"]


def line_of(full: FullRun, place: str | None) -> bytes:
    """A line as earlier versions wrote it."""
    return json.dumps({"store": place} | full_run_to_json(full)).encode()


def test_lines_of_earlier_versions_are_imported_and_one_cut_off_by_a_crash_stays(tmp_path: Path, state: Path) -> None:
    store = open_store(str(tmp_path / "history.db"))
    state.mkdir()
    cut_off = b'{"store": "x", "run": {"id"'
    lines = [line_of(a_run("a"), store.place), cut_off, line_of(a_run("b"), store.place)]
    (state / LINES_NAME).write_bytes(b"\n".join(lines))
    assert recover(store, [state], meant_for=store.place) == Recovered(taken=2, left=1)
    assert (state / LINES_NAME).read_bytes() == cut_off + b"\n"
    assert store.run("b") == a_run("b")
    (state / LINES_NAME).write_bytes(lines[0] + b"\n")
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=0)
    assert not (state / LINES_NAME).exists()


def test_lines_are_removed_while_another_process_uses_the_spool(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattune.store.spool.LOCK_S", 0.01)
    store = open_store(str(tmp_path / "history.db"))
    state.mkdir(mode=0o700)
    (state / LINES_NAME).write_bytes(line_of(a_run("a"), store.place))
    (state / LOCK_NAME).touch(mode=0o600)
    with (state / LOCK_NAME).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert recover(store, [state], meant_for=None) == Recovered(taken=1, left=0)
        assert fallback.write_run(a_run("b"), store.place, [state]) != state / FILE_NAME
    assert recover(store, [state], meant_for=None) == Recovered(taken=1, left=0)
    assert list(state.iterdir()) == []


def test_a_damaged_spool_stays_and_runs_are_kept_beside_it(tmp_path: Path, state: Path) -> None:
    store = open_store(str(tmp_path / "history.db"))
    state.mkdir(mode=0o700)
    (state / FILE_NAME).write_bytes(b"no database" * 99)
    assert fallback.write_run(a_run("a"), store.place, [state]) != state / FILE_NAME
    done = recover(store, [state], meant_for=None)
    assert (done.taken, len(done.problems)) == (1, 1)
    assert (state / FILE_NAME).read_bytes() == b"no database" * 99
    assert store.run("a") == a_run("a")


def test_a_spool_whose_writer_was_killed_is_no_problem(tmp_path: Path, state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / FILE_NAME).touch(mode=0o600)
    store = open_store(str(tmp_path / "history.db"))
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=0)
    assert fallback.write_run(a_run("a"), store.place, [state]) == state / FILE_NAME
    assert recover(store, [state], meant_for=None) == Recovered(taken=1, left=0)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[]", b"5", b'{"store": null}', b'{"store": "", "run": {"id": 5}}'])
def test_invalid_lines_stay_in_the_file(tmp_path: Path, state: Path, line: bytes) -> None:
    state.mkdir()
    (state / LINES_NAME).write_bytes(line + b"\n")
    store = open_store(str(tmp_path / "history.db"))
    assert recover(store, [state], meant_for=None) == Recovered(taken=0, left=1)
    assert (state / LINES_NAME).read_bytes() == line + b"\n"


def test_a_store_that_fails_half_way_leaves_every_line(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path / "history.db"))
    for run_id in ("a", "b"):
        fallback.write_run(a_run(run_id), store.place, [state])
    add = type(store).add_run

    def fail_at_b(self: object, full: object) -> None:
        if full == a_run("b"):
            raise StoreError("the disk is full")
        add(store, full)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "add_run", fail_at_b)
        with pytest.raises(StoreError, match="full"):
            recover(store, [state], meant_for=None)
    assert recover(store, [state], meant_for=None).left == 0
    assert sorted(run.id for run in store.runs()) == ["a", "b"]


def test_the_temporary_folder_is_used_if_the_state_folder_fails(tmp_path: Path, state: Path, blocked: Path) -> None:
    state.write_text("not a folder")
    with pytest.raises(StoreError, match="temporary"):
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    folder = tmp_path / "temporary" / f"wattune-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    blocked.rmdir()
    state.unlink()
    keep_run(a_run("b"), store_url=str(blocked), state_dir=state)
    assert ids(blocked) == ["a", "b"]


def test_an_error_names_every_folder_that_cannot_be_written(
    tmp_path: Path, state: Path, blocked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_bad_folder(state_dir: Path) -> Sequence[Path]:
        return [state_dir]

    monkeypatch.setattr(fallback, "fallback_folders", one_bad_folder)
    state.write_text("not a folder")
    with pytest.raises(StoreError, match="could not be kept anywhere") as caught:
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    assert str(state) in caught.value.message


NOBODY = 65534


def given_away(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def file_given_away(folder: Path) -> None:
    os.chown(folder / FILE_NAME, NOBODY, NOBODY)


def file_open_to_all(folder: Path) -> None:
    (folder / FILE_NAME).chmod(0o666)


def file_linked(folder: Path) -> None:
    (folder / FILE_NAME).rename(folder / "moved.db")
    (folder / FILE_NAME).symlink_to(folder / "moved.db")


def file_with_two_names(folder: Path) -> None:
    os.link(folder / FILE_NAME, folder / "second.db")


def journal_given_away(folder: Path) -> None:
    """SQLite would undo by it what is in the file."""
    journal = folder / f"{FILE_NAME}-journal"
    journal.touch()
    os.chown(journal, NOBODY, NOBODY)


@pytest.mark.parametrize(
    "plant",
    [
        given_away,
        open_to_all,
        linked,
        file_given_away,
        file_open_to_all,
        file_linked,
        file_with_two_names,
        journal_given_away,
    ],
)
def test_what_another_user_could_have_written_is_neither_read_nor_written(
    tmp_path: Path, state: Path, plant: Callable[[Path], None]
) -> None:
    if plant in (given_away, file_given_away, journal_given_away) and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    store = open_store(str(tmp_path / "history.db"))
    fallback.write_run(a_run("planted"), store.place, [state])
    plant(state)
    before = (state / FILE_NAME).read_bytes()

    done = recover(store, [state], meant_for=None)
    assert (done.taken, store.runs(), len(done.problems)) == (0, (), 1)
    assert str(state) in done.problems[0]
    if plant is not open_to_all:  # a folder of ours is closed to others before it is written
        other = tmp_path / "other"
        assert fallback.write_run(a_run("a"), store.place, [state, other]) == other / FILE_NAME
        assert (state / FILE_NAME).read_bytes() == before


def test_a_folder_of_others_without_runs_is_no_problem(tmp_path: Path, state: Path) -> None:
    (tmp_path / "real").mkdir()
    state.symlink_to(tmp_path / "real")
    assert recover(open_store(str(tmp_path / "history.db")), [state], meant_for=None) == Recovered(taken=0, left=0)


def test_a_run_is_found_where_it_was_kept_once_there_is_room_elsewhere(
    tmp_path: Path, state: Path, blocked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, shared = tmp_path / "temporary", tmp_path / "shared"
    monkeypatch.setattr(fallback, "TEMPORARY", (str(shared),))
    full.rmdir()
    for place in (state, full):
        place.write_text("no room")
    with pytest.raises(StoreError, match=f"kept in {shared}"):
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    for place in (state, full):
        place.unlink()
    full.mkdir()
    blocked.rmdir()
    monkeypatch.chdir(full)
    store = open_store(str(blocked))
    assert recover(store, fallback.fallback_folders(state), meant_for=None) == Recovered(taken=1, left=0)
    assert store.run("a") == a_run("a")


def test_a_run_that_a_job_of_a_scheduler_kept_is_found_by_commands_with_another_tmpdir(
    tmp_path: Path, state: Path, blocked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "TEMPORARY", (str(tmp_path / "shared"),))
    state.write_text("no room")
    with pytest.raises(StoreError, match="the run is kept in"):
        keep_run(a_run("a"), store_url=str(blocked), state_dir=state)
    state.unlink()
    blocked.rmdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "another"))
    store = open_store(str(blocked))
    assert recover(store, fallback.fallback_folders(state), meant_for=None) == Recovered(taken=1, left=0)


def test_a_run_that_is_kept_twice_counts_once(tmp_path: Path, state: Path) -> None:
    store = open_store(str(tmp_path / "history.db"))
    for folder in (state, tmp_path / "other"):
        fallback.write_run(a_run("a"), store.place, [folder])
    assert recover(store, [state, tmp_path / "other"], meant_for=None) == Recovered(taken=1, left=0)
    assert [run.id for run in store.runs()] == ["a"]


def test_an_invalid_url_loses_no_run(tmp_path: Path, state: Path) -> None:
    with pytest.raises(StoreError, match="'mysql'"):
        keep_run(a_run("a"), store_url="mysql://me:secret@host/db", state_dir=state)
    assert b"secret" not in (state / FILE_NAME).read_bytes()
    assert recover(open_store(str(tmp_path / "history.db")), [state], meant_for=None).taken == 1


def test_a_run_with_a_known_id_is_an_error_and_not_written_to_a_file(tmp_path: Path, state: Path) -> None:
    url = str(tmp_path / "history.db")
    keep_run(a_run("a"), store_url=url, state_dir=state)
    with pytest.raises(fallback.RunExists):
        keep_run(a_run("a"), store_url=url, state_dir=state)
    assert not (state / FILE_NAME).exists()
