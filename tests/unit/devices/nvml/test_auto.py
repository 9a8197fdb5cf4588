"""`auto`: a simulated GPU where no driver is installed, and an error that names the cause everywhere else."""

import subprocess
import sys
from dataclasses import replace

import pytest

from wattune.core.errors import DeviceError, DeviceNotFound, NoDriver, NotSupported
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import examine
from wattune.devices.nvml.visible import ASK, ask_cuda
from wattune.devices.open import Surroundings, expand, nvml_names, open_gpu


@pytest.fixture
def said():
    return []


@pytest.fixture
def around(tmp_path, said):
    return Surroundings(tmp_path / "state", notify=said.append, on_fallback=said.append)


def test_without_a_driver_auto_is_simulated_and_says_so(around, said, monkeypatch, emulated_library):
    monkeypatch.delenv("WATTUNE_NODE", raising=False)
    assert expand(("auto",), around) == ("sim:a100",)
    assert len(said) == 1
    assert "simulated" in said[0]
    assert "no NVIDIA driver is installed" in said[0]
    with pytest.raises(NoDriver):
        expand(("nvml",), around)
    with pytest.raises(DeviceNotFound, match="a GPU is required"):
        expand(("auto",), replace(around, require_gpu=True))
    assert expand(("sim:v100",), replace(around, require_gpu=True)) == ("sim:v100",)
    assert nvml_names(around) == []
    assert isinstance(examine().failure, NoDriver)


@pytest.mark.parametrize(
    ("code", "cause"), [(9, "not loaded"), (18, "different versions"), (4, "permission"), (999, "Unknown")]
)
def test_a_driver_that_fails_is_an_error(emulated_node, around, said, code, cause):
    node = emulated_node("a100")
    node.inject("nvmlInit", code=code)
    for name in ("auto", "nvml", "nvml:0"):
        with pytest.raises(DeviceError, match=cause) as caught, open_gpu(name, around):
            pass
        assert not isinstance(caught.value, NoDriver)
        assert caught.value.hint
    assert said == []


def test_a_library_that_is_missing_beside_a_loaded_driver(around, monkeypatch, tmp_path, emulated_library):
    monkeypatch.delenv("WATTUNE_NODE", raising=False)
    monkeypatch.setattr(library, "KERNEL_DRIVER", tmp_path)
    with pytest.raises(DeviceNotFound, match="loaded, but its library") as caught:
        expand(("auto",), around)
    assert "--gpus all" in caught.value.hint


@pytest.mark.parametrize("name", ["auto", "nvml"])
def test_a_lost_gpu_is_named_and_the_others_are_taken(emulated_node, around, said, name):
    node = emulated_node("a100", "a100", "a100")
    node.lose(1)
    assert len(expand((name,), around)) == 2
    assert said == ["GPU 1 does not answer and is left out (see `wattune doctor`)"]


def test_where_every_gpu_is_lost_opening_one_says_why(emulated_node, around):
    node = emulated_node("a100")
    node.lose(0)
    with pytest.raises(DeviceError, match="fallen off the bus"), open_gpu("auto", around):
        pass


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-nowhere"])
def test_hidden_gpus_are_an_error(emulated_node, tmp_path, visible):
    emulated_node("a100", "a100")
    with pytest.raises(DeviceNotFound, match="hides all 2 GPUs") as caught:
        expand(("auto",), Surroundings(tmp_path, visible))
    assert "unset it" in caught.value.hint


def test_a_slice_is_an_error(emulated_node, tmp_path):
    emulated_node("a100")
    with pytest.raises(NotSupported, match="MIG-1234"):
        expand(("auto",), Surroundings(tmp_path, "MIG-1234"))


def test_a_mixed_machine_counts_as_cuda_and_says_so(emulated_node, around, said):
    emulated_node("v100", "a100")
    with open_gpu("nvml:0", around) as gpu:
        assert "A100" in gpu.spec.name
        uuid = gpu.spec.uuid
    assert said[0].startswith(f"GPU 0, fastest first as CUDA counts, is {gpu.spec.label} ({uuid}); estimated")
    assert expand(("auto",), around)[0] == f"nvml:{uuid}"


FAKE = """
#include <string.h>
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0xa0 + device, 16); return 0; }
"""


def test_cuda_is_asked_in_a_process_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "fake.c").write_text(FAKE)
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "fake.c")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert ask_cuda() == (
        f"GPU-{'a0' * 4}-{'-'.join(['a0' * 2] * 3)}-{'a0' * 6}",
        f"GPU-{'a1' * 4}-{'-'.join(['a1' * 2] * 3)}-{'a1' * 6}",
    )


def test_without_cuda_it_has_no_answer(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert subprocess.run([sys.executable, "-I", "-c", ASK], capture_output=True, check=False).returncode
    assert ask_cuda() is None
