"""`wattune bench run`: the simulated programs, the windows of them, recorded sweeps, and what is printed."""

import json

import pytest

from wattune.benchmarks.run.environment import SimulatedRun
from wattune.benchmarks.run.observation import observation_of
from wattune.benchmarks.run.oracle import standard_of
from wattune.benchmarks.run.play import FixedSetting, play
from wattune.benchmarks.run.sweep import SweepRun, play_sweep, sweeps_of
from wattune.cli.main import run
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.devices.table import parse_sweep
from wattune.levels.run.simulated_program import program_of
from wattune.physics.catalog import load_model
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.family import family

HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


def program(name, *, gpu="3080ti", seed=0):
    return program_of(load_model(gpu), next(member for member in family(seed=seed) if member.name == name))


def look(setting=DRIVER_DEFAULT, *, seconds=30.0, purpose=Purpose.TRIAL, precision=None):
    return Order(setting=setting, purpose=purpose, least_s=seconds, most_s=max(seconds, 30.0), precision=precision)


def table(*rows):
    return HEAD + "".join(",".join(str(cell) for cell in row) + "\n" for row in rows)


CLOCKS = table(
    ("net", "", "", "", 1.0, 300.0),
    *(
        ("net", mhz, "", "", 0.6 + 0.4 * 1400 / mhz, (0.6 + 0.4 * 1400 / mhz) * (80 + 220 * (mhz / 1400) ** 2.5))
        for mhz in range(800, 1401, 60)
    ),
)


def test_a_settled_window_agrees_with_the_physics():
    found = program("aibench/video-prediction")
    live = SimulatedRun(found, noisy=False)
    live.look(look(seconds=600.0))
    window = live.look(look(seconds=60.0))
    tables = tabulate(found.model, found.step)
    point = loaded_point(found.model, DRIVER_DEFAULT, tuple(each.limited_power_w for each in tables))
    assert window.sm_mhz == pytest.approx(point.sm_mhz, abs=16)
    assert window.step_time_s == pytest.approx(tables[0].iteration_s[point.column], rel=0.01)
    assert window.power_w <= 351.0


def test_a_cold_gpu_draws_less():
    live = SimulatedRun(program("gnn/collab-gin"), noisy=False)
    cold = live.look(look(seconds=5.0))
    live.look(look(seconds=300.0))
    assert live.look(look(seconds=5.0)).power_w > 1.01 * cold.power_w


def test_nothing_is_lost_between_windows():
    live = SimulatedRun(program("gnn/zinc-gat"), seed=1)
    windows = [live.look(look(Setting(mhz), seconds=7.0)) for mhz in (2055, 1500, 1500, 900)]
    assert sum(w.cost.time_s + w.settling.time_s for w in windows) == pytest.approx(live.spent.time_s)
    assert windows[2].settling.time_s == 0.0
    assert windows[1].settling.time_s > 0.0


def test_windows_are_as_short_as_their_precision_allows():
    live = SimulatedRun(program("aibench/video-prediction"), seed=1)
    rough = live.look(look(seconds=4.0, precision=0.05))
    fine = live.look(look(seconds=4.0, precision=0.002))
    assert rough.cost.time_s < fine.cost.time_s


def test_what_is_seen_depends_on_the_program():
    assert observation_of(program("aibench/video-prediction")).unit == "step"
    assert observation_of(program("gnn/zinc-gat")).unit == "cycle"
    blind = program("gnn/collab-gin")
    assert observation_of(blind).unit is None
    window = SimulatedRun(blind).look(look(seconds=20.0, precision=0.01))
    assert window.step_time_s is None
    assert window.sm_util == pytest.approx(1.0, abs=0.05)


def test_counters_are_read_at_the_reference_only():
    live = SimulatedRun(program("aibench/image-classification"))
    assert not live.look(look()).features
    features = live.look(look(Setting(1800), purpose=Purpose.REFERENCE)).features
    assert set(features) == {"tensor", "fp32", "dram", "sm"}
    assert all(0 <= value <= 1 for value in features.values())


