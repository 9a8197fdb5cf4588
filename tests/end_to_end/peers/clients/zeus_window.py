"""A window of ZeusMonitor in virtual time, and the truth. Exits with the error's name where zeus gives up."""

import json
import os
import sys
from pathlib import Path

from zeus.device.gpu.common import ZeusBaseGPUError
from zeus.monitor import ZeusMonitor

from wattune.emulator.node import Node

seconds = float(sys.argv[1])
with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
    try:
        monitor = ZeusMonitor(cpu_indices=[])
        node.advance(1.03)  # so that the window does not begin with a refresh of the counter
        before_j = [node.truth_j(index) for index in range(node.count)]
        monitor.begin_window("training", sync_execution=False)
        node.advance(seconds)
        found = monitor.end_window("training", sync_execution=False)
    except ZeusBaseGPUError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    truth_j = [node.truth_j(index) - before_j[index] for index in range(node.count)]
print(json.dumps({"time_s": found.time, "energy_j": [*found.gpu_energy.values()], "truth_j": truth_j}))
