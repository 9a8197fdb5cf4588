"""The bench on made measurements, and on the public ones where they are at hand."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from wattune.cli.main import run
from wattune.core.setting import Setting
from wattune.physics.catalog import load_model
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.physics import bench_physics
from wattune_bench.physics.fits import (
    judge_clock_sweep,
    judge_overlap,
    judge_stages,
    judge_stress,
    judge_table,
)
from wattune_bench.physics.judgement import Judgement, never_falling, never_rising, relative
from wattune_bench.physics.published import PublishedWorkload, judge_published
from wattune_bench.physics.streams import judge_streams
from wattune_bench.physics.volta import CLOCKS_MHZ, unseen_programs

PUBLIC = Path(os.environ.get("WATTUNE_DATA") or "nowhere")
FIELDS = {"dataset", "quantity", "fitted_on", "judged_on", "mape_percent", "source"}


def power_table(folder, gpu="v100"):
    """A power table as a simulated GPU would have given it."""
    model = load_model(gpu)
    rows = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    for size in (16, 32, 64, 128):
        tables = tabulate(model, make_workload(f"resnet50:{size}"))
        mean_w = tuple(table.mean_power_w for table in tables)
        for limit_w in range(100, 251, 25):
            point = loaded_point(model, Setting(power_limit_w=limit_w), mean_w)
            seconds = tables[0].iteration_s[point.column] * 1_281_167 / size
            rows.append(f"imagenet,resnet50,{size},sgd,{limit_w},{seconds},{mean_w[0][point.column]}")
    file = folder / f"summary_power_{gpu}.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


def stage_profile(folder):
    """A stage profile as a simulated A100 would have given it."""
    table = tabulate(load_model("a100"), make_workload("bert-base"))[0]
    rows = ["stage,instruction,frequency,time,energy"]
    for place, mhz in enumerate(table.sm_mhz):
        if 855 <= mhz <= 1200:
            rows.append(f"0,forward,{mhz},{table.iteration_s[place]},{table.iteration_j[place]}")
    file = folder / "stage_profile_made.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


def test_a_made_power_table_is_predicted_from_three_limits_and_from_other_batch_sizes(tmp_path):
    found = judge_table(power_table(tmp_path))
    whole = [judgement for judgement in found if judgement.goal is not None]
    assert [judgement.quantity for judgement in whole] == ["time per epoch", "mean power"] * 2
    for judgement in whole:
        assert judgement.row["mape_percent"] < 5, judgement.row
    assert len(found) == 8


def test_a_made_stage_is_predicted_from_four_clocks(tmp_path):
    time, energy = judge_stages(stage_profile(tmp_path))[:2]
    assert (time.quantity, energy.quantity) == ("time", "energy")
    assert time.row["mape_percent"] < 0.5
    assert energy.row["mape_percent"] < 2


def test_the_bench_finds_what_a_folder_holds(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    stage_profile(tmp_path)
    assert run(["bench", "physics", "--data", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["bench"] == "physics"
    assert all(set(row) >= FIELDS for row in document["rows"])
    assert any(row["dataset"] == "stage_profile_made" for row in document["rows"])
    assert all({"name", "value", "goal", "met"} == set(goal) for goal in document["summary"]["goals"])
    assert "stage_profile_made.csv" in captured.err


def test_without_data_the_bench_says_so(tmp_path):
    bench = bench_physics(None)
    assert any("--data" in note for note in bench.notes)
    assert bench.simulated
    assert all("(simulated)" in row["dataset"] for row in bench.rows if row["fitted_on"].startswith("catalogue: "))


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys):
    assert run(["bench", "physics", "--data", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: there is no folder")
    assert "Traceback" not in captured.err


def test_every_published_outcome_has_a_source_a_range_and_a_verdict():
    rows, goals = judge_published()
    own = [row for row in rows if not row["stands_in"]]
    assert len(own) == len(goals) >= 14
    for row, goal in zip(own, goals, strict=True):
        assert row["inside"] is goal.met
    for row in rows:
        assert row["published_low"] < row["published_high"]
        assert row["source"]
        assert row["fitted_on"].startswith("catalogue: ")
        assert row["inside"] is (row["published_low"] <= row["ours"] <= row["published_high"])
        assert (row["mape_percent"] == 0) is row["inside"]


def test_a_titan_xp_is_judged_on_networks_that_it_was_not_fitted_to():
    rows, _ = judge_published()
    judged = {row["judged_on"] for row in rows if row["dataset"].startswith("titan-xp")}
    assert judged == {"resnet152, inception3"}


def test_a_measured_workload_follows_the_clock_as_published():
    model = load_model("v100-sxm2")
    table = tabulate(model, PublishedWorkload("half", make_workload("vgg19"), 0.5).on(model))[0]
    clocks = np.array(table.sm_mhz, dtype=float)
    used = clocks >= 0.58 * clocks[-1]
    share = np.polyfit(clocks[-1] / clocks[used], table.iteration_s[used] / table.iteration_s[-1], 1)[0]
    assert share == pytest.approx(0.5, abs=0.01)


def test_a_program_of_a_v100_has_its_published_speed_and_highest_power():
    model = load_model("v100-sxm2")
    assert set(CLOCKS_MHZ) <= set(model.clocks[0].sm_mhz)
    programs = {program.name: program for program in unseen_programs(model)}
    assert len(programs) == 17
    for name, speed_at_952, power_w in (("GeMM", 0.653, 244), ("BWtest", 0.965, 143), ("ViT_t", 0.988, 63)):
        table = tabulate(model, programs[name])[0]
        place = table.sm_mhz.index(952)
        assert table.iteration_s[-1] / table.iteration_s[place] == pytest.approx(speed_at_952, rel=0.02)
        assert table.mean_power_w[-1] == pytest.approx(power_w, rel=0.01)


def test_published_stress_points_are_met():
    for judgement in judge_stress():
        assert judgement.goal is not None
        assert judgement.goal.met, judgement.row


def test_the_nearest_row_that_never_rises():
    assert never_rising(np.array([4.0, 2.0, 1.0])).tolist() == pytest.approx([4, 2, 1])
    pooled = never_rising(np.array([4.0, 1.0, 2.0]))
    assert pooled == pytest.approx([4, np.sqrt(2), np.sqrt(2)])
    assert never_falling(np.array([2.0, 1.0, 4.0])) == pytest.approx([np.sqrt(2), np.sqrt(2), 4])


def test_a_judgement_without_points_is_open():
    judgement = Judgement(
        dataset="d",
        quantity="q",
        fitted_on="f",
        judged_on="j",
        errors=relative(np.array([]), np.array([])),
        source="s",
        goal_percent=1.0,
    )
    assert judgement.row["mape_percent"] is None
    assert judgement.goal is not None
    assert judgement.goal.met is None


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public measurements are not here: set WATTUNE_DATA")
class TestPublicMeasurements:
    """Cheap ones of the goals that the bench reports, so that a change that spoils a form is seen at once."""

    def one(self, pattern):
        found = sorted(PUBLIC.glob(pattern))
        if not found:
            pytest.skip(f"no {pattern}")
        return found[0]

    def test_the_clock_sweep_of_an_a4000(self):
        (judgement,) = judge_clock_sweep(self.one("*/fp32_clock_sweep.json"))
        assert judgement.row["mape_percent"] <= 2

    def test_the_overlap_sweep(self):
        time, energy = judge_overlap(self.one("*/attention_allreduce*.csv"))
        assert time.row["mape_percent"] <= 3
        assert energy.row["mape_percent"] <= 1.5

    def test_two_streams_on_the_overlap_sweep(self):
        time, energy = judge_streams(self.one("*/attention_allreduce*.csv"))
        assert time.row["mape_percent"] <= 3
        assert energy.row["mape_percent"] <= 1.5

    def test_gpt3_stages(self):
        time, energy = judge_stages(self.one("*/stage_profile_gpt3*.csv"))[:2]
        assert time.row["mape_percent"] <= 0.7
        assert energy.row["mape_percent"] <= 0.7
