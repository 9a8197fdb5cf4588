"""`wattune bench change`: rows, goals and peers."""

import json

import numpy as np
import pytest

from wattune.cli.main import run
from wattune_bench import change
from wattune_bench.change import DETECTORS, KINDS, Kind, stream


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(change, "QUIET_SAMPLES", 300)
    monkeypatch.setattr(change, "CASES", 2)
    monkeypatch.setattr(change, "KINDS", KINDS[:2])


def test_every_detector_sees_the_same_streams(short, capsys):
    assert run(["bench", "change", "--seeds", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bench"] == "change"
    assert document["simulated"] is True
    quiet = [row for row in document["rows"] if "false_alarms" in row]
    shifts = [row for row in document["rows"] if "shift_percent" in row]
    assert {row["policy"] for row in quiet} == {row["policy"] for row in shifts} == set(DETECTORS)
    assert len(shifts) == 2 * 3 * len(change.SHIFTS)
    goals = {goal["name"]: goal for goal in document["summary"]["goals"]}
    assert goals["shifts of 5 % found in ≤ 10 periods"]["met"] is True
    assert goals["false alarms per 10,000 periods"]["met"] is True


def test_people_see_tables_and_goals(short, capsys):
    assert run(["bench", "change", "--seeds", "1"]) == 0
    out = capsys.readouterr().out
    assert "bench change (simulated GPUs)" in out
    assert "met    shifts of 5 % found" in out


def alarms(name, played):
    return [alarm.place for alarm in DETECTORS[name](played)]


def test_gpoeo_restarts_by_drift_and_is_blind_to_time():
    quiet = stream(Kind("steady", 0.002), 400, np.random.default_rng(0))
    assert alarms("gpoeo", quiet.shifted(100, "period", 1.0)) == []
    assert alarms("gpoeo", quiet.shifted(100, "power", 0.25))[0] == 100
    drift = quiet
    for place in range(100, 400, 10):
        drift = drift.shifted(place, "power", 0.007)
    assert len(alarms("gpoeo", drift)) == 1


def test_mf_gpoeo_needs_three_far_windows_of_five():
    quiet = stream(Kind("steady", 0.002), 200, np.random.default_rng(0))
    assert alarms("mf-gpoeo", quiet) == []
    (first, *_) = alarms("mf-gpoeo", quiet.shifted(100, "power", 0.3))
    assert 108 <= first <= 116


def test_noise_is_what_its_kind_says():
    for kind in KINDS:
        if kind.stalls or kind.warmth:
            continue
        logs = np.log(stream(kind, 40_000, np.random.default_rng(1)).period_s)
        assert np.std(logs) == pytest.approx(kind.noise, rel=0.1)
        assert np.corrcoef(logs[1:], logs[:-1])[0, 1] == pytest.approx(kind.alike, abs=0.03)
