"""The bench of the live loop: its rows and its goal, whatever the machine is busy with."""

from pathlib import Path

from wattune.benchmarks.run import GPU_COUNTS, bench_live


def test_a_row_for_one_gpu_and_for_several(emulated_library: Path) -> None:
    said: list[str] = []
    cache_dir = emulated_library.parent.parent
    bench = bench_live("a100", seconds=1.0, slowdown=0.05, cache_dir=cache_dir, on_step=said.append)
    assert [row["gpus"] for row in bench.rows] == list(GPU_COUNTS)
    assert all(row["control_core_percent"] > 0 for row in bench.rows)
    assert bench.simulated
    assert len(bench.goals) == 2
    assert len(said) == len(GPU_COUNTS)
