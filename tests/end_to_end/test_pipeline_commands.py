"""The pipeline commands as processes: one hands its file to the next."""

from __future__ import annotations

import json
import time
from itertools import groupby
from pathlib import Path

import pytest

from command import Command, complaint
from pipelines import profile_csv
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import load_model


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
    message, _ = complaint(wattune("pipeline", "import", "schedules", "--profile", "p.csv", "--blocking-power", "60"))
    assert "line 1: \"open('was-run'" in message
    assert not (wattune.folder / "was-run").exists()


def test_a_plan_that_cannot_be_written_leaves_the_old_one(wattune: Command) -> None:
    (wattune.folder / "plan.json").write_text("old")
    arguments = ("plan", "--profile", "p.csv", "--blocking-power", "60", "--microbatches", "6", "--out", "plan.json")
    message, _ = complaint(wattune("pipeline", *arguments, largest_file=2000))
    assert "plan.json" in message
    assert (wattune.folder / "plan.json").read_text() == "old"


def test_the_file_of_a_plan_is_played_while_a_schedule_trains(wattune: Command) -> None:
    """Plan for one rank, write the file, play it on a simulated GPU under PyTorch."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")
    from torch.distributed import pipelining

    from wattune.integrations.pipelining import played

    (wattune.folder / "one.csv").write_text(profile_csv(1, clocks=(1410, 1200, 900)))
    arguments = ("--profile", "one.csv", "--blocking-power", "60", "--microbatches", "4", "--deadline", "0.128")
    done(wattune, "plan", *arguments, "--out", "plan.json")
    (steps,) = json.loads(done(wattune, "show", "plan.json", "--json"))["steps"]
    planned_mhz = [mhz for mhz, _ in groupby(step["sm_mhz"] for step in steps)]
    torch.distributed.init_process_group("gloo", init_method=f"file://{wattune.folder}/meeting", rank=0, world_size=1)
    try:
        stage = pipelining.PipelineStage(torch.nn.Linear(4, 4), 0, 1, torch.device("cpu"))
        schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)
        gpu = RecordingGpu()
        with played(schedule, wattune.folder / "plan.json", gpu) as clocks:
            schedule.step(torch.zeros(8, 4), target=torch.ones(8, 4))
            while len(gpu.applied_mhz) + clocks.skipped < len(planned_mhz):  # the thread of the clocks must get on
                time.sleep(0.001)
            applied_mhz = list(gpu.applied_mhz)
    finally:
        torch.distributed.destroy_process_group()
    assert len(planned_mhz) > 1
    # Instructions of this small model are over before a clock is set, and a setting that is out of date is skipped.
    remaining = iter(planned_mhz)
    assert all(mhz in remaining for mhz in applied_mhz)
    assert len(applied_mhz) == len(planned_mhz) - clocks.skipped
    assert applied_mhz[-1] == planned_mhz[-1]
    assert gpu.setting == DRIVER_DEFAULT


class RecordingGpu(SimulatedGpu):
    """A simulated A100 that records the core clocks that are set."""

    def __init__(self) -> None:
        super().__init__(load_model("a100"))
        self.applied_mhz: list[int | None] = []

    def apply(self, setting: Setting) -> None:
        super().apply(setting)
        self.applied_mhz.append(setting.sm_mhz)
