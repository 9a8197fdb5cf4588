"""The bench of real kernels, on kernels made from the physics and, where they are present, on measured ones."""

import os
from pathlib import Path

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune_bench.layers.kernel_table import kernel_class, read_kernels
from wattune_bench.layers.kernels import (
    FEW,
    LINE,
    NEAREST,
    OURS,
    RANDOM_KERNELS,
    RANDOM_PAIRS,
    THREE,
    bench_kernels,
    bound_by,
)

PUBLIC = Path(os.environ.get("WATTUNE_DATA") or "nowhere")
CORES, MEMORIES = (1600, 1700, 1800, 1900, 2000), (3500, 4000, 4500, 5000)
PAIRS = [(core, memory) for core in CORES for memory in MEMORIES]
HEADER = "kernel,sm_mhz,mem_mhz,count,time_s"
KERNELS = {
    "(392 4 1) (256 1 1) maxwell_scudnn_128x128_relu_small_nn": (9e-3, 1e-3),
    "(98 4 1) (256 1 1) maxwell_scudnn_128x128_relu_small_nn": (4e-3, 5e-4),
    "(512 7 4) (256 1 1) maxwell_sgemm_128x64_nn": (6e-3, 3e-3),
    "(64 64 1) (128 1 1) void add_tensor_kernel_v3<int=2": (1e-4, 4e-3),
    "(64 32 1) (128 1 1) void add_tensor_kernel_v3<int=2": (5e-5, 2e-3),
    "(100352 1 1) (512 1 1) void caffe::MaxPoolForward<float>(int": (8e-4, 3e-3),
    "CUDA memcpy HtoD": (0.0, 0.0),
}


def lines(kernels=KERNELS, *, fixed_s=1e-4):
    """A table of kernels as smooth maxima of compute and memory time."""
    found = [HEADER]
    for name, (compute_s, memory_s) in kernels.items():
        for core, memory in PAIRS:
            both_s = ((compute_s * 2000 / core) ** 3 + (memory_s * 5000 / memory) ** 3) ** (1 / 3)
            found.append(f"{name},{core},{memory},10,{fixed_s + both_s:.9g}")
    return found


def written(folder, content):
    file = folder / "kernels.csv"
    file.write_text("\n".join(content) + "\n")
    return file


def test_kernels_of_the_physics_meet_every_goal(tmp_path):
    steps = []
    bench = bench_kernels(written(tmp_path, lines()), seeds=1, on_step=steps.append)
    assert all(goal.met for goal in bench.goals), bench.goals
    assert {row["measured"] for row in bench.rows} == {THREE, FEW, RANDOM_PAIRS, RANDOM_KERNELS}
    assert {row["predictor"] for row in bench.rows} >= {OURS, LINE, NEAREST}
    assert len(steps) == 4
    assert not bench.simulated
    assert "elasticity" in bench.document["summary"]["bound_definition"]
    errors = {row["predictor"]: row["mape_percent"] for row in bench.rows if row["measured"] == THREE}
    assert errors[OURS] < errors[LINE] < errors[NEAREST]


def test_a_seed_gives_the_same_rows_again(tmp_path):
    file = written(tmp_path, lines())
    assert bench_kernels(file, seeds=1).rows == bench_kernels(file, seeds=1).rows


def test_bound_by_either_clock_or_neither():
    log_clocks = np.log(np.array(PAIRS, dtype=np.float64))
    core, memory = log_clocks.T
    times = np.exp(np.stack([-core, -memory, -0.6 * core - 0.3 * memory, 0.0 * core]))
    assert bound_by(times, log_clocks).tolist() == ["core", "memory", "core", "neither"]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("(64 64 1) (128 1 1) void add_tensor_kernel_v3<int=2", "add_tensor_kernel_v3"),
        ("(1 1 1) (1 1 1) caffe::sync_conv_groups(void)", "caffe::sync_conv_groups"),
        ("CUDA memcpy HtoD", "CUDA memcpy HtoD"),
        ("relu", "relu"),
    ],
)
def test_classes_are_functions(name, function):
    assert kernel_class(name) == function


def test_names_say_what_a_kernel_needs(tmp_path):
    table = read_kernels(written(tmp_path, lines({**KERNELS, "mystery": (1e-3, 1e-3)})))
    needs = dict(zip(table.names, table.demand.tolist(), strict=True))
    gemm, add = needs["(512 7 4) (256 1 1) maxwell_sgemm_128x64_nn"], table.demand[3]
    assert gemm[0] > gemm[1]
    assert add[0] < add[1]
    assert needs["CUDA memcpy HtoD"] == [0.0, 0.0]
    assert np.isnan(needs["mystery"]).all()


def test_a_missing_pair_of_a_long_kernel_is_named(tmp_path):
    content = [line for line in lines() if not line.startswith("(392 4 1)") or ",1700,4500," not in line]
    with pytest.raises(InputError, match="scudnn_128x128_relu_small_nn has no time at 1700/4500 MHz"):
        read_kernels(written(tmp_path, content))


def test_a_missing_pair_of_all_kernels_is_named(tmp_path):
    content = [line for line in lines() if ",1700,4500," not in line]
    with pytest.raises(InputError, match="has no time at 1700/4500 MHz"):
        read_kernels(written(tmp_path, content))


def test_a_short_kernel_with_missing_pairs_is_left_out_by_name(tmp_path):
    content = [*lines(), "tiny,1600,3500,1,1e-6"]
    bench = bench_kernels(written(tmp_path, content), seeds=0)
    (note,) = [note for note in bench.notes if note.startswith("Left out")]
    assert "tiny has no time at 2000/5000 MHz, 2000/4500 MHz, 2000/4000 MHz and 16 more pairs" in note


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (["kernel,sm_mhz,mem_mhz,time_s", "a,1600,3500,1"], "there is no column count"),
        ([HEADER, "a,1600,3500,1,0"], "line 2, column time_s: 0 is not a finite number above 0"),
        ([HEADER, "a,1600.5,3500,1,1"], "1600.5 is not a whole number"),
        ([HEADER, "a,,3500,1,1"], "column sm_mhz: is empty"),
        ([HEADER, "a,1600,3500,1,1", "a,1600,3500,1,1"], "line 3, column kernel: appears twice at 1600/3500 MHz"),
        ([HEADER], "has a header and no rows"),
    ],
)
def test_bad_tables_are_refused(tmp_path, content, problem):
    with pytest.raises(InputError, match=problem):
        bench_kernels(written(tmp_path, content), seeds=0)


@pytest.mark.parametrize("pairs", [1, 2])
def test_too_few_pairs_are_refused(tmp_path, pairs):
    content = [HEADER, *(f"a,{1600 + place},3500,1,1" for place in range(pairs))]
    with pytest.raises(InputError, match="pairs of clocks"):
        bench_kernels(written(tmp_path, content), seeds=0)


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public measurements are not here: set WATTUNE_DATA")
def test_the_kernels_of_a_titan_x():
    found = sorted(PUBLIC.glob("*/vgg_kernels.csv"))
    if not found:
        pytest.skip("no vgg_kernels.csv")
    bench = bench_kernels(found[0], seeds=0)
    assert all(goal.met for goal in bench.goals), bench.goals
