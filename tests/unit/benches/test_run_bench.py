"""`wattune bench run`: the simulated programs, the windows of them, recorded sweeps, and what is printed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wattune.cli.main import run
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.policy import CurvePolicy
from wattune.physics.catalog import load_model
from wattune_bench.family import family
from wattune_bench.run.family_program import FamilyProgram, StepClock, play_program
from wattune_bench.run.policies import make_policy
from wattune_bench.run.table import RecordedWorkload, TableBench, bench_table, play_workload, rippled

HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


def program(name, *, seconds=300.0, seed=0):
    member = next(member for member in family(seed=seed) if member.name == name)
    return FamilyProgram.of(load_model("3080ti"), member, seconds=seconds)


def table(*rows):
    return HEAD + "".join(",".join(str(cell) for cell in row) + "\n" for row in rows)


CLOCKS = table(
    ("net", "", "", "", 1.0, 300.0),
    *(
        ("net", mhz, "", "", 0.6 + 0.4 * 1400 / mhz, (0.6 + 0.4 * 1400 / mhz) * (80 + 220 * (mhz / 1400) ** 2.5))
        for mhz in range(800, 1401, 60)
    ),
)


def test_the_work_is_whole_passes_and_costs_what_the_gpu_spends():
    found = program("gnn/zinc-gat")
    gpu = SimulatedGpu(found.model)
    gpu.run(found.member.run, iterations=found.passes)
    default = found.cost(DRIVER_DEFAULT)
    assert default.time_s == pytest.approx(300.0, rel=0.05)
    assert gpu.read().time_s == pytest.approx(default.time_s)
    assert gpu.truth_j == pytest.approx(default.energy_j)


def test_the_oracle_is_the_best_fixed_setting_within_the_limit():
    found = program("gnn/tsp-gcn")
    best = found.oracle(0.05)
    assert best.cost.time_s <= 1.05 * best.default.time_s
    for sm_mhz in (600, 900, 1200, 1500, 2055):
        cost = found.cost(Setting(sm_mhz))
        if cost.time_s <= 1.05 * best.default.time_s:
            assert cost.energy_j >= best.cost.energy_j


def test_steps_are_reported_when_they_end_also_where_the_clock_changes():
    found = program("aibench/image-classification")
    time = VirtualTime()
    gpu = SimulatedGpu(found.model, time=time)
    gpu.play(found.member.run)
    clock, ends_s = StepClock(found.member.loop), []
    pass_s = found.cost(DRIVER_DEFAULT).time_s / found.passes
    for place in range(200):
        time.wait(pass_s / 100)
        if place == 50:
            gpu.apply(Setting(1200))
        ends_s += clock.ends_s(gpu)
    assert ends_s == sorted(ends_s)
    assert ends_s[-1] <= time.now_s()
    steps = len([end_s for end_s in ends_s if end_s <= pass_s / 2])
    timeline, now_s = gpu.present()
    per_pass = steps / 0.5
    assert len(ends_s) == pytest.approx(per_pass * timeline.iterations(now_s), rel=0.2)


@pytest.mark.parametrize("reports_steps", [False, True])
def test_a_run_under_the_session_is_charged_with_its_search(reports_steps):
    found = program("aibench/video-prediction")
    policy = make_policy("wattune", found.model, slowdown=0.05)
    played = play_program(found, policy, slowdown=0.05, seed=0, reports_steps=reports_steps)
    assert played.end.work == pytest.approx(found.passes)
    assert played.step_time_from == ("steps" if reports_steps else "period")
    assert played.changes >= 1
    in_windows = sum(one.cost.time_s + one.settling.time_s for one in played.windows)
    assert in_windows == pytest.approx(played.end.cost.time_s, abs=2.0)
    assert played.end.cost.time_s <= 1.05 * found.oracle(0.05).default.time_s


def test_only_a_policy_that_needs_counters_gets_them():
    found = program("aibench/image-classification", seconds=120.0)
    for name, gets in (("gpoeo", True), ("mf-gpoeo", False)):
        policy = make_policy(name, found.model, slowdown=0.05)
        played = play_program(found, policy, slowdown=0.05, seed=0)
        assert any(window.features for window in played.windows) == gets


def test_the_bench_prints_rows_and_goals(capsys):
    command = ["bench", "run", "--simulated", "--seeds", "1", "--workload", "zinc-gat", "--hours", "0.05"]
    policies = [word for name in ("default", "mf-gpoeo", "wattune", "oracle") for word in ("--policy", name)]
    assert run([*command, *policies, "--processes", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["simulated"] is True
    assert {row["policy"] for row in document["rows"]} == {"default", "mf-gpoeo", "wattune", "oracle"}
    wanted = {"workload", "policy", "seed", "saving_percent", "oracle_saving_percent", "slowdown_percent"}
    wanted |= {"promise_kept", "evaluations", "windows", "changes", "run_saving_percent", "run_slowdown_percent"}
    assert wanted | {"search_s", "break_even_s"} <= set(document["rows"][0])
    ours = next(row for row in document["rows"] if row["policy"] == "wattune")
    assert ours["windows"] > ours["evaluations"]
    assert ours["changes"] >= 1
    oracle = next(row for row in document["rows"] if row["policy"] == "oracle")
    assert oracle["promise_kept"]
    assert document["summary"]["published_saving_percent"] == 16.2


def test_people_see_means_and_a_picture(tmp_path, capsys):
    plot = tmp_path / "run.html"
    command = ["bench", "run", "--seeds", "1", "--workload", "csl-gin", "--hours", "0.05", "--processes", "1"]
    assert run([*command, "--policy", "wattune", "--policy", "oracle", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "means over all runs (simulated)" in out
    assert "within the slowdown limit" in out
    assert "simulated" in plot.read_text()


def test_only_recorded_settings_are_set_and_whole_runs_keep_to_the_limit(tmp_path, capsys):
    file = tmp_path / "clocks.csv"
    file.write_text(CLOCKS)
    assert run(["bench", "run", "--table", str(file), "--seeds", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ours = [row for row in document["rows"] if row["policy"] == "wattune"]
    assert len(ours) == 2
    assert all(row["slowdown_percent"] < 5.5 for row in ours)  # one run in a hundred may exceed its limit, by little
    assert all(row["windows"] > row["evaluations"] and row["changes"] >= 1 for row in ours)
    assert sum(row["oracle_saving_percent"] - row["run_saving_percent"] for row in ours) / 2 < 4.0
    assert {row["policy"] for row in document["rows"]} == {"default", "grid", "wattune", "oracle"}
    grid = next(row for row in document["rows"] if row["policy"] == "grid")
    assert grid["evaluations"] == 11


def test_several_tables_are_judged_each_and_together(tmp_path, capsys):
    files = [tmp_path / "clocks.csv", tmp_path / "coarse.csv"]
    files[0].write_text(CLOCKS)
    coarse = [("net", "", "", "", 1.0, 200.0), ("net", 1400, "", "", 1.0, 200.0), ("net", 1100, "", "", 1.1, 170.0)]
    files[1].write_text(table(*coarse))
    command = ["bench", "run", *(f"--table={file}" for file in files), "--seeds", "1", "--hours", "0.25"]
    assert run([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    tables = document["summary"]["tables"]
    each, mean, worst = tables[:-2], *tables[-2:]
    assert [row["table"] for row in each] == ["clocks.csv", "coarse.csv"]
    assert each[1]["of_single_percent"] is None, "no single setting saves anything"
    assert mean["of_mixture_percent"] == pytest.approx(sum(row["of_mixture_percent"] for row in each) / 2)
    assert worst["saving_percent"] == min(row["saving_percent"] for row in each)
    assert document["summary"]["hours"] == 0.25
    assert max(row["search_s"] or 0.0 for row in document["rows"] if row["policy"] == "wattune") <= 900.0
    assert run(command) == 0
    assert "wattune on each table" in capsys.readouterr().out


def test_a_table_without_a_default_is_compared_with_its_highest_setting(tmp_path, capsys):
    file = tmp_path / "limits.csv"
    limits = [(100, 1.9), (150, 1.3), (200, 1.06), (225, 1.02), (250, 1.0)]
    file.write_text(table(*(("net", "", "", watts, time_s, 0.93 * watts * time_s) for watts, time_s in limits)))
    assert run(["bench", "run", "--table", str(file), "--seeds", "1"]) == 0
    assert "no row of the driver's default" in capsys.readouterr().out


@pytest.mark.parametrize(
    "rows",
    [
        (("one", 1400, "", "", 1.0, 200.0),),
        (("two", 1400, "", "", 1.0, 200.0), ("two", 1200, "", "", 1.02, 160.0)),
        (("flat", "", "", 250, 1.0, 50.0), ("flat", "", "", 200, 1.0, 50.0), ("flat", "", "", 100, 1.0, 50.0)),
    ],
)
def test_tiny_tables(rows, tmp_path, capsys):
    file = tmp_path / "tiny.csv"
    file.write_text(table(*rows))
    assert run(["bench", "run", "--table", str(file), "--seeds", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert all(row["promise_kept"] for row in document["rows"])


@pytest.mark.parametrize(
    "words",
    [
        ["--simulated", "--table", "x.csv"],
        ["--slowdown", "fast"],
        ["--slowdown", "5"],
        ["--workload", "nonesuch"],
        ["--policy", "nonesuch"],
        ["--gpu", "nonesuch"],
        ["--plot", "run.txt"],
        ["--table", "nonesuch.csv"],
    ],
)
def test_wrong_usage_is_said_in_a_line(words, capsys):
    assert run(["bench", "run", *words]) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_two_settings_by_turns_bound_what_a_run_can_save():
    """By brute force over shares of the work at each pair of settings."""
    costs = {
        Setting(mhz): Measurement(0.6 + 0.4 * 1400 / mhz, (0.6 + 0.4 * 1400 / mhz) * (80 + 220 * (mhz / 1400) ** 2.5))
        for mhz in (800, 1000, 1200, 1400)
    }
    workload = RecordedWorkload.of("x.csv", "net", costs)
    base = workload.costs[workload.reference]
    best = max(
        1 - (share * one.energy_j + (1 - share) * two.energy_j) / base.energy_j
        for one in workload.costs.values()
        for two in workload.costs.values()
        for share in (place / 400 for place in range(401))
        if share * one.time_s + (1 - share) * two.time_s <= 1.05 * base.time_s
    )
    assert workload.mixture_saving(0.05) == pytest.approx(best, abs=0.002)
    assert workload.mixture_saving(0.05) > workload.oracle(0.05).saving
    assert workload.mixture_saving(9.0) == pytest.approx(workload.oracle(9.0).saving)


OWN = """
from wattune import Order, Purpose, Setting

