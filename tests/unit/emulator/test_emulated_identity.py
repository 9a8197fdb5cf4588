"""Finding GPUs and what they say of themselves; initialising, faults and privilege."""

import ctypes
import os
from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu
from wattune.emulator.emulated_gpu import GENERATIONS, generation_of
from wattune.emulator.library import load_library
from wattune.emulator.node import NODE_VARIABLE, Privilege


@pytest.fixture
def two(emulated_node):
    node = emulated_node("a100", "3080ti")
    pynvml.nvmlInit()
    return node, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]


def test_handles_by_every_name(two):
    _, handles = two
    assert pynvml.nvmlDeviceGetCount() == 2
    for index, handle in enumerate(handles):
        uuid, bus_id = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetPciInfo(handle).busId
        short = pynvml.nvmlDeviceGetPciInfo(handle).busIdLegacy.lower()
        for found in (
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId(bus_id),
            pynvml.nvmlDeviceGetHandleByPciBusId(short),
        ):
            assert pynvml.nvmlDeviceGetIndex(found) == index
    serial = pynvml.nvmlDeviceGetSerial(handles[0])
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleBySerial(serial)) == 0


def test_handles_that_do_not_exist(two):
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-0")
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleBySerial("none")
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByPciBusId("0000:77:00.0")
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByPciBusId("nonsense")
    for bad in (ctypes.c_void_p(0), ctypes.c_void_p(0x1234)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetName(bad)


def test_what_they_say_of_themselves(two):
    _, (a100, geforce) = two
    assert pynvml.nvmlDeviceGetName(a100) == "NVIDIA A100-SXM4-40GB (simulated)"
    assert pynvml.nvmlDeviceGetArchitecture(a100) == pynvml.NVML_DEVICE_ARCH_AMPERE
    assert pynvml.nvmlDeviceGetCudaComputeCapability(a100) == (8, 0)
    assert pynvml.nvmlDeviceGetCudaComputeCapability(geforce) == (8, 6)
    assert pynvml.nvmlDeviceGetNumGpuCores(a100) == 6912
    assert pynvml.nvmlDeviceGetBrand(geforce) == pynvml.NVML_BRAND_GEFORCE
    assert pynvml.nvmlDeviceGetEccMode(a100) == [1, 1]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetEccMode(geforce)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetSerial(geforce)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(a100)
    assert pynvml.nvmlDeviceGetMinorNumber(geforce) == 1
    assert pynvml.nvmlDeviceGetC2cModeInfoV(a100).isC2cEnabled == 0
    assert pynvml.nvmlDeviceIsMigDeviceHandle(a100).value == 0
    assert pynvml.nvmlDeviceOnSameBoard(a100, geforce) == 0
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(a100, geforce) == pynvml.NVML_TOPOLOGY_NODE
    assert pynvml.nvmlDeviceGetCpuAffinity(a100, 2)[0] & 1 == 1
    assert pynvml.nvmlDeviceGetTotalEccErrors(a100, 0, 0) == 0


def test_versions_and_error_texts(two):
    assert pynvml.nvmlSystemGetNVMLVersion() == f"12.{pynvml.nvmlSystemGetDriverVersion()}"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12080
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlErrorString.restype = ctypes.c_char_p
    assert library.nvmlErrorString(15) == b"GPU is lost"
    assert library.nvmlErrorString(-1) == library.nvmlErrorString(999) == b"Unknown Error"


def test_pci_information_in_its_versions(two, emulated_library):
    _, (handle, _) = two
    newest = pynvml.nvmlDeviceGetPciInfo(handle)
    older = pynvml.nvmlPciInfo_v2_t()
    assert load_library(emulated_library).nvmlDeviceGetPciInfo_v2(handle, ctypes.byref(older)) == 0
    assert older.busId == newest.busIdLegacy == "0000:01:00.0"
    extended = pynvml.nvmlPciInfoExt_v1_t()
    extended.version = pynvml.nvmlPciInfoExt_v1
    pynvml.nvmlDeviceGetPciInfoExt(handle, ctypes.byref(extended))
    assert extended.busId == newest.busId == "00000000:01:00.0"
    extended.version = 7
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetPciInfoExt(handle, ctypes.byref(extended))


def test_a_text_needs_room(two, emulated_library):
    _, (handle, _) = two
    library, text = load_library(emulated_library), ctypes.create_string_buffer(8)
    assert library.nvmlDeviceGetName(handle, text, 8) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert library.nvmlDeviceGetName(handle, None, 8) == pynvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("architecture", "name", "key"),
    [
        ("Ampere", "NVIDIA A100-SXM4-40GB", "ampere ga100"),
        ("Ampere", "NVIDIA A40", "ampere"),
        ("Volta", "Tesla V100", "volta"),
        ("Hopper", "NVIDIA H100", "hopper"),
        (None, "something", "ampere"),
        ("Newest", "something", "ampere"),
    ],
)
def test_generations(architecture, name, key):
    assert generation_of(architecture, name) is GENERATIONS[key]


