from __future__ import annotations

import importlib.util
import json

import pytest

from pipelines import profile_csv
from wattune.cli.main import run
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.plans.stage_profile import parse_stage_profile
from wattune_bench.pipeline import bench
from wattune_bench.pipeline.cases import at_equal_time, find_cases, made_up_profile, peer_times_s, solve

BLOCKING_W = 83.64


def text(stages=2):
    """A profile whose every row spends more than the blocking power of an A100."""
    header, *rows = profile_csv(stages).splitlines()
    scaled = []
    for row in rows:
        *head, time_s, energy_j = row.split(",")
        scaled.append(",".join((*head, repr(3 * float(time_s)), repr(6 * float(energy_j)))))
    return "\n".join((header, *scaled)) + "\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "perseus").mkdir()
    (tmp_path / "perseus" / "stage_profile_gpt3-175b_a100.csv").write_text(text())
    return tmp_path


def test_profiles_are_found_with_their_power_and_published_figures(folder):
    (folder / "stage_profile_bert_a40.csv").write_text(text())
    (folder / "stage_profile_bert_h100.csv").write_text(text())
    (folder / "other.csv").write_text("a,b\n1,2\n")
    cases, remarks = find_cases(folder)
    powers_w = {case.name: case.blocking_power_w for case in cases}
    assert powers_w["gpt3-175b_a100"] == 83.64
    assert powers_w["bert_a40"] == 70.38
    assert (
        0
        < powers_w["bert_h100"]
        < 0.5 * min(trial.cost.power_w for trials in cases[0].profile.options.values() for trial in trials)
    )
    published = {case.name: case.published for case in cases}
    assert published["gpt3-175b_a100"].saving_percent[12] == 15.20
    assert published["bert_a40"] is None
    assert len(remarks) == 1
    assert "h100" in remarks[0]


def test_a_folder_without_profiles_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no stage profile"):
        find_cases(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        find_cases(tmp_path / "none")


def test_the_made_up_profile_has_its_stages_and_clocks():
    profile = parse_stage_profile(made_up_profile(parse_stage_profile(text(), file="p"), stages=5, clocks=9), file="m")
    assert profile.stages == 5
    assert {len(trials) for trials in profile.options.values()} == {9}
    profile.check_blocking_power(BLOCKING_W)


@pytest.fixture(scope="module")
def solved():
    profile = parse_stage_profile(text(), file="p.csv")
    found = solve("wattune", text(), profile, microbatches=3, blocking_power_w=BLOCKING_W, points=6)
    return found, found.planned(profile, blocking_power_w=BLOCKING_W)


def test_plans_are_timed_again(solved):
    found, planned = solved
    assert found.late == 0
    assert found.solve_s > 0
    assert found.peak_mb > 1
    assert min(found.gaps_percent) >= -1e-6
    for predicted, trial in zip(found.predicted, found.trials, strict=True):
        assert trial.cost.time_s == pytest.approx(predicted.time_s)
        assert trial.cost.energy_j == pytest.approx(predicted.energy_j)
    assert planned.frontier.fastest.cost.energy_j < planned.default.cost.energy_j


def test_equal_time_counts_who_spends_less(solved):
    _, planned = solved
    own = [trial.cost for trial in planned.frontier]
    same = at_equal_time(planned, own)
    assert (same.compared, same.costlier, same.faster) == (len(own), 0, 0)
    assert same.worst_percent == pytest.approx(0, abs=1e-9)
    better = [Measurement(cost.time_s, 0.9 * cost.energy_j) for cost in own]
    assert at_equal_time(planned, better).costlier == len(own)
    faster = at_equal_time(planned, [Measurement(0.5 * own[0].time_s, 1.0)])
    assert (faster.compared, faster.faster) == (0, 1)


def test_times_of_the_peer_are_spaced_evenly_in_energy(solved):
    found, planned = solved
    energies_j = {trial.cost.time_s: trial.cost.energy_j for trial in planned.frontier}
    fastest, cheapest = planned.frontier.fastest.cost, planned.frontier.cheapest.cost
    assert peer_times_s(found, 2) == pytest.approx((fastest.time_s, cheapest.time_s))
    middle_j = energies_j[peer_times_s(found, 3)[1]]
    assert middle_j == max(
        own_j for own_j in energies_j.values() if own_j <= (fastest.energy_j + cheapest.energy_j) / 2
    )


def test_a_solver_that_gives_up_says_why():
    profile = parse_stage_profile(text(), file="p.csv")
    with pytest.raises(InputError, match=r"nobody gave up on p.csv × 2 microbatches: KeyError: 'nobody'"):
        solve("nobody", text(), profile, microbatches=2, blocking_power_w=BLOCKING_W, points=6)


def test_a_solver_that_takes_too_long_is_stopped():
    profile = parse_stage_profile(text(), file="p.csv")
    with pytest.raises(InputError, match=r"took more than 0.01 s for p.csv × 2 microbatches"):
        solve("wattune", text(), profile, microbatches=2, blocking_power_w=BLOCKING_W, points=6, patience_s=0.01)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench, "PUBLISHED_MICROBATCHES", (12, 96))
    monkeypatch.setattr(bench, "PEER_MICROBATCHES", (12,))
    monkeypatch.setattr(bench, "LARGE_QUICK", (3, 4, 5))


def test_the_bench_without_its_peer_says_so(folder, small, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert run(["bench", "pipeline", "--quick", "--json", "--data", str(folder)]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "wattune: gpt3-175b_a100, 12 microbatches" in captured.err
    rows = found["rows"]
    wanted = "profile schedule stages microbatches points solve_s peer_solve_s speedup gap_mean_percent"
    assert set(wanted.split()) <= set(rows[0])
    assert rows[0]["peer_solve_s"] is None
    figures = [row["figure"] for row in rows if "figure" in row]
    assert len(figures) == 4
    assert rows[-1]["stages"] == 3
    assert any("lowtime is not installed" in note for note in found["summary"]["notes"])
    named = {goal["name"]: goal["met"] for goal in found["summary"]["goals"]}
    assert named["plans that take longer than planned when timed again"] is True


def test_the_bench_needs_data(monkeypatch, capsys):
    monkeypatch.delenv("WATTUNE_DATA", raising=False)
    assert run(["bench", "pipeline"]) == 2
    assert "--data" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("lowtime") is None, reason="lowtime is not installed: ./benches[peers]")
def test_the_peer_solves_the_same_pipeline(solved):
    _, planned = solved
    profile = parse_stage_profile(text(), file="p.csv")
    peer = solve("lowtime", text(), profile, microbatches=3, blocking_power_w=BLOCKING_W, points=6)
    assert len(peer.trials) > 10
    fastest_s = min(trial.cost.time_s for trial in peer.trials)
    assert fastest_s == pytest.approx(planned.frontier.fastest.cost.time_s, rel=0.05)
    assert peer.bounds_j == ()
    times_s = peer_times_s(peer, 12)
    own = solve(
        "wattune", text(), profile, microbatches=3, blocking_power_w=BLOCKING_W, points=2, times_s=times_s
    ).planned(profile, blocking_power_w=BLOCKING_W)
    judged = [trial.cost for trial in peer.trials if trial.cost.time_s in times_s]
    assert at_equal_time(own, judged).saving_percent > 0
