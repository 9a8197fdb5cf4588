"""Ranks of PyTorch, as real processes that meet by gloo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from torch_processes import StartTorch
from wattune.core.errors import InputError
from wattune.integrations.torch_ranks import TorchRanks

PROGRAM = """
import json, sys
from pathlib import Path
from torch import distributed
from wattune import make_workload, recurring_job
from wattune.integrations.torch_ranks import TorchRanks

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
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
shown = {"id": run.id, "held": held, "why": run.why, "local": run.local_batch_size, "joules": run.cost.energy_j}
(folder / f"{rank}.json").write_text(json.dumps(shown))
"""


def test_two_processes_make_one_run(start_torch: StartTorch, tmp_path: Path) -> None:
    environment = {
        "WATTUNE_STORE": str(tmp_path / "history.db"),
        "WATTUNE_STATE": str(tmp_path / "state"),
        "WATTUNE_CONFIG": str(tmp_path / "config.toml"),
    }
    script, outputs = tmp_path / "program.py", [tmp_path / f"{rank}.output" for rank in range(2)]
    script.write_text(PROGRAM)
    processes = [
        start_torch(script, str(rank), str(tmp_path), output=output, environment=environment)
        for rank, output in enumerate(outputs)
    ]
    for process, output in zip(processes, outputs, strict=True):
        assert process.wait() == 0, output.read_text()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["local"] == 32
    assert first["why"] == "the target 0.75 is reached after 5 epochs"
    assert len(set(first["held"])) > 1


def test_without_a_process_group_one_line_says_what_to_do() -> None:
    with pytest.raises(InputError, match="no process group"):
        TorchRanks()
