"""The benches of partition searches: reading sweeps, counting measurements, simulated configurations."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.levels.overlap.hypervolume import epsilon, front_places
from wattune.levels.overlap.joint_plans import sufficient, uncovered
from wattune.levels.overlap.joint_search import JointSearch
from wattune.levels.overlap.joint_state import JointState
from wattune.physics.catalog import load_model
from wattune_bench.kernels import simulated_search
from wattune_bench.kernels.configurations import CONFIGURATIONS, GPU
from wattune_bench.kernels.overlap_table import missing_note, read_overlap_tables
from wattune_bench.kernels.table import bench_table

HEADER = "partition,sm_mhz,comm_sms,launch,time_s,energy_j"


def _sweep(file: Path, *, skip: int = 0) -> Path:
    lines = [HEADER]
    for clock, sms, launch in product((900, 1200, 1410), (3, 6, 12, 24), ("norm_0", "attn_0", "none")):
        hidden = {"norm_0": 1.0, "attn_0": 0.5, "none": 0.0}[launch]
        compute, comm = 4e3 / clock, 8e3 / (sms * clock)
        time_s = compute * (1 + hidden * sms / 108) + max(comm - hidden * compute, 0.0)
        lines.append(f"p,{clock},{sms},{launch},{time_s:.6f},{100 * time_s + 200 * (clock / 1410) ** 2 + sms:.6f}")
    file.write_text("\n".join(lines[: len(lines) - skip]) + "\n")
    return file


def test_a_sweep_with_names_of_operators_is_read(tmp_path: Path) -> None:
    (table,) = read_overlap_tables(_sweep(tmp_path / "sweep.csv"))
    assert table.partition == "p"
    assert table.space.names == ("sm_mhz", "comm_sms", "launch")
    assert len(table.space) == 36
    assert sorted(set(table.space.features[:, 2])) == [-1.0, 0.0, 1.0]
    assert missing_note(table) is None
    assert table.noise.tolist() == [0.0, 0.0]


def test_missing_cells_are_named(tmp_path: Path) -> None:
    (table,) = read_overlap_tables(_sweep(tmp_path / "sweep.csv", skip=2))
    note = missing_note(table)
    assert note is not None
    assert "launch none, sm_mhz 1410, comm_sms 24" in note
    assert note.startswith("p: 2 of the combinations")
    assert ", at 1410 MHz." in note


def test_a_kareus_sweep_is_converted_with_its_repeats(tmp_path: Path) -> None:
    file = tmp_path / "kareus.csv"
    runs = ",".join(f"{r}:time (s),{r}:total energy (J),{r}:rank0 energy (J),{r}:rank1 energy (J)" for r in (0, 1))
    file.write_text(
        f"overlap_start,overlap_end,comm_sm_number,comm_block_size,{runs}\n"
        "-1,-1,4,512,0.01,2,1,1,0.03,4,2,2\n0,6,4,512,0.01,2,1,1,0.01,2,1,1\n"
    )
    (table,) = read_overlap_tables(file)
    assert table.partition == "kareus"
    assert table.costs[0] == pytest.approx([0.02, 1.5])
    assert table.space.features[:, 0].tolist() == [-1.0, 0.0]
    assert (table.noise > 0).all()


@pytest.mark.parametrize(
    ("row", "problem"), [("p,900,3,norm_0,x,1", "time_s"), ("p,0,3,norm_0,1,1", "sm_mhz"), ("p,900,3,,1,1", "launch")]
)
def test_bad_cells_are_named(tmp_path: Path, row: str, problem: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(InputError, match=problem):
        read_overlap_tables(file)


@pytest.mark.parametrize("noise", [False, True])
def test_searches_are_counted_until_the_frontier_is_found(tmp_path: Path, noise: bool) -> None:
    bench = bench_table(_sweep(tmp_path / "sweep.csv", skip=1), seeds=2, processes=1, noise=noise)
    assert "random" in {row["search"] for row in bench.rows}
    for row in bench.rows:
        if row["search"] in ("random", "kareus"):
            assert 1 <= row["measurements"] <= 36 * 4
            assert row["epsilon_percent"] <= 0.5
            assert 0.9 < row["hypervolume_ratio"] <= 1.0
    assert any("not measured" in note for note in bench.notes)
    assert {"partition", "search", "median", "percentile_90"} == set(bench.figures["medians"][0])


def test_the_model_of_the_simulated_search_is_not_the_truth() -> None:
    gpu = load_model(GPU)
    parts, truths = simulated_search._parts(CONFIGURATIONS[0], gpu, 0)
    expected = np.exp(JointState.of(parts).logs)
    wrong = np.abs(np.log(np.concatenate(truths) / expected))
    assert 0.05 < wrong.max() < 1.5
    rippled = simulated_search._parts(CONFIGURATIONS[0], gpu, 0, 0.01)[1]
    ripple = np.log(np.concatenate(rippled) / np.concatenate(truths))
    assert 0.005 < ripple.std() < 0.03


def test_a_search_that_the_budget_ends_says_how_far_it_is() -> None:
    parts, truths = simulated_search._parts(CONFIGURATIONS[0], load_model(GPU), 0)
    found = simulated_search.searched(parts, truths, JointSearch(seed=0), budget=20)
    assert 20 <= found.count < 36
    assert found.true.epsilon > 0
    assert found.expected.epsilon > 0


def test_a_search_ends_near_the_frontier_and_expects_that() -> None:
    parts, truths = simulated_search._parts(CONFIGURATIONS[0], load_model(GPU), 0)
    found = simulated_search.searched(parts, truths, JointSearch(seed=0), budget=300)
    assert found.reached is not None
    assert found.reached <= 179
    assert found.true.epsilon < 0.005
    assert found.true.hypervolume_share < 0.01
    assert abs(found.expected.epsilon - found.true.epsilon) < 0.003


def test_few_plans_cover_all() -> None:
    random = np.random.default_rng(0)
    points = np.exp(random.normal(0, 0.1, (400, 2)))
    rows = sufficient(points, 0.003)
    front = points[front_places(points)]
    assert epsilon(points[rows], front) <= 0.003 + 1e-12
    assert len(rows) <= len(front)


def test_known_plans_need_no_others_beside_them() -> None:
    random = np.random.default_rng(1)
    points = np.exp(random.normal(0, 0.1, (200, 2)))
    front = points[front_places(points)]
    assert uncovered(points, front, 0.003) == []
    known = front[::2]
    rows = uncovered(points, known, 0.003)
    assert epsilon(np.concatenate([known, points[rows]]), front) <= 0.003 + 1e-12
    assert len(uncovered(points, np.zeros((0, 2)), 0.003)) >= len(rows)
