from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattune.cli.main import run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_demo_prints_a_frontier_and_writes_a_report(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for word in ("NVIDIA A100-SXM4-40GB (simulated)", "driver default", "knee", "cheapest", "wattune-report.html"):
        assert word in captured.out
    assert "<svg" in (home / "wattune-report.html").read_text(encoding="utf-8")
    assert not (home / "history.db").exists()


def test_the_demo_as_json_is_marked_simulated_and_names_the_report(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--json", "--out", "other.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"] is True
    assert found["report"] == "other.html"
    assert (home / "other.html").exists()


def test_the_demo_is_the_same_every_time(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["demo", "--json"])
    first = capsys.readouterr().out
    run(["demo", "--json"])
    assert capsys.readouterr().out == first


def test_a_report_that_cannot_be_written_is_one_line_and_a_hint(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--out", "missing/page.html"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: cannot write missing/page.html: no folder to write to",
        "hint: make it first: mkdir -p missing",
    ]
