"""Every getter that the emulated library serves, through nvidia-ml-py; prints what came back, and what was called."""

import ctypes
import json
import os
from pathlib import Path

import pynvml as nvml

from wattune.emulator.node import Node


def plain(value):
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Union):
        return {name: getattr(value, name) for name, *_ in value._fields_}
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if hasattr(value, "__dict__"):  # a "friendly object" of nvidia-ml-py
        return {name: plain(item) for name, item in vars(value).items()}
    return value.decode() if isinstance(value, bytes) else value


def answer(function, *arguments):
    try:
        found = getattr(nvml, function)(*arguments)
        return nvml.nvmlDeviceGetIndex(found) if isinstance(found, nvml.c_nvmlDevice_t) else plain(found)
    except nvml.NVMLError as error:
        return type(error).__name__


def pci_info(handle):
    info = nvml.nvmlPciInfoExt_v1_t(version=nvml.nvmlPciInfoExt_v1)
    nvml.nvmlDeviceGetPciInfoExt(handle, ctypes.byref(info))
    return plain(info)


def system_and_handles(first):
    yield "nvmlSystemGetDriverVersion", ()
    yield "nvmlSystemGetNVMLVersion", ()
    yield "nvmlSystemGetCudaDriverVersion", ()
    yield "nvmlSystemGetCudaDriverVersion_v2", ()
    yield "nvmlSystemGetProcessName", (os.getpid(),)
    yield "nvmlUnitGetCount", ()
    yield "nvmlDeviceGetCount", ()
    for function, find in (
        ("nvmlDeviceGetHandleByUUID", nvml.nvmlDeviceGetUUID),
        ("nvmlDeviceGetHandleBySerial", nvml.nvmlDeviceGetSerial),
        ("nvmlDeviceGetHandleByPciBusId", lambda handle: nvml.nvmlDeviceGetPciInfo(handle).busId),
    ):
        key = find(first)
        yield function, (key.encode() if isinstance(key, str) else key,)


ALONE = (
    "Index",
    "Name",
    "UUID",
    "Serial",
    "MinorNumber",
    "BoardId",
    "Brand",
    "Architecture",
    "CudaComputeCapability",
    "NumGpuCores",
    "MemoryBusWidth",
    "VbiosVersion",
    "MultiGpuBoard",
    "BusType",
    "PciInfo",
    "PciInfo_v3",
    "MaxPcieLinkGeneration",
    "CurrPcieLinkGeneration",
    "MaxPcieLinkWidth",
    "CurrPcieLinkWidth",
    "PcieReplayCounter",
    "MaxMigDeviceCount",
    "C2cModeInfoV",
    "EccMode",
    "DisplayMode",
    "DisplayActive",
    "ComputeMode",
    "NumFans",
    "FanSpeed",
    "PersistenceMode",
    "PowerUsage",
    "TotalEnergyConsumption",
    "PowerManagementMode",
    "PowerManagementLimit",
    "PowerManagementDefaultLimit",
    "PowerManagementLimitConstraints",
    "EnforcedPowerLimit",
    "PowerState",
    "PerformanceState",
    "SupportedMemoryClocks",
    "CurrentClocksThrottleReasons",
    "CurrentClocksEventReasons",
    "SupportedClocksThrottleReasons",
    "SupportedClocksEventReasons",
    "UtilizationRates",
    "EncoderUtilization",
    "DecoderUtilization",
    "MemoryInfo",
    "ComputeRunningProcesses",
    "ComputeRunningProcesses_v2",
    "ComputeRunningProcesses_v3",
    "GraphicsRunningProcesses",
    "GraphicsRunningProcesses_v2",
    "GraphicsRunningProcesses_v3",
    "MPSComputeRunningProcesses",
    "MPSComputeRunningProcesses_v2",
    "MPSComputeRunningProcesses_v3",
)

