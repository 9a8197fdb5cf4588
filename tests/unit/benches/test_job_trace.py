"""Recurring jobs from recorded tables."""

from dataclasses import replace
from itertools import product

import pytest

from job_tables import SIZES, TRAIN, power_table, train_table, write_tables
from wattune.core.errors import InputError
from wattune.core.job import JobChoice
from wattune.core.setting import Setting
from wattune_bench.job.trace import JobDrift, Training, read_workloads


@pytest.fixture
def workload(tmp_path):
    (found,) = read_workloads(write_tables(tmp_path))
    return found


def test_a_dataset_without_a_published_target_gets_a_derived_one(workload):
    job = workload.job
    assert (job.batch_sizes, job.target, job.higher_is_better) == (SIZES, 0.6, True)
    assert job.default_batch_size == 64
    assert job.max_epochs == 27
    assert "derived" in workload.notes[0]


def test_a_metric_that_falls_is_better_when_lower(tmp_path):
    write_tables(tmp_path)
    rows = [line.split(",") for line in train_table().splitlines()[1:]]
    for row in rows:
        row[6] = str(round(1 - float(row[6]), 1))
    (tmp_path / "summary_train.csv").write_text(TRAIN + "".join(",".join(row) + "\n" for row in rows))
    (workload,) = read_workloads(tmp_path)
    assert (workload.job.higher_is_better, workload.job.target) == (False, 0.4)
    first = workload.trainings[64][0]
    assert workload.length(first) == (8, True)
    assert first.metrics(8) == (None, 0.8, 0.8, 0.6, 0.6, 0.6, 0.6, 0.4)


def test_published_jobs_are_as_published_or_as_near_as_there_is(tmp_path):
    (workload,) = read_workloads(write_tables(tmp_path, dataset="cifar100"))
    assert (workload.job.target, workload.job.max_epochs) == (0.6, 100)
    assert workload.job.default_batch_size == 256
    assert "1024 was not measured here; 256 instead" in workload.notes[0]


def test_empty_and_nan_mean_never(tmp_path):
    (workload,) = read_workloads(write_tables(tmp_path, never=(16,)))
    assert workload.expected(JobChoice(16, Setting(power_limit_w=250.0))) is None
    assert workload.length(workload.trainings[16][0]) == (workload.job.max_epochs, False)


def test_missing_cells_and_other_limits_are_fine(workload):
    assert len(workload.epochs[256]) == 3
    assert workload.gpu.max_power_w == 250
    assert workload.horizon == 2 * 5 * 4
    assert workload.default == JobChoice(64, Setting(power_limit_w=250.0))


def test_the_oracle_is_the_best_of_all_cells(workload):
    objective, target = workload.objective, workload.job.target
    least = float("inf")
    for size, setting in product(SIZES, workload.epochs[64]):
        if setting not in workload.epochs[size]:
            continue
        lengths = []
        for training in workload.trainings[size]:
            metrics = training.metrics(workload.job.max_epochs)
            lengths.append(next((at for at, m in enumerate(metrics, 1) if m is not None and m >= target), None))
        paid = sum(workload.job.max_epochs if length is None else length for length in lengths)
        successes = sum(length is not None for length in lengths)
        if successes:
            least = min(least, paid / successes * objective.value(workload.epochs[size][setting]))
    choice, cost = workload.oracle
    assert objective.value(cost) == pytest.approx(least)
    assert choice.batch_size == 128


def test_other_weights_have_other_oracles(workload):
    assert workload.wanting("cost:0").oracle[0].setting == Setting(power_limit_w=250.0)
    assert workload.wanting("cost:1").oracle[0].setting == Setting(power_limit_w=125.0)


def test_drift_makes_trainings_longer_or_moves_them(workload):
    longer = workload.patient(4).drifted(JobDrift(factor=1.5))
    assert [longer.length(training)[0] for training in longer.trainings[64]] == [12, 14, 15]
    moved = workload.patient(4).drifted(JobDrift(shift=2))
    assert moved.trainings[32] == workload.trainings[128]
    assert moved.trainings[256] == workload.trainings[256]
    assert (JobDrift(factor=1.5).name, JobDrift(shift=2).name) == ("x1.5", "shift 2")


def test_metrics_are_the_best_so_far():
    training = Training(((2, 0.1), (3, 0.5)))
    assert training.metrics(5) == (None, 0.1, 0.5, 0.5, 0.5)
    assert training.metrics(1) == (None,)


def test_a_target_that_nothing_reaches_is_one_line(workload):
    with pytest.raises(InputError, match=r"no recorded training reaches 0\.9"):
        _ = replace(workload, job=replace(workload.job, target=0.9)).oracle


def test_what_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(InputError, match="has no tables of recurring jobs"):
        read_workloads(tmp_path)
    write_tables(tmp_path)
    with pytest.raises(InputError, match="no table of GPU 'h100'"):
        read_workloads(tmp_path, ["h100"])
    (tmp_path / "summary_train.csv").write_text(TRAIN + "toy,net,16,adam,1e-3,1,0.6,-3\n")
    with pytest.raises(InputError, match="line 2, column target_epoch"):
        read_workloads(tmp_path)


def test_the_folder_above_will_do(tmp_path):
    write_tables(tmp_path / "zeus", gpus=("p100", "t4"))
    assert [workload.gpu.name for workload in read_workloads(tmp_path)] == ["p100", "t4"]


def test_sizes_of_one_table_alone_are_left_out(tmp_path):
    write_tables(tmp_path)
    (tmp_path / "summary_power_p100.csv").write_text(power_table(sizes=(32, 64, 512)))
    (workload,) = read_workloads(tmp_path)
    assert workload.job.batch_sizes == (32, 64)
