"""Every setter that the emulated library serves, and wrong calls, through nvidia-ml-py; prints what came of each."""

import json
import os
from pathlib import Path

import pynvml as nvml

from wattune.emulator.node import Node


def outcome(function, *arguments):
    try:
        getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        return type(error).__name__
    return "done"


def state(handle):
    return {
        "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "mem_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "limit_mw": nvml.nvmlDeviceGetPowerManagementLimit(handle),
        "enforced_mw": nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "power_mw": nvml.nvmlDeviceGetPowerUsage(handle),
        "reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "persistence": nvml.nvmlDeviceGetPersistenceMode(handle),
    }


def settings(mem_mhz):
    yield "nvmlDeviceSetPersistenceMode", (1,)
    yield "nvmlDeviceSetPowerManagementLimit", (200_000,)
    yield "nvmlDeviceSetPowerManagementLimit", (400_000,)
    yield "nvmlDeviceSetGpuLockedClocks", (1005, 1005)
    yield "nvmlDeviceResetGpuLockedClocks", ()
    yield "nvmlDeviceSetMemoryLockedClocks", (mem_mhz, mem_mhz)
    yield "nvmlDeviceResetMemoryLockedClocks", ()
    yield "nvmlDeviceSetApplicationsClocks", (mem_mhz, 705)
    yield "nvmlDeviceResetApplicationsClocks", ()
    yield "nvmlDeviceSetPersistenceMode", (0,)


def main():
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    mem_mhz = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)[0]
    steps = []
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        for function, arguments in settings(mem_mhz):
            came = outcome(function, handle, *arguments)
            node.advance(2.0)  # for the sensors to see it
            steps.append({"function": function, "arguments": arguments, "outcome": came, **state(handle)})
    wrong = {
        "limit too low": outcome("nvmlDeviceSetPowerManagementLimit", handle, 99_000),
        "limit too high": outcome("nvmlDeviceSetPowerManagementLimit", handle, 401_000),
        "lock upside down": outcome("nvmlDeviceSetGpuLockedClocks", handle, 1005, 705),
        "no such memory clock": outcome("nvmlDeviceGetSupportedGraphicsClocks", handle, 1),
        "no such index": outcome("nvmlDeviceGetHandleByIndex", 9),
        "no such uuid": outcome("nvmlDeviceGetHandleByUUID", b"GPU-none"),
        "not served": outcome("nvmlDeviceGetMigMode", handle),
    }
    nvml.nvmlShutdown()
    wrong["after shutdown"] = outcome("nvmlDeviceGetPowerUsage", handle)
    print(json.dumps({"steps": steps, "wrong": wrong}))


main()
