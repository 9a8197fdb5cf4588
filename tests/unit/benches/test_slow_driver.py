"""The section of the reliability bench about slow drivers."""

from wattune_bench.reliability.slow_driver import SlowDriver, slow_driver_goals, slow_driver_rows


def test_rows_of_a_slow_driver(monkeypatch, tmp_path, emulated_library):
    monkeypatch.setenv("WATTUNE_CACHE", str(emulated_library.parent.parent))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "store.db"))
    (row,) = slow_driver_rows(seconds=0.2, drivers=(SlowDriver(20.0),), commands=("tuned",))
    assert row["simulated"]
    assert (row["command"], row["call_ms"]) == ("tuned", 20.0)
    assert row["program_s"] >= 0.2
    assert row["command_s"] > row["program_s"]


def row(command, call_ms, stall_ms, core_percent=None):
    return {"command": command, "call_ms": call_ms, "stall_ms": stall_ms, "core_percent": core_percent}


def test_goals_compare_with_a_fast_driver():
    rows = [row("run", 0.0, 30.0, 0.4), row("run", 300.0, 70.0, 0.9), row("tuned", 0.0, 0.0), row("tuned", 300.0, 10.0)]
    stall, share = slow_driver_goals(rows)
    assert (stall.value, stall.met) == (40.0, True)
    assert (share.value, share.met) == (0.9, True)
    assert not slow_driver_goals([*rows, row("measure", 300.0, 51.0, 1.1)])[0].met


def test_without_rows_the_goals_are_unknown():
    assert [goal.met for goal in slow_driver_goals([])] == [None, None]
