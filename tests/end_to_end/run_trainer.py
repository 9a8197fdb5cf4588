"""A small real training loop in PyTorch on the CPU, whose emulated GPU follows it step by step.

Each step is computed by PyTorch and then runs once on the emulated GPU, at whatever clock that has: so the loop is as
fast as its GPU is, and its losses have nothing to do with it. It goes on until a clock was set, however busy the
machine is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from wattune.emulator.node import Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


def main(steps: int, most: int) -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8)
    targets = inputs.sum(dim=1, keepdim=True).sin()
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        node.play(0, tabulate(load_model("a100"), make_workload("resnet50")))
        was_set = False
        for step in range(most):
            was_set = was_set or node.setting(0).sm_mhz is not None
            if step >= steps and was_set:
                break
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            node.run(0, 1)
            print(f"step {step} loss {loss.item().hex()}", flush=True)
        node.idle(0)
        node.leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[-1]))
