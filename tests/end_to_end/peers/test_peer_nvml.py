"""nvidia-ml-py, unmodified and in a process of its own, against every function that the emulated library serves."""

import re

import pytest
from played import A100, LIMITS, REFRESH_J, SPEC, mhz_within

from wattune.emulator.library import load_library

pytestmark = pytest.mark.peers

HIGHEST_MHZ, HIGHEST_MEM_MHZ = SPEC.sm_clocks_mhz[-1], SPEC.mem_clocks_mhz[0]
FREE_MHZ = mhz_within(LIMITS.max_w)
FREE_REASONS = 0 if FREE_MHZ == HIGHEST_MHZ else 4  # nothing, or the software power cap
PASSIVE = {"nvmlDeviceGetFanSpeed", "nvmlDeviceGetFanSpeed_v2"}  # an A100 has no fan to tell of


@pytest.fixture(scope="module")
def getters(peers_for_module):
    """What every getter gave for an A100 that has played 100 iterations, beside a V100 and an H100."""
    options = ("--gpu", "a100,v100,h100", "--virtual-time")
    return peers_for_module.simulate(*options, command=peers_for_module.client("nvml_getters")).json()


def without_version(name):
    return re.sub(r"_v\d$", "", name)


def test_every_getter_of_the_table_was_called_and_answered(getters, emulated_library):
    library = load_library(emulated_library)
    served = {
        without_version(library.wattuneFunctionName(number).decode())
        for number in range(library.wattuneFunctions())
        if library.wattuneFunctionKind(number) == b"g"
    }
    assert served - {without_version(name) for name in getters["called"]} == set()
    refused = {name: value for name, value in getters["values"].items() if str(value).startswith("NVMLError")}
    assert refused == dict.fromkeys(PASSIVE, "NVMLError_NotSupported")


def test_what_the_part_is(getters):
    values = getters["values"]
    assert values["nvmlDeviceGetName"] == SPEC.label
    assert values["nvmlDeviceGetUUID"] == SPEC.uuid
    assert values["nvmlDeviceGetCount"] == 3
    assert {values[f"nvmlDeviceGetHandleBy{key}"] for key in ("UUID", "Serial", "PciBusId")} == {0}
    assert values["nvmlDeviceGetCudaComputeCapability"] == [8, 0]
    assert values["nvmlDeviceGetNumGpuCores"] == A100.cores
    assert values["nvmlDeviceGetMemoryInfo"]["total"] == A100.memory_bytes
    assert values["nvmlDeviceGetPciInfo"]["busId"] == values["nvmlDeviceGetPciInfoExt"]["busId"]
    assert values["nvmlDeviceGetTopologyCommonAncestor"] > 0
    assert not values["nvmlDeviceOnSameBoard"]


def test_what_may_be_set(getters):
    values = getters["values"]
    assert values["nvmlDeviceGetSupportedGraphicsClocks"] == [*reversed(SPEC.sm_clocks_mhz)]
    assert values["nvmlDeviceGetSupportedMemoryClocks"] == [*SPEC.mem_clocks_mhz]
    assert values["nvmlDeviceGetPowerManagementLimitConstraints"] == [LIMITS.min_w * 1000, LIMITS.max_w * 1000]
    for function in ("PowerManagementLimit", "PowerManagementDefaultLimit", "EnforcedPowerLimit"):
        assert values[f"nvmlDeviceGet{function}"] == LIMITS.default_w * 1000
    for function in ("MaxClockInfo", "MaxCustomerBoostClock", "ApplicationsClock", "DefaultApplicationsClock"):
        assert values[f"nvmlDeviceGet{function}"] == HIGHEST_MHZ