def test_the_oracle_is_the_best_fixed_setting_within_the_promise():
    found = program("gnn/tsp-gcn")
    standard = standard_of(found, seconds=600.0, slowdown=0.05)
    assert standard.oracle.time_s <= 1.05 * standard.default.time_s
    for sm_mhz in (600, 900, 1200, 1500, 2055):
        cost = play(FixedSetting("x", Setting(sm_mhz)), SimulatedRun(found, noisy=False), passes=standard.passes).cost
        if cost.time_s <= 1.05 * standard.default.time_s:
            assert cost.energy_j >= standard.oracle.energy_j * (1 - 1e-9)


def test_the_bench_prints_rows_and_goals(capsys):
    command = ["bench", "run", "--simulated", "--seeds", "1", "--workload", "zinc-gat", "--hours", "0.3"]
    policies = [word for name in ("default", "mf-gpoeo", "wattune", "oracle") for word in ("--policy", name)]
    assert run([*command, *policies, "--processes", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["simulated"] is True
    assert {row["policy"] for row in document["rows"]} == {"default", "mf-gpoeo", "wattune", "oracle"}
    wanted = {"workload", "policy", "seed", "saving_percent", "oracle_saving_percent", "slowdown_percent"}
    assert wanted | {"promise_kept", "evaluations", "search_s", "break_even_s"} <= set(document["rows"][0])
    oracle = next(row for row in document["rows"] if row["policy"] == "oracle")
    assert oracle["promise_kept"]
    assert document["summary"]["published_saving_percent"] == 16.2


def test_people_see_means_and_a_picture(tmp_path, capsys):
    plot = tmp_path / "run.html"
    command = ["bench", "run", "--seeds", "1", "--workload", "csl-gin", "--hours", "0.2", "--processes", "1"]
    assert run([*command, "--policy", "wattune", "--policy", "oracle", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "means over all runs (simulated)" in out
    assert "keep the promise" in out
    assert "simulated" in plot.read_text()


def test_only_recorded_settings_are_chosen_and_the_promise_is_kept(tmp_path, capsys):
    file = tmp_path / "clocks.csv"
    file.write_text(CLOCKS)
    assert run(["bench", "run", "--table", str(file), "--seeds", "6", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ours = [row for row in document["rows"] if row["policy"] == "wattune"]
    assert len(ours) == 6
    assert sum(row["promise_kept"] for row in ours) >= 5
    assert max(row["evaluations"] for row in ours) <= 6
    assert sum(row["oracle_saving_percent"] - row["saving_percent"] for row in ours) / 6 < 4.0
    assert {row["policy"] for row in document["rows"]} == {"default", "grid", "wattune", "oracle"}


def test_a_table_without_a_default_is_compared_with_its_highest_setting(tmp_path, capsys):
    file = tmp_path / "limits.csv"
    limits = [(100, 1.9), (150, 1.3), (200, 1.06), (225, 1.02), (250, 1.0)]
    file.write_text(table(*(("net", "", "", watts, time_s, 0.93 * watts * time_s) for watts, time_s in limits)))
    assert run(["bench", "run", "--table", str(file), "--seeds", "3"]) == 0
    assert "no row of the driver's default" in capsys.readouterr().out


@pytest.mark.parametrize(
    "rows",
    [
        (("one", 1400, "", "", 1.0, 200.0),),
        (("two", 1400, "", "", 1.0, 200.0), ("two", 1200, "", "", 1.02, 160.0)),
        (("flat", "", "", 250, 1.0, 50.0), ("flat", "", "", 200, 1.0, 50.0), ("flat", "", "", 100, 1.0, 50.0)),
    ],
)
def test_tiny_tables(rows):
    (sweep,) = sweeps_of(parse_sweep(table(*rows), file="tiny.csv"))
    outcome = play_sweep(sweep, slowdown=0.05, noise=0.01, seed=0)
    assert outcome.chosen in sweep.costs
    assert sweep.slowdown(outcome.chosen) <= 0.05


def test_noise_is_what_it_says():
    (sweep,) = sweeps_of(parse_sweep(CLOCKS, file="clocks.csv"))
    live = SweepRun(sweep, noise=0.01, seed=0)
    step_times = [live.look(look(seconds=1.0)).step_time_s for _ in range(400)]
    mean = sum(step_times) / 400
    assert (sum((step_time - mean) ** 2 for step_time in step_times) / 400) ** 0.5 == pytest.approx(
        0.01 * mean, rel=0.15
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--simulated", "--table", "x.csv"],
        ["--slowdown", "fast"],
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
