"""What nvitop's Python interface says of every GPU."""

import json
import os
from pathlib import Path

from nvitop import Device

from wattune.emulator.node import Node


def said(device):
    return {
        "name": device.name(),
        "uuid": device.uuid(),
        "memory_total": device.memory_total(),
        "power_mw": device.power_usage(),
        "limit_mw": device.power_limit(),
        "utilization": device.gpu_utilization(),
        "sm_mhz": device.sm_clock(),
        "temperature_c": device.temperature(),
        "pids": [*device.processes()],
    }


with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
    node.advance(5.0)
    print(json.dumps({"pid": os.getpid(), "gpus": [said(device) for device in Device.all()]}))
