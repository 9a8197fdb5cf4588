"""Ranks of a real process group that are tuned as one, each on an emulated GPU of its own."""

import json
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


def trained(start_torch, node, folder, ranks):
    """Let ranks train, and return what each of them saw."""
    for rank in range(ranks):
        node.play(rank, tabulate(load_model("a100"), make_workload("resnet50")))
    outputs = [folder / f"{rank}.output" for rank in range(ranks)]
    running = [
        start_torch(
            WORKER,
            str(folder),
            str(rank),
            str(ranks),
            str(STEPS),
            output=output,
            environment={"WATTUNE_NODE": str(node.path)},
        )
        for rank, output in enumerate(outputs)
    ]
    for process, output in zip(running, outputs, strict=True):
        assert process.wait() == 0, output.read_text()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def test_ranks_of_a_process_group_are_set_alike_at_every_step(start_torch, emulated_node, tmp_path):
    node = emulated_node("a100", "a100")
    first, second = trained(start_torch, node, tmp_path, 2)
    assert first["seen"] == second["seen"]
    assert len(set(first["seen"])) >= 2
    assert first["weights"] == second["weights"]
    purposes = [purpose for purpose, _, _ in first["windows"]]
    assert purposes[0] == "baseline"
    assert "hold" in purposes
    assert all(step_time_s > 0.06 for _, _, step_time_s in first["windows"] if step_time_s is not None)
    assert first["slowdown"] < 0.05
    assert [node.setting(rank) for rank in range(2)] == [FOUND, FOUND]
