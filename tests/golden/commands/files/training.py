"""Train on the emulated GPU, printing each step: so many steps, or until a clock was set and ten were made with it."""

import os
import sys
from pathlib import Path

from wattune.emulator.node import Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
    node.play(0, tabulate(load_model("a100"), make_workload("resnet50")))
    steps = int(sys.argv[1]) if sys.argv[1:] else 0
    left = steps or 10
    for _ in range(10_000):
        node.run(0, 1)
        print("step", flush=True)
        left -= steps > 0 or node.setting(0).sm_mhz is not None
        if left == 0:
            break
    node.idle(0)
    node.leave(0)
