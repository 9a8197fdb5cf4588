"""The pipeline commands as processes: one hands its file to the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import Command, complaint
from pipelines import profile_csv


@pytest.fixture
def wattune(tmp_path: Path) -> Command:
    (tmp_path / "p.csv").write_text(profile_csv(4))
    return Command(tmp_path)


def done(wattune: Command, *arguments: str) -> str:
    found = wattune("pipeline", *arguments)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    return found.stdout


def test_from_profile_to_schedules_and_back(wattune: Command) -> None:
    arguments = ("--profile", "p.csv", "--blocking-power", "60")
    plan = json.loads(done(wattune, "plan", *arguments, "--microbatches", "6", "--out", "plan.json", "--json"))
    assert "rank 3" in done(wattune, "show", "plan.json", "--svg", "plan.svg")
    done(wattune, "export", "plan.json", "--format", "perseus", "--out", "schedules")
    again = json.loads(done(wattune, "import", "schedules", *arguments, "--out", "again.json", "--json"))
    assert [row["energy_j"] for row in again["frontier"]] == pytest.approx(
        [row["energy_j"] for row in plan["frontier"]]
    )
    rows = json.loads(done(wattune, "verify", "again.json", "--profile", "p.csv", "--json"))["plans"]
    assert max(abs(row["energy_percent"]) for row in rows) < 1e-6


def test_a_schedule_that_is_a_program_is_not_run(wattune: Command) -> None:
    schedules = wattune.folder / "schedules"
    schedules.mkdir()
    (schedules / "freqs_pipeline_00000.py").write_text("open('was-run', 'w').close()\n[[('forward', 1400)]]\n")
    said, _ = complaint(wattune("pipeline", "import", "schedules", "--profile", "p.csv", "--blocking-power", "60"))
    assert "line 1: \"open('was-run'" in said
    assert not (wattune.folder / "was-run").exists()


def test_a_plan_that_cannot_be_written_leaves_the_old_one(wattune: Command) -> None:
    (wattune.folder / "plan.json").write_text("old")
    arguments = ("plan", "--profile", "p.csv", "--blocking-power", "60", "--microbatches", "6", "--out", "plan.json")
    said, _ = complaint(wattune("pipeline", *arguments, largest_file=2000))
    assert "plan.json" in said
    assert (wattune.folder / "plan.json").read_text() == "old"
