"""Readers of public files: small files of the same forms, and what is wrong with bad ones."""

import json

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune_bench.datasets.clock_sweep import is_clock_sweep, read_clock_sweeps
from wattune_bench.datasets.find import data_files, with_columns
from wattune_bench.datasets.overlap_sweep import read_overlap_sweep
from wattune_bench.datasets.stage_profiles import read_stage_profile
from wattune_bench.datasets.zeus_profiles import read_limit_profile
from wattune_bench.datasets.zeus_tables import COLUMNS, read_power_table

TABLE = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
OVERLAP = (
    "overlap_start,overlap_end,comm_sm_number,comm_block_size,"
    "0:time (s),0:total energy (J),1:time (s),1:total energy (J)\n"
)


def written(folder, name, text):
    file = folder / name
    file.write_text(text)
    return file


def test_a_power_table_is_a_curve_per_workload_and_batch_size(tmp_path):
    text = TABLE + "d,n,32,o,200,9.0,150\nd,n,32,o,100,12.0,99\nd,n,8,o,100,40.0,60\n"
    small, large = read_power_table(written(tmp_path, "t.csv", text))
    assert (small.workload, small.batch_size, large.batch_size) == ("d n o", 8, 32)
    assert large.limit_w.tolist() == [100, 200]
    assert large.time_s.tolist() == [12, 9]
    assert large.power_w.tolist() == [99, 150]


def test_a_profile_is_the_mean_over_its_gpus(tmp_path):
    text = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n2,x_250,10,2000,2200\n1,x_100,20,1800,2000\n"
    curve = read_limit_profile(written(tmp_path, "V100+net+gpu0,1.csv", text))
    assert curve.limit_w.tolist() == [100, 250]
    assert curve.power_w.tolist() == [95, 210]


def test_a_stage_profile_is_a_sweep_per_operation(tmp_path):
    text = (
        "stage,instruction,frequency,time,energy\n0,forward,900,0.2,30\n0,backward,900,0.4,60\n0,forward,800,0.3,28\n"
    )
    backward, forward = read_stage_profile(written(tmp_path, "s.csv", text))
    assert (forward.instruction, forward.sm_mhz.tolist()) == ("forward", [800, 900])
    assert backward.energy_j.tolist() == [60]


def test_an_overlap_sweep_is_the_mean_of_its_repeats(tmp_path):
    sweep = read_overlap_sweep(written(tmp_path, "o.csv", OVERLAP + "-1,-1,4,512,1.0,10,3.0,14\n0,2,8,1024,2,8,2,8\n"))
    assert sweep.time_s.tolist() == [2, 2]
    assert sweep.energy_j.tolist() == [12, 8]
    assert sweep.settings.sequential.tolist() == [True, False]
    assert np.all(sweep.settings.comm_block == [512, 1024])


def cache(**values):
    entry = {"core_freq": 900.0, "nvml_power": 80.0, **values}
    return json.dumps({"device_name": "GPU", "kernel_name": "k", "cache": {"a": entry}})


def test_a_clock_sweep_is_known_by_its_observations(tmp_path):
    good, other = written(tmp_path, "a.json", cache()), written(tmp_path, "b.json", '{"cache": {"a": {"time": 1}}}')
    assert is_clock_sweep(good)
    assert not is_clock_sweep(other)
    assert not is_clock_sweep(written(tmp_path, "c.json", "[1, 2"))
    (sweep,) = read_clock_sweeps(good)
    assert sweep.power_w.tolist() == [80]


def test_variants_of_a_kernel_are_sweeps_of_their_own_and_equal_clocks_one_point(tmp_path):
    entries = [(256, 900.0, 80.0), (256, 900.0, 82.0), (256, 1200.0, 100.0), (512, 900.0, 70.0)]
    cached = {
        str(place): {"block": block, "gr_clock": mhz, "core_freq": mhz, "nvml_power": power_w}
        for place, (block, mhz, power_w) in enumerate(entries)
    }
    document = {"tune_params_keys": ["block", "gr_clock"], "cache": cached}
    first, second = read_clock_sweeps(written(tmp_path, "a.json", json.dumps(document)))
    assert (first.kernel, second.kernel) == ("kernel block=256", "kernel block=512")
    assert first.power_w.tolist() == [81, 100]


def test_files_are_found_by_their_columns_in_the_folder_and_one_below(tmp_path):
    (tmp_path / "deep").mkdir()
    above, below = written(tmp_path, "a.csv", TABLE + "1"), written(tmp_path / "deep", "b.csv", TABLE)
    written(tmp_path, "c.csv", "x,y\n1,2\n")
    (tmp_path / "d.csv").write_bytes(b"\xff\xfe")
    assert set(with_columns(data_files(tmp_path), COLUMNS)) == {above, below}
    assert with_columns(data_files(tmp_path / "deep"), COLUMNS) == (below,)


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (read_power_table, TABLE + "d,n,32,o,200,nan,150\n", "line 2, column time_per_epoch"),
        (read_power_table, TABLE + "d,n,,o,200,9,150\n", "line 2, column batch_size: is empty"),
        (read_power_table, TABLE, "has a header and no rows"),
        (read_limit_profile, "start_time,window_name,elapsed_time,gpu0_energy\n1,x,2,3\n", "column window_name"),
        (read_stage_profile, "stage,instruction,frequency,time,energy\n0,forward,900,0,30\n", "column time"),
        (read_overlap_sweep, OVERLAP + "a,-1,4,512,1,1,1,1\n", "column overlap_start: 'a' is not a whole number"),
        (read_overlap_sweep, OVERLAP + "-3,-1,4,512,1,1,1,1\n", "column overlap_start: -3 is not the place"),
        (read_clock_sweeps, cache(nvml_power=-1), "entry a, nvml_power: -1"),
        (read_clock_sweeps, "{", "the file is not JSON"),
        (read_clock_sweeps, "{}", "holds no measurements"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, read, text, words):
    file = written(tmp_path, "bad.csv", text)
    with pytest.raises(InputError) as caught:
        read(file)
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert "bad.csv" in caught.value.message


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        data_files(tmp_path / "none")