# initialising


def test_initialising_is_counted(emulated_node):
    emulated_node(plain_gpu())
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    for call in (pynvml.nvmlDeviceGetCount, pynvml.nvmlShutdown):
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            call()


def test_without_a_node_there_is_no_driver(emulated_node, monkeypatch, tmp_path):
    emulated_node(plain_gpu())
    with monkeypatch.context() as patch:  # undone before the node ends, and not after it
        patch.setenv(NODE_VARIABLE, str(tmp_path / "none"))
        with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
            pynvml.nvmlInit()
        patch.delenv(NODE_VARIABLE)
        with pytest.raises(pynvml.NVMLError_LibraryNotFound):
            pynvml.nvmlInit()


@pytest.mark.parametrize("content", [b"", b"not a node", b"\0" * 100_000])
def test_a_file_that_is_no_node_is_a_version_mismatch(emulated_node, monkeypatch, tmp_path, content):
    emulated_node(plain_gpu())
    (tmp_path / "file").write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setenv(NODE_VARIABLE, str(tmp_path / "file"))
        with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
            pynvml.nvmlInit()


def test_a_new_node_is_found_by_the_next_initialising(emulated_node):
    emulated_node(plain_gpu())
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    emulated_node(plain_gpu(), plain_gpu(index=1))
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2


# faults and privilege


def test_a_lost_gpu_is_lost_and_the_other_is_not(two):
    node, (lost, other) = two
    node.lose(0, at_s=2.0)
    node.advance(1.999)
    assert pynvml.nvmlDeviceGetPowerUsage(lost) > 0
    node.advance(0.001)
    for call in (
        lambda: pynvml.nvmlDeviceGetPowerUsage(lost),
        lambda: pynvml.nvmlDeviceGetName(lost),
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(lost, 200_000),
        lambda: pynvml.nvmlDeviceGetHandleByIndex(0),
    ):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call()
    assert pynvml.nvmlDeviceGetPowerUsage(other) > 0
    assert pynvml.nvmlDeviceGetCount() == 2


def test_any_error_can_be_ordered_and_taken_back(two):
    node, (handle, _) = two
    node.fail(0, pynvml.NVML_ERROR_TIMEOUT)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    node.fail(0, 0)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) > 0


SETTERS = {
    "nvmlDeviceSetPowerManagementLimit": (200_000,),
    "nvmlDeviceSetGpuLockedClocks": (500, 500),
    "nvmlDeviceResetGpuLockedClocks": (),
    "nvmlDeviceSetMemoryLockedClocks": (1000, 1000),
    "nvmlDeviceResetMemoryLockedClocks": (),
    "nvmlDeviceSetApplicationsClocks": (1000, 500),
    "nvmlDeviceResetApplicationsClocks": (),
    "nvmlDeviceSetPersistenceMode": (0,),
}


@pytest.mark.parametrize("name", SETTERS)
def test_without_privilege_settings_are_refused_and_readings_work(emulated_node, name):
    node = emulated_node(plain_gpu(), privilege=Privilege.DENIED)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = node.setting(0)
    with pytest.raises(pynvml.NVMLError_NoPermission):
        getattr(pynvml, name)(handle, *SETTERS[name])
    assert node.setting(0) == before
    assert node.persistence(0)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 20_000
    assert node.setter_calls() == 1


@pytest.mark.parametrize("name", SETTERS)
def test_with_privilege_everything_can_be_set(emulated_node, name):
    emulated_node(plain_gpu())
    pynvml.nvmlInit()
    getattr(pynvml, name)(pynvml.nvmlDeviceGetHandleByIndex(0), *SETTERS[name])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_privilege_by_user(emulated_node):
    node = emulated_node(replace(plain_gpu()), privilege=Privilege.EUID)
    node.path.parent.chmod(0o755)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPersistenceMode(handle, 1)
    try:
        os.seteuid(65534)
        with pytest.raises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlDeviceSetPersistenceMode(handle, 0)
    finally:
        os.seteuid(0)
    assert node.persistence(0)
