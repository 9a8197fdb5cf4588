"""Sets and reads clocks and power limits by the class that Kernel Tuner uses; prints what came back."""

import json
import os
from pathlib import Path

from kernel_tuner.observers.nvml import nvml

from wattune.emulator.node import Node


def main():
    found = {}
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        for kind, locked in (("application", False), ("locked", True)):
            device = nvml(device_id=0, use_locked_clocks=locked)
            mem_mhz = device.supported_mem_clocks[0]
            device.set_clocks(mem_mhz, 1005)
            device.pwr_limit = 250_000
            node.run(0, 10)
            found[kind] = [device.gr_clock, device.mem_clock, device.pwr_limit, node.setting(0).sm_mhz]
            device.restore_defaults()
            found[f"{kind} restored"] = [node.setting(0).sm_mhz, node.setting(0).power_limit_w]
    print(json.dumps(found))


main()
