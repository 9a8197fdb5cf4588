"""One rank of a data-parallel training over gloo, tuned together with the others, on a GPU of an emulated node.

python run_rank.py FOLDER RANK SIZE STEPS     what it saw goes to the folder as RANK.json

Time is the node's: a step takes what the GPU of rank 0 needs for an iteration at whatever clock it has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from wattune import tuned
from wattune.devices.open import Surroundings, open_gpu
from wattune.emulator.node import Node
from wattune.integrations.torch_ranks import TorchRanks


def main(folder: Path, rank: int, size: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=size)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 8) + rank
    seen: list[int | None] = []
    with (
        Node.attach(Path(os.environ["WATTUNE_NODE"])) as node,
        open_gpu(f"nvml:{rank}", Surroundings(folder / f"state{rank}", None)) as gpu,
        tuned(gpu, slowdown=0.05, ranks=TorchRanks()) as tuning,
    ):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                node.run(0, 1)
            dist.barrier()
            tuning.step()
            wanted_mhz = tuning.setting.sm_mhz
            while node.setting(rank).sm_mhz != wanted_mhz:  # the thread that sets the clocks must get on
                time.sleep(0.001)
            seen.append(wanted_mhz)
    weights = [value.item().hex() for value in model.module.weight.flatten()]
    found = {
        "seen": seen,
        "weights": weights,
        "windows": [[window.purpose.value, window.setting.sm_mhz, window.step_time_s] for window in tuning.windows],
        "slowdown": None if tuning.figures.slowdown is None else tuning.figures.slowdown.value,
    }
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
