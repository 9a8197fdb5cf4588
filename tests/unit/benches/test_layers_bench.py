"""`wattune bench layers`: rows, goals and bad input, on a part of its cases."""

from pathlib import Path

import pytest

from wattune.core.errors import InputError
from wattune_bench.layers import thesis
from wattune_bench.layers.bench import bench_layers
from wattune_bench.layers.switching import chain, language_rows
from wattune_bench.layers.thesis import Case, thesis_goals, thesis_rows


def test_rows_of_the_thesis_have_every_strategy_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(
        Case("vgg16", "a4000", scope, latency_s, "ahead") for scope in ("forward", "step") for latency_s in (0.0, 10e-3)
    )
    monkeypatch.setattr(thesis, "cases", lambda: few)
    rows = thesis_rows(1, lambda _: None)
    assert len(rows) == len(few) * len(thesis.SLOWDOWNS) * 5
    assert all(row["simulated"] for row in rows)
    assert all(row["time_percent"] <= row["slowdown_limit_percent"] + 1e-6 for row in rows if row["within_limit"])
    played = [row for row in rows if row["played_time_percent"] is not None]
    assert played
    assert all(row["played_time_percent"] <= row["slowdown_limit_percent"] + 1e-3 for row in played)
    goals = {goal.name: goal for goal in thesis_goals(rows)}
    assert next(goal for name, goal in goals.items() if name.startswith("segments above")).met
    assert next(goal for name, goal in goals.items() if name.startswith("finding 1")).met


def test_a_clock_per_kernel_saves_at_least_as_much_as_one_per_pass_when_switching_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wattune_bench.layers.switching.LANGUAGE_GPUS", ("a100-80gb",))
    kernel, by_pass = language_rows()
    assert kernel["free_energy_percent"] <= by_pass["free_energy_percent"] + 0.1
    assert kernel["real_energy_percent"] >= kernel["free_energy_percent"]


def test_the_chain_has_the_size_that_the_goal_names() -> None:
    assert chain(seed=1).time_s.shape == (1000, 400)


def test_the_bench_refuses_a_section_that_there_is_not() -> None:
    with pytest.raises(InputError, match="magic"):
        bench_layers(sections=("magic",), on_step=lambda *_: None)


def test_the_section_of_kernels_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a file"):
        bench_layers(sections=("kernels",), on_step=lambda *_: None)
    with pytest.raises(InputError, match="cannot read"):
        bench_layers(sections=("kernels",), kernels=tmp_path / "none.csv", on_step=lambda *_: None)
