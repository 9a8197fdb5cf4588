"""Commands with a store that cannot be used: programs run and keep their exit code, and what was measured is kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from command import Command, complaint
from store_contract import a_run
from wattune.store.fallback import FILE_NAME
from wattune.store.sql_store import open_store

JOB = (
    "--batch-sizes",
    "64",
    "--default",
    "64",
    "--target",
    "0.5",
    "--metric-pattern",
    "acc: ([0-9.]+)",
    "--linger",
    "0",
)


def not_utf_8(path: Path) -> None:
    """Spoil a word of the schema: the driver fails to decode the message of SQLite about it."""
    path.write_bytes(path.read_bytes().replace(b"ON DELETE", b"\xffN DELETE", 1))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30_000])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(40_960))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO wattune_schema VALUES (99, 'tomorrow', 'wattune 99')")
    database.close()


@pytest.mark.parametrize("damage", [not_utf_8, truncated, zeros, folder, newer])
def test_programs_run_and_what_was_measured_is_recovered(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    wattune = Command(tmp_path)
    store = Path(wattune.environment["WATTUNE_STORE"])
    store.parent.mkdir()
    open_store(str(store)).add_run(a_run("a1"))
    damage(store)

    for words in (("measure",), ("run", "--quiet")):
        done = wattune(*words, "--device", "sim:a100", "--", "sh", "-c", "echo trained; exit 7")
        assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
        (line,) = [line for line in done.stderr.splitlines() if "the run is kept in" in line]
        assert line.startswith("warning: ")
        assert "Traceback" not in done.stderr
    done = wattune("job", "run", "night", "--device", "sim:a100", *JOB, "--", "sh", "-c", "echo acc: 0.6")
    assert done.returncode == 0, done.stderr
    assert "acc: 0.6" in done.stdout
    assert "how the run ended is kept in" in done.stderr

    for words in (("history",), ("history", "a1"), ("export",), ("history", "--recover"), ("job", "show", "night")):
        complaint(wattune(*words))
    found = json.loads(wattune("doctor", "--json").stdout)["findings"]
    assert [(one["level"], bool(one["fix"])) for one in found if one["topic"] == "store"] == [("problem", True)]

    store.rmdir() if store.is_dir() else store.unlink()
    assert json.loads(wattune("history", "--recover", "--json").stdout) == {"taken": 3, "left": 0}
    kinds = [run["kind"] for run in json.loads(wattune("history", "--json").stdout)["runs"]]
    assert sorted(kinds) == ["measure", "run"]
    assert not (tmp_path / "state" / FILE_NAME).exists()
