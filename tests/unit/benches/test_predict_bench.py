"""Training data, models and the bench that judges them."""

import numpy as np
import pytest

from wattune.core.setting import Setting
from wattune.levels.run.gpoeo import training as gpoeo_training
from wattune.levels.run.gpoeo.training import prediction_table, programs_of, settled, training_workloads
from wattune.levels.run.simulated_program import SimulatedProgram, counters
from wattune.physics.catalog import load_model
from wattune.response import boosted_trees
from wattune.workloads.graph import graph_kinds
from wattune_bench import predict
from wattune_bench.family import family

MODEL = load_model("3080ti")
FEW = training_workloads(mixtures=8)[:24]


def test_the_training_has_networks_and_mixtures_and_no_graph_networks():
    names = [workload.name for workload in training_workloads()]
    assert len(names) == len(set(names)) > 200
    assert any(name.startswith("mixture") for name in names)
    assert not {name.partition(":")[0] for name in names} & set(graph_kinds())


def test_the_training_is_the_same_every_time():
    assert training_workloads(mixtures=4) == training_workloads(mixtures=4)
    assert training_workloads(mixtures=4) != training_workloads(mixtures=4, seed=2)


def test_everything_is_over_the_reference():
    table = prediction_table(MODEL, programs_of(MODEL, FEW[:6]))
    assert table.reference == Setting(1800, 9251)
    assert table.mem_mhz == (810, 5001, 9251, 9501)
    assert np.allclose(table.time[:, table.sm_mhz.index(1800)], 1.0)
    assert np.allclose(table.energy[:, table.sm_mhz.index(1800)], 1.0)
    assert np.allclose(table.mem_time[:, 2], 1.0)
    assert np.all(np.diff(table.time, axis=1) <= 1e-12)
    assert np.all((table.features >= 0) & (table.features <= 1))


def test_counters_are_those_that_the_windows_of_the_bench_show():
    program = SimulatedProgram.of(MODEL, family()[0].step, name=family()[0].name)
    table = prediction_table(MODEL, [program])
    column = int(settled(program, 1)[2][table.sm_mhz.index(1800)])
    assert table.features[0].tolist() == list(counters(program, 1, column).values())


def test_above_the_power_limit_a_higher_clock_changes_nothing():
    program = programs_of(MODEL, [workload for workload in training_workloads() if "gpt3" in workload.name][:1])[0]
    time_s, _, held = settled(program, 0)
    assert held[-1] < len(held) - 1
    assert time_s[-1] == time_s[-2]


def test_a_network_is_kept_back_at_all_its_batch_sizes():
    table = prediction_table(MODEL, programs_of(MODEL, FEW))
    seen, unseen = predict.split(table)
    names = [{table.names[place].partition(":")[0] for place in places} for places in (seen, unseen)]
    assert not names[0] & names[1]
    assert len(seen) + len(unseen) == len(FEW)
    assert unseen


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(predict, "training_workloads", lambda: FEW)
    monkeypatch.setattr(predict, "family", lambda seed: family(seed=seed)[:4])


@pytest.mark.parametrize("gpu", ["3080ti", "a100"])
def test_the_bench_has_a_row_for_every_band_quantity_and_predictor(few, gpu):
    pytest.importorskip("lightgbm")
    bench = predict.bench_predict(gpu)
    bands = 4 if gpu == "3080ti" else 3
    assert len(bench.rows) == 2 * 2 * bands * 3
    assert bench.simulated
    assert all(0 <= row["mape_percent"] <= row["worst_percent"] for row in bench.rows)
    assert bench.figures["held_out_workloads"] > 0


def test_without_the_library_the_others_are_judged_and_a_remark_says_why(few, monkeypatch):
    monkeypatch.setattr(predict, "installed", lambda: False)
    bench = predict.bench_predict("a100")
    assert {row["predictor"] for row in bench.rows} == {predict.LINE, predict.MEAN}
    assert any(boosted_trees.MISSING_HINT in note for note in bench.notes)
    assert all(goal.met is None for goal in bench.goals)


def test_models_are_trained_once(monkeypatch):
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(gpoeo_training, "training_workloads", lambda: FEW)
    gpoeo_training.trained_models.cache_clear()
    try:
        assert gpoeo_training.trained_models("a100") is gpoeo_training.trained_models("a100")
    finally:
        gpoeo_training.trained_models.cache_clear()
