"""Commands whose store is locked, and writers that are killed: nothing is lost, and programs end as they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattune_bench.reliability import store_outages, writers


@pytest.mark.parametrize("command", ["measure", "job run"])
def test_a_command_whose_store_is_locked_loses_nothing(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_outages, "server_programs", lambda: None)
    rows = store_outages.store_rows(seconds=0.3, commands=(command,), on_case=lambda _: None)
    assert [row["outage"] for row in rows] == [store_outages.HEALTHY, "SQLite file locked"]
    assert [(row["lost"], row["doubled"]) for row in rows] == [(0, 0), (0, 0)]


def test_killed_writers_lose_and_double_no_run(tmp_path: Path) -> None:
    row = writers.writers_row(f"sqlite:///{tmp_path}/history.db", writers=4, killed=2, runs=6)
    assert (row["lost"], row["doubled"], row["torn"]) == (0, 0, 0)
    assert 14 <= row["runs"] <= 24  # all of those that lived, and at least one of each that was killed