class Low:
    def __init__(self, objective): ...
    def step(self, windows, spec):
        return Order(setting=Setting(sm_mhz=1200), purpose=Purpose.HOLD, least_s=60, most_s=60)
"""


def test_a_policy_of_ones_own_is_played_on_a_table_beside_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.csv").write_text(
        table(("net", 1400, "", "", 1.0, 300), ("net", 1200, "", "", 1.03, 250), ("net", 1000, "", "", 1.2, 230))
    )
    (tmp_path / "table_policy_of_mine.py").write_text(OWN)
    mine = "table_policy_of_mine:Low"
    asked = TableBench(tables=(tmp_path / "sweep.csv",), seeds=1, hours=0.1, policies=(mine,), processes=1)
    rows = {row["policy"]: row for row in bench_table(asked).rows}
    assert set(rows) == {"default", "grid", "wattune", mine, "oracle"}
    assert rows[mine]["slowdown_percent"] == pytest.approx(3.0, abs=0.1)
    with pytest.raises(InputError, match="zeus cannot be chosen for a table"):
        bench_table(replace(asked, policies=("zeus",)))


def test_a_ripple_is_drawn_once_for_each_table():
    smooth = {Setting(mhz): Measurement(1.0, 300.0) for mhz in range(1000, 1400, 5)}
    drawn = rippled(smooth, 0.01, draw="a.csv net")
    assert drawn == rippled(smooth, 0.01, draw="a.csv net") != rippled(smooth, 0.01, draw="b.csv net")
    for factors in ([cost.time_s for cost in drawn.values()], [cost.energy_j / 300.0 for cost in drawn.values()]):
        assert 0.007 < np.std(factors) < 0.013
        assert np.mean(factors) == pytest.approx(1.0, abs=0.005)


def test_a_setting_that_an_odd_measurement_hides_is_found():
    """The step below the baseline spends more than the next one, as profiles of real limits show at times."""
    costs = {250: (1.0, 220.0), 225: (1.09, 226.0), 200: (1.07, 198.0), 175: (1.2, 190.0), 150: (1.25, 178.0)}
    workload = RecordedWorkload.of(
        "odd.csv", "net", {Setting(power_limit_w=float(limit)): Measurement(*cost) for limit, cost in costs.items()}
    )
    asked = TableBench(tables=(Path("odd.csv"),))
    policy = CurvePolicy(
        objective=LeastEnergy(0.05), candidates=tuple(sorted(workload.costs)), baseline=workload.reference
    )
    for seed in range(3):
        played = play_workload(workload, policy, asked, seed=seed)
        default = workload.oracle(0.05).default
        assert played.end.cost.energy_j < 0.97 * default.energy_j
        assert played.end.cost.time_s <= 1.05 * default.time_s


def test_lower_settings_are_found_below_an_outlier():
    """One limit is slow beyond reason; turns with it use up all slack, and the lower ones save far more."""
    costs = {250: (1.0, 190.0), 225: (1.071, 183.0), 200: (1.024, 167.0), 175: (1.037, 155.0), 150: (1.019, 145.0)}
    workload = RecordedWorkload.of(
        "outlier.csv", "net", {Setting(power_limit_w=float(limit)): Measurement(*cost) for limit, cost in costs.items()}
    )
    asked = TableBench(tables=(Path("outlier.csv"),))
    policy = CurvePolicy(
        objective=LeastEnergy(0.05), candidates=tuple(sorted(workload.costs)), baseline=workload.reference
    )
    for seed in range(3):
        played = play_workload(workload, policy, asked, seed=seed)
        assert played.end.cost.energy_j < 0.88 * workload.oracle(0.05).default.energy_j


def test_every_workload_has_noise_of_its_own():
    costs = {Setting(mhz): Measurement(1.0 + 100.0 / mhz, mhz) for mhz in (1000, 1200, 1410)}
    asked = TableBench(tables=(Path("a.csv"),))

    def first_window(name):
        workload = RecordedWorkload.of("a.csv", name, costs, hours=0.05)
        policy = CurvePolicy(objective=LeastEnergy(0.05), candidates=tuple(sorted(costs)), baseline=workload.reference)
        return play_workload(workload, policy, asked, seed=0).windows[0]

    assert first_window("one") == first_window("one") != first_window("other")


def test_clocks_below_those_that_change_nothing_are_tried():
    """A power limit holds the clock at 1290 MHz, which a table does not show."""
    times = {mhz: max(1290 / mhz, 1.0) ** 0.4 for mhz in range(1095, 2041, 45)}
    workload = RecordedWorkload.of(
        "capped.csv",
        "net",
        {Setting(mhz): Measurement(time_s, 72.0 / time_s) for mhz, time_s in times.items()},
        hours=0.4,
    )
    policy = CurvePolicy(
        objective=LeastEnergy(0.05), candidates=tuple(sorted(workload.costs)), baseline=workload.reference
    )
    best = workload.oracle(0.05)
    for seed in (51, 52):
        played = play_workload(workload, policy, TableBench(tables=(Path("capped.csv"),)), seed=seed)
        assert 1 - played.end.cost.energy_j / best.default.energy_j > 0.6 * best.saving