WITH_ARGUMENTS = (
    ("PcieThroughput", (nvml.NVML_PCIE_UTIL_RX_BYTES,)),
    ("CpuAffinity", (1,)),
    ("CpuAffinityWithinScope", (1, nvml.NVML_AFFINITY_SCOPE_NODE)),
    ("MemoryAffinity", (1, nvml.NVML_AFFINITY_SCOPE_NODE)),
    ("NvLinkState", (0,)),
    ("NvLinkCapability", (0, nvml.NVML_NVLINK_CAP_VALID)),
    ("TotalEccErrors", (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)),
    ("FanSpeed_v2", (0,)),
    ("FieldValues", ([nvml.NVML_FI_DEV_POWER_INSTANT],)),
    ("Samples", (nvml.NVML_TOTAL_POWER_SAMPLES, 0)),
    ("ViolationStatus", (nvml.NVML_PERF_POLICY_POWER,)),
    ("ClockInfo", (nvml.NVML_CLOCK_SM,)),
    ("MaxClockInfo", (nvml.NVML_CLOCK_SM,)),
    ("MaxCustomerBoostClock", (nvml.NVML_CLOCK_SM,)),
    ("Clock", (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_ID_CURRENT)),
    ("ApplicationsClock", (nvml.NVML_CLOCK_SM,)),
    ("DefaultApplicationsClock", (nvml.NVML_CLOCK_SM,)),
    ("Temperature", (nvml.NVML_TEMPERATURE_GPU,)),
    ("TemperatureV", (nvml.NVML_TEMPERATURE_GPU,)),
    ("TemperatureThreshold", (nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,)),
    ("ProcessUtilization", (0,)),
)


def counters(handle, run):
    """What the counters of a GPU say of what it runs."""
    before, after = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    nvml.nvmlGpmSampleGet(handle, before)
    run()
    nvml.nvmlGpmSampleGet(handle, after)
    asked = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, sample1=before, sample2=after)
    wanted = (nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, nvml.NVML_GPM_METRIC_DRAM_BW_UTIL)
    asked.numMetrics = len(wanted)
    for place, metric in enumerate(wanted):
        asked.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(asked)
    nvml.nvmlGpmSampleFree(before)
    nvml.nvmlGpmSampleFree(after)
    return [(metric.nvmlReturn, metric.value) for metric in asked.metrics[: len(wanted)]]


def main():
    nvml.nvmlInit()
    first, second, third = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(3))
    with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
        node.run(0, 100)
        found = {name: answer(name, *arguments) for name, arguments in system_and_handles(first)}
        found |= {f"nvmlDeviceGet{name}": answer(f"nvmlDeviceGet{name}", first) for name in ALONE}
        found |= {f"nvmlDeviceGet{name}": answer(f"nvmlDeviceGet{name}", first, *rest) for name, rest in WITH_ARGUMENTS}
        mem_mhz = found["nvmlDeviceGetSupportedMemoryClocks"][0]
        found["nvmlDeviceGetSupportedGraphicsClocks"] = answer("nvmlDeviceGetSupportedGraphicsClocks", first, mem_mhz)
        found["nvmlDeviceGetPciInfoExt"] = pci_info(first)
        found["nvmlDeviceGetMemoryInfo_v2"] = answer("nvmlDeviceGetMemoryInfo", first, nvml.nvmlMemory_v2)
        found["nvmlDeviceGetTopologyCommonAncestor"] = answer("nvmlDeviceGetTopologyCommonAncestor", first, second)
        for name, handle in (("older", first), ("newer", third)):
            found[f"counters of the {name}"] = answer("nvmlGpmQueryDeviceSupport", handle)
        energy_j = node.truth_j(0)
        found["nvmlGpmMetricsGet"] = counters(third, lambda: node.run(2, 100))
        found["nvmlDeviceGetP2PStatus"] = answer("nvmlDeviceGetP2PStatus", first, second, 2)
        found["nvmlDeviceOnSameBoard"] = answer("nvmlDeviceOnSameBoard", first, second)
        found["nvmlDeviceIsMigDeviceHandle"] = answer("nvmlDeviceIsMigDeviceHandle", first)
        truth = {"pid": os.getpid(), "called": [*node.calls()], "energy_j": energy_j}
    print(json.dumps({"values": found, **truth}))


main()
