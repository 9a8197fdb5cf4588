"""A small training loop in PyTorch that prepares, trains epochs and evaluates, beside an emulated GPU that it follows.

`job_follower.py EPOCHS STEPS FILE` prints a metric of 1 after so many epochs of so many steps. Into the file it writes
what the node knows: what all its steps took and spent, and those that ran at the highest clock, once that had settled.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from wattune.emulator.node import Node

START_S, PAUSE_S = 2.0, 0.5
SETTLED = 5
"""Steps after another clock."""


def main(epochs, steps, file):
    torch.manual_seed(7)
    torch.set_num_threads(1)
    time.sleep(START_S)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8)
    targets = inputs.sum(dim=1, keepdim=True).sin()
    every, top = [0, 0.0, 0.0], [0, 0.0, 0.0]
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        highest, alike = 1410, 0
        for epoch in range(epochs):
            for step in range(steps):
                before_s, before_j, clock = node.now_s(), node.truth_j(0), node.setting(0).sm_mhz
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
                if not step:
                    continue  # the comparison begins at the end of the first step
                spent = 1, node.now_s() - before_s, node.truth_j(0) - before_j
                every = [old + more for old, more in zip(every, spent, strict=True)]
                alike = alike + 1 if clock in (None, highest) and node.setting(0).sm_mhz == clock else 0
                if alike > SETTLED:
                    top = [old + more for old, more in zip(top, spent, strict=True)]
            time.sleep(PAUSE_S)
            Path(file).write_text(json.dumps({"every": every, "top": top}), encoding="utf-8")
            print(f"accuracy: {(epoch + 1) / epochs:.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
