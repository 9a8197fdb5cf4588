import json

import pytest

from wattune.cli.main import run
from wattune_bench import meter
from wattune_bench.result import Bench, Goal

BENCH = Bench(
    bench="meter",
    simulated=True,
    rows=(
        {"tool": "wattune", "error_of_the_worst_window_percent": 0.0431},
        {"tool": "zeus", "error_of_the_worst_window_percent": None},
        {"command": "import wattune", "cpu_s": 0.02},
    ),
    goals=(
        Goal("share of zeus", 0.4, "≤ 0.5", True),
        Goal("calls", 3.0, "≤ 2", False),
        Goal("peer", None, "≤ 1", None),
    ),
    notes=("zeus is not installed",),
)


@pytest.fixture(autouse=True)
def benched(monkeypatch):
    monkeypatch.setattr(meter, "bench_meter", lambda **_: BENCH)
    monkeypatch.setenv("COLUMNS", "40")


def test_the_document_has_rows_and_goals(capsys):
    assert run(["bench", "meter", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["bench"], found["simulated"], len(found["rows"])) == ("meter", True, 3)
    assert found["summary"]["goals"][0] == {"name": "share of zeus", "value": 0.4, "goal": "≤ 0.5", "met": True}
    assert found["summary"]["notes"] == ["zeus is not installed"]


def test_people_see_whole_headings_and_what_was_missed(capsys):
    assert run(["bench", "meter"]) == 0
    out = capsys.readouterr().out
    assert "bench meter (simulated GPUs)" in out
    assert "…" not in out
    assert "not measured" in out
    assert "met    share of zeus: 0.4 (goal ≤ 0.5)" in out
    assert "missed calls: 3 (goal ≤ 2)" in out
    assert "open   peer: not measured (goal ≤ 1)" in out


def test_a_bench_that_is_not_installed_is_named_with_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["bench", "meter"]) == 1
    error = capsys.readouterr().err
    assert "`wattune bench` is not installed" in error
    assert "pip install ./benches" in error
