"""A program that takes seconds to start is compared by its steps, on a simulated GPU that it follows."""

import json
import re
import sys
from pathlib import Path

import pytest

from command import Command

pytest.importorskip("torch")

TRAINER = str(Path(__file__).with_name("start_up_trainer.py"))
START_UP_S, STEPS = "2.5", "40"
BEST = "1200MHz"
"""Of an A100 that trains ResNet-50, within 5 % more time: +3.9 % time, −11.7 % energy."""
LINE = ("--", sys.executable, TRAINER, START_UP_S, STEPS)


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def simulated(command, *arguments, follow=("--follow",)):
    """Run a command of wattune beside a simulated GPU; its one document is on standard output."""
    done = command("simulate", *follow, "--gpu", "a100", "--", sys.executable, "-m", "wattune", *arguments)
    assert done.returncode == 0, done.stderr
    return done


def true_change(command):
    """Return by how much time and energy of an iteration differ at the best clock, by the physics alone."""
    played = json.loads(command("sweep", "--device", "sim:a100", "--setting", BEST, "--json").stdout)
    best = played["trials"][1]
    return best["slowdown_percent"], -best["saving_percent"]


def test_start_up_is_no_part_of_what_a_sweep_compares_and_hold_claims_what_was_compared(command):
    time_percent, energy_percent = true_change(command)
    assert (time_percent, energy_percent) == (pytest.approx(3.9, abs=0.1), pytest.approx(-11.7, abs=0.1))

    before = json.loads(simulated(command, "hold", BEST, "--json", *LINE).stdout)
    assert "was not measured in the same way" in before["against_default"]["unknown"]

    swept = json.loads(simulated(command, "sweep", "--setting", BEST, "--json", *LINE).stdout)
    assert (swept["per"], swept["counted_by"], swept["start_up"]) == ("step", "optimizer", None)
    best = swept["trials"][1]
    assert best["slowdown_percent"] == pytest.approx(time_percent, abs=best["slowdown_error_percent"] + 0.1)
    assert best["saving_percent"] == pytest.approx(-energy_percent, abs=best["saving_error_percent"] + 0.1)

    held = json.loads(simulated(command, "hold", BEST, "--json", *LINE).stdout)
    steps, found = held["steps"], held["against_default"]
    assert steps["before_s"] > float(START_UP_S)
    assert steps["time_s"] + steps["before_s"] <= held["total"]["time_s"]
    assert found["per"] == "step"
    assert found["time_percent"] == pytest.approx(time_percent, abs=found["time_error_percent"] + 0.1)
    assert found["energy_percent"] == pytest.approx(energy_percent, abs=found["energy_error_percent"] + 0.1)

    said = simulated(command, "hold", BEST, *LINE).stderr
    assert re.search(r"as the sweep of .* measured it, per step: time \+\d.* energy −1\d.* \(simulated\)", said)


def test_a_pattern_counts_where_the_hook_must_not(command):
    line = ("--step-pattern", r"step (\d+)", "--json", *LINE)
    found = json.loads(simulated(command, "measure", *line).stdout)["steps"]
    assert found["counted_by"] in ("pattern", "optimizer")
    assert 20 <= found["count"] < 40
    assert found["per_step"]["time_s"] > 0.06  # an iteration of the simulated GPU takes 68 ms


def test_a_program_that_does_not_follow_the_gpu_supports_no_claim(command):
    done = simulated(command, "hold", BEST, "--json", *LINE, follow=())
    found = json.loads(done.stdout)
    assert found["steps"] is None
    assert "does not follow its clock" in found["against_default"]["unknown"]


def test_without_steps_a_sweep_names_the_start_up(command):
    line = ("--setting", BEST, "--", sys.executable, "-c", "import time; time.sleep(0.5)")
    done = simulated(command, "sweep", *line)
    assert "Each run has the start-up of the command in it, since no steps were counted" in done.stdout
