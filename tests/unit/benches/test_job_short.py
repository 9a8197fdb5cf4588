"""Short jobs are played by the shipped parts, and explore batch sizes."""

from wattune_bench.job.short import bench_short_jobs


def test_a_job_too_short_for_a_search_costs_less_than_the_default_and_tries_other_sizes():
    bench = bench_short_jobs((15.0,), gpus=("a100",), runs=6)
    (row,) = bench.rows
    assert bench.simulated
    assert row["of_default"] < 1.0
    assert row["of_oracle"] >= 1.0
    assert row["batch_sizes_tried"] > 1
