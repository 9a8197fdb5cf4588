"""Ranks of PyTorch, as real processes that meet by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from wattune.core.errors import InputError
from wattune.integrations.torch_ranks import TorchRanks

PROGRAM = """
import json, sys
from torch import distributed
from wattune import make_workload, recurring_job
from wattune.integrations.torch_ranks import TorchRanks

rank, meeting = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
options = dict(target=0.75, batch_sizes=(32, 64), default=64, max_epochs=9, devices=["sim:a100"], knob="power-limit")
with recurring_job("nightly", ranks=TorchRanks(), **options) as run:
    workload = make_workload(f"resnet50:{run.local_batch_size}")
    held = []
    for epoch in run.epochs():
        for _ in run.steps(range(200)):
            run.gpus[0].run(workload)
        held.append(str(run.setting))
        run.report(0.2 * epoch if rank == 0 else None)
distributed.destroy_process_group()
told = {"id": run.id, "held": held, "why": run.why, "local": run.local_batch_size, "joules": run.cost.energy_j}
print(json.dumps(told))
"""


def test_two_processes_make_one_run(tmp_path: Path) -> None:
    environment = os.environ | {
        "WATTUNE_STORE": str(tmp_path / "history.db"),
        "WATTUNE_STATE": str(tmp_path / "state"),
        "WATTUNE_CONFIG": str(tmp_path / "config.toml"),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(tmp_path / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = (json.loads(out) for out, _ in outputs)
    assert first == second
    assert first["local"] == 32
    assert first["why"] == "the target 0.75 is reached after 5 epochs"
    assert len(set(first["held"])) > 1


def test_without_a_process_group_one_line_says_what_to_do() -> None:
    with pytest.raises(InputError, match="no process group"):
        TorchRanks()
