"""The bench of the live loop: its rows and its goal, whatever the machine is busy with."""

from pathlib import Path

from wattune.benchmarks.run.contention import contended_goals, contended_rows
from wattune.benchmarks.run.live import GPU_COUNTS, bench_live


def test_a_row_for_one_gpu_and_for_several(emulated_library: Path) -> None:
    said: list[str] = []
    cache_dir = emulated_library.parent.parent
    bench = bench_live("a100", seconds=1.0, slowdown=0.05, cache_dir=cache_dir, on_step=said.append)
    assert [row["gpus"] for row in bench.rows] == list(GPU_COUNTS)
    assert all(row["control_core_percent"] > 0 for row in bench.rows)
    assert bench.simulated
    assert len(bench.goals) == 2
    assert len(said) == len(GPU_COUNTS)


def test_a_row_for_each_load_of_the_host() -> None:
    rows = contended_rows("rtx-3080-ti", runs=2, seconds=1.0, slowdown=0.05, loads=(0, 1))
    assert [(row["load"], row["runs"]) for row in rows] == [(0, 2), (1, 2)]
    # A second is only the beginning of a baseline: nothing is set, and nothing is claimed.
    assert all(row["limits_broken"] == row["false_changes"] == row["claims"] == 0 for row in rows)
    assert [goal.value for goal in contended_goals(rows)] == [0, 0]
    broken = [{**rows[0], "false_changes": 2, "limits_broken": 1}, rows[1]]
    assert [(goal.value, goal.met) for goal in contended_goals(broken)] == [(2, False), (1, False)]
