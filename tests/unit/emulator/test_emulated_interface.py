"""The binary interface: structures as nvidia-ml-py has them, every function there, none both modelled and a stub."""

import ctypes
import subprocess

import pynvml
import pytest
from make_stubs import implemented_names, stub_names, stubs_text, wanted_names

from wattune.emulator.library import LINK, SONAME, load_library

STRUCTURES = {
    "field_value": pynvml.c_nvmlFieldValue_t,
    "sample": pynvml.c_nvmlSample_t,
    "pci_info_v2": pynvml.nvmlPciInfo_v2_t,
    "pci_info_v3": pynvml.nvmlPciInfo_t,
    "pci_info_ext": pynvml.nvmlPciInfoExt_v1_t,
    "memory": pynvml.c_nvmlMemory_t,
    "memory_v2": pynvml.c_nvmlMemory_v2_t,
    "utilization": pynvml.c_nvmlUtilization_t,
    "process_v2": pynvml.c_nvmlProcessInfo_v2_t,
    "process_utilization": pynvml.c_nvmlProcessUtilizationSample_t,
    "violation_time": pynvml.c_nvmlViolationTime_t,
    "temperature_v1": pynvml.c_nvmlTemperature_v1_t,
    "power_value_v2": pynvml.c_nvmlPowerValue_v2_t,
    "c2c_mode": pynvml.c_nvmlC2cModeInfo_v1_t,
    "gpm_support": pynvml.c_nvmlGpmSupport_t,
    "gpm_metric": pynvml.c_nvmlGpmMetric_t,
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_has_the_size_that_nvidia_ml_py_gives_it(name, emulated_library):
    assert load_library(emulated_library).wattuneSizeOf(name.encode()) == ctypes.sizeof(STRUCTURES[name])


def test_an_unknown_structure_has_no_size(emulated_library):
    assert load_library(emulated_library).wattuneSizeOf(b"nothing") == 0


def test_no_function_with_behaviour_is_also_a_stub():
    assert not set(implemented_names()) & set(stub_names())
    assert len(implemented_names()) == len(set(implemented_names()))


def test_stubs_are_up_to_date_with_nvidia_ml_py():
    assert wanted_names() <= set(implemented_names()) | set(stub_names()), "run python tools/make_stubs.py"
    assert set(stubs_text().splitlines()[1:]) <= {f"STUB({name})" for name in stub_names()}


def test_every_function_is_exported_and_nothing_else(emulated_library):
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(emulated_library)], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    ours = {name for name in exported if name.startswith("wattune")}
    assert exported - ours == set(implemented_names()) | set(stub_names())


def test_a_stub_is_not_supported_and_needs_initialising_like_the_rest(emulated_node, emulated_library):
    library = load_library(emulated_library)
    assert library.nvmlDeviceGetVgpuMetadata(None, None, None) == pynvml.NVML_ERROR_UNINITIALIZED
    node = emulated_node("v100")
    pynvml.nvmlInit()
    for name in stub_names():
        assert getattr(library, name)(None, None, None, None) == pynvml.NVML_ERROR_NOT_SUPPORTED, name
    assert node.calls()["nvmlDeviceGetVgpuMetadata"] == 1


def test_the_link_without_a_version_is_there(emulated_library):
    assert emulated_library.name == SONAME
    assert (emulated_library.parent / LINK).samefile(emulated_library)


def test_extra_symbols_tell_that_it_is_emulated(emulated_node, emulated_library):
    library = load_library(emulated_library)
    node = emulated_node("v100")
    pynvml.nvmlInit()
    node.advance(2.5)
    assert library.wattuneIsEmulated() == 1
    assert library.wattuneClockIsVirtual() == 1
    assert library.wattuneNowNs() == 2_500_000_000
