"""Zeus's GlobalPowerLimitOptimizer over a training loop on GPU 0, in virtual time: its profile and its choice."""

import json
import os
import sys
from pathlib import Path

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import Done, Energy, GlobalPowerLimitOptimizer, MaxSlowdownConstraint, ZeusCost

from wattune.emulator.node import Node

SELECTORS = {
    "energy": Energy(),
    "cost": ZeusCost(eta_knob=0.5),
    "slowdown": MaxSlowdownConstraint(factor=1.1),
}

selector, steps = SELECTORS[sys.argv[1]], int(sys.argv[2])
with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
    monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
    try:
        optimizer = GlobalPowerLimitOptimizer(monitor, selector, warmup_steps=2, profile_steps=steps)
    except RuntimeError as error:
        sys.exit(f"refused: {error}")
    limits_seen = []
    while not isinstance(optimizer.state, Done):
        optimizer.on_step_begin()
        node.run(0, 1)
        limit_w = node.setting(0).power_limit_w
        if limits_seen[-1:] != [limit_w]:
            limits_seen.append(limit_w)
profile = [[row.power_limit, row.time, row.energy] for row in optimizer.measurements]
print(json.dumps({"profile": profile, "chosen_w": optimizer.state.optimal_power_limit / 1000, "limits_w": limits_seen}))
