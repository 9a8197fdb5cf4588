"""`wattune run` around a program that prints the phases of its steps."""

import json
import signal
import sys

from command import Command, complaint

PHASES = ("--step-pattern", r"step (\d+)", "--phase-pattern", r"phase (\w+)")
SHORT = "a clock takes 80 ms to change"
SCRIPT = """
import time
for step in range(1, 100_000):
    print("phase forward")
    time.sleep(0.03)
    print("phase optimizer")
    time.sleep(0.02)
    print("step", step)
"""


def test_phases_that_are_printed_are_measured_and_short_ones_are_reported_once(tmp_path):
    line = ("--device", "sim:rtx-a4000", *PHASES, "--", sys.executable, "-c", SCRIPT)
    process = Command(tmp_path).start("run", "--json", "--screen", *line)
    assert any(SHORT in line for line in process.stderr)  # however long that takes on a busy machine
    process.terminate()
    found = json.loads(process.communicate()[0])
    assert process.returncode == 128 + signal.SIGTERM
    phases = found["windows"][0]["phases"]
    assert [one["phase"] for one in phases] == ["forward", "optimizer"]
    assert sum(one["time_s"] for one in phases) > 0
    assert found["held_by_phase"] == {}
    assert sum(SHORT in event["text"] for event in found["events"]) == 1


def test_phases_without_steps_are_refused(tmp_path):
    done = Command(tmp_path)("run", "--device", "sim:a100", "--phase-pattern", r"phase (\w+)", "--", "true")
    assert done.returncode == 2
    assert "--phase-pattern needs --step-pattern" in done.stderr


def test_a_pattern_without_a_name_gets_one_line(tmp_path):
    error, hint = complaint(Command(tmp_path)("run", "--step-pattern", "a", "--phase-pattern", "phase", "--", "true"))
    assert "no group for the name of the phase" in error
    assert "parentheses" in hint