def test_what_it_does(getters):
    values = getters["values"]
    counted_j = values["nvmlDeviceGetTotalEnergyConsumption"] / 1000 - 1_000_000  # where the counter starts
    assert 0 <= getters["energy_j"] - counted_j <= REFRESH_J
    assert A100.idle_w * 1000 < values["nvmlDeviceGetPowerUsage"] <= 1000 * LIMITS.max_w
    (field,) = values["nvmlDeviceGetFieldValues"]
    assert field["nvmlReturn"] == 0
    assert field["value"]["uiVal"] == pytest.approx(values["nvmlDeviceGetPowerUsage"], rel=0.01)
    assert values["nvmlDeviceGetUtilizationRates"]["gpu"] > 90
    assert A100.thermal.ambient_c <= values["nvmlDeviceGetTemperature"] == values["nvmlDeviceGetTemperatureV"] < 89
    assert values["nvmlDeviceGetClockInfo"] == values["nvmlDeviceGetClock"] == FREE_MHZ
    for function in ("CurrentClocksThrottleReasons", "CurrentClocksEventReasons"):
        assert values[f"nvmlDeviceGet{function}"] == FREE_REASONS
    kind, samples = values["nvmlDeviceGetSamples"]
    assert kind == 1
    assert len(samples) > 10
    assert (values["nvmlDeviceGetViolationStatus"]["violationTime"] > 0) == (FREE_REASONS != 0)


def test_counters_are_there_from_hopper_on(getters):
    values = getters["values"]
    assert [values[f"counters of the {name}"]["isSupportedDevice"] for name in ("older", "newer")] == [0, 1]
    (sm, *others) = values["nvmlGpmMetricsGet"]
    assert sm == [0, pytest.approx(100.0, abs=10.0)]
    assert all(status == 0 and 0 < percent <= 100 for status, percent in others)


def test_who_uses_it(getters):
    values, pid = getters["values"], getters["pid"]
    for version in ("", "_v2", "_v3"):
        assert [process["pid"] for process in values[f"nvmlDeviceGetComputeRunningProcesses{version}"]] == [pid]
        assert values[f"nvmlDeviceGetGraphicsRunningProcesses{version}"] == []
    assert values["nvmlDeviceGetProcessUtilization"][0]["pid"] == pid
    memory = values["nvmlDeviceGetMemoryInfo_v2"]
    assert memory["used"] + memory["free"] + memory["reserved"] == memory["total"]
    assert "python" in values["nvmlSystemGetProcessName"]


def test_setters_take_effect(peers):
    found = peers.simulate("--virtual-time", command=peers.client("nvml_setters")).json()
    assert {step["outcome"] for step in found["steps"]} == {"done"}
    persistent, limited, lifted, locked, unlocked, mem, _, application, reset, last = found["steps"]
    assert (persistent["persistence"], last["persistence"]) == (1, 0)
    assert limited["limit_mw"] == limited["enforced_mw"] == 200_000
    assert limited["power_mw"] < lifted["power_mw"]
    assert limited["sm_mhz"] == mhz_within(200) < FREE_MHZ
    assert limited["reasons"] == 4  # SW power cap
    assert (locked["sm_mhz"], application["sm_mhz"]) == (1005, 705)
    assert locked["reasons"] == application["reasons"] == 2  # applications clocks setting
    assert mem["mem_mhz"] == HIGHEST_MEM_MHZ
    for step in (lifted, unlocked, reset, last):
        assert (step["sm_mhz"], step["limit_mw"], step["reasons"]) == (FREE_MHZ, 400_000, FREE_REASONS)


def test_wrong_calls_get_the_errors_that_nvml_documents(peers):
    found = peers.simulate("--virtual-time", command=peers.client("nvml_setters")).json()
    assert found["wrong"] == {
        "limit too low": "NVMLError_InvalidArgument",
        "limit too high": "NVMLError_InvalidArgument",
        "lock upside down": "NVMLError_InvalidArgument",
        "no such memory clock": "NVMLError_NotFound",
        "no such index": "NVMLError_InvalidArgument",
        "no such uuid": "NVMLError_NotFound",
        "not served": "NVMLError_NotSupported",
        "after shutdown": "NVMLError_Uninitialized",
    }


def test_without_privilege_everything_can_be_read_and_nothing_set(peers):
    found = peers.simulate("--virtual-time", "--unprivileged", command=peers.client("nvml_setters")).json()
    assert {step["outcome"] for step in found["steps"]} == {"NVMLError_NoPermission"}
    assert {(step["sm_mhz"], step["limit_mw"]) for step in found["steps"]} == {(FREE_MHZ, 400_000)}


def test_a_lost_gpu_has_its_own_error(peers):
    script = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(1))"
    done = peers.simulate("--count", "2", "--fault", "1:lost", command=peers.tool("python", "-c", script))
    assert done.code == 1
    assert "pynvml.NVMLError_GpuIsLost: GPU is lost" in done.stderr
