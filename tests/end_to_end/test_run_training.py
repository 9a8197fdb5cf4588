"""A real training loop under `wattune run`, on a GPU that is emulated behind NVML."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import Command
from wattune.core.setting import Setting

pytest.importorskip("torch")

TRAINER = str(Path(__file__).with_name("run_trainer.py"))
STEPS, MOST = 120, 2000
"""At 70 ms each: a baseline and some time at another clock; more where the machine is busy."""
FOUND = Setting(None, None, 400.0)


@pytest.fixture
def tuning(emulated_node, tmp_path):
    node = emulated_node("a100", clock="wall")
    command = Command(tmp_path)
    command.environment |= {
        "WATTUNE_NODE": str(node.path),
        "LD_LIBRARY_PATH": str(node.library.parent),
        "WATTUNE_DEVICE": "nvml:0",
    }
    return node, command


def losses(text):
    return re.findall(r"step (\d+) loss (\S+)", text)


def test_training_is_tuned_and_its_losses_are_the_same(tuning, tmp_path):
    node, command = tuning
    assert node.setting(0) == FOUND
    plain = subprocess.run(
        [sys.executable, TRAINER, "20"], env=command.environment, capture_output=True, text=True, check=True
    )
    line = ("--report", "run.html", "--", sys.executable, TRAINER, str(STEPS), str(MOST))
    process = command.start("run", "--json", *line)
    seen = set()
    while process.poll() is None:
        seen.add(node.setting(0))
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert losses(err)[:20] == losses(plain.stdout)
    assert len(losses(err)) >= STEPS
    assert any(setting.sm_mhz is not None for setting in seen)
    assert node.setting(0) == FOUND

    document = json.loads(out)
    assert document["simulated"] is True
    assert document["exit_code"] == 0
    assert document["step_source"] == "hook"
    purposes = [window["purpose"] for window in document["windows"]]
    assert purposes[0] == "baseline"  # which other windows were completed depends on the machine
    assert all(window["applied"] for window in document["windows"])
    baseline = document["windows"][0]
    assert baseline["pace_s"] > 0.06  # no step is shorter than on its GPU; how much longer depends on the machine
    assert "simulated" in (tmp_path / "run.html").read_text(encoding="utf-8")
    (kept,) = json.loads(command("history", "--json").stdout)["runs"]
    assert kept["kind"] == "run"
