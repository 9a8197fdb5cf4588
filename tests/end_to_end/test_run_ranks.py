"""Ranks of a real process group that are tuned as one, each on an emulated GPU of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattune.core.setting import Setting
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

WORKER = Path(__file__).with_name("run_rank.py")
FOUND = Setting(None, None, 400.0)
STEPS = 700
"""Of 70 ms each, by the node's time: a baseline, trials and a while beyond."""


@pytest.fixture
def trained(emulated_node, tmp_path):
    """A function that lets ranks train, and gives the node and what each of them saw."""
    running = []

    def train(ranks):
        node = emulated_node(*["a100"] * ranks)
        for rank in range(ranks):
            node.play(rank, tabulate(load_model("a100"), make_workload("resnet50")))
        environment = os.environ | {
            "WATTUNE_NODE": str(node.path),
            "LD_LIBRARY_PATH": str(node.library.parent),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        for rank in range(ranks):
            command = [sys.executable, "-W", "ignore", str(WORKER), str(tmp_path), str(rank), str(ranks), str(STEPS)]
            with (tmp_path / f"{rank}.err").open("w") as errors:
                running.append(subprocess.Popen(command, env=environment, stderr=errors))
        for rank, process in enumerate(running):
            assert process.wait() == 0, (tmp_path / f"{rank}.err").read_text()
        return node, [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    yield train
    for process in running:
        process.kill()
        process.wait()


def test_ranks_of_a_process_group_are_set_alike_at_every_step(trained):
    node, (first, second) = trained(2)
    assert first["seen"] == second["seen"]
    assert len(set(first["seen"])) >= 2
    assert first["weights"] == second["weights"]
    purposes = [purpose for purpose, _, _ in first["windows"]]
    assert purposes[0] == "baseline"
    assert "hold" in purposes
    assert all(step_time_s > 0.06 for _, _, step_time_s in first["windows"] if step_time_s is not None)
    assert first["slowdown"] < 0.05
    assert [node.setting(rank) for rank in range(2)] == [FOUND, FOUND]
