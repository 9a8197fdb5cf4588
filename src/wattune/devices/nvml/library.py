"""The NVML library: loading it, its clock, and its errors as errors of wattune."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pynvml

from wattune.core.errors import (
    DeviceError,
    DeviceLost,
    DeviceNotFound,
    NoDriver,
    NoPermission,
    NotSupported,
    SettingRefused,
)

SONAME = "libnvidia-ml.so.1"
KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
"""Exists while NVIDIA's kernel module is loaded, also inside containers."""

PERMISSION_HINT = (
    "run it as root (sudo), or in a container started with --cap-add SYS_ADMIN; measuring needs no privilege"
)

_HINTS: dict[int, tuple[type[DeviceError], str, str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        NoDriver,
        "no NVIDIA driver is installed here (libnvidia-ml.so.1 was not found)",
        "install the driver, or use a simulated GPU: --device sim:a100",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        DeviceNotFound,
        "the NVIDIA driver is installed but not loaded",
        "load it with `sudo modprobe nvidia`, in a container start it with `--gpus all`; or use --device sim:a100",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        DeviceNotFound,
        "the NVIDIA library and the loaded driver are of different versions",
        "reboot, or reload the driver, after a driver update; or use a simulated GPU: --device sim:a100",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (NoPermission, "the driver refused for lack of permission", PERMISSION_HINT),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (
        NotSupported,
        "this GPU or its driver does not support that",
        "see `wattune doctor` for what it does support",
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        DeviceLost,
        "the GPU has fallen off the bus",
        "search `dmesg` for Xid lines; it needs a reset (`nvidia-smi --gpu-reset`) or a reboot",
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: (
        DeviceLost,
        "the GPU must be reset before it works again",
        "reset it with `nvidia-smi --gpu-reset`, or reboot",
    ),
    pynvml.NVML_ERROR_INVALID_ARGUMENT: (
        SettingRefused,
        "the driver does not accept that value",
        "see `wattune devices` for the clocks and limits the GPU has",
    ),
    pynvml.NVML_ERROR_NOT_FOUND: (DeviceNotFound, "the driver knows no such GPU", "list them with `wattune devices`"),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
        NotSupported,
        "the installed driver is too old for that",
        "update the NVIDIA driver",
    ),
    pynvml.NVML_ERROR_DEPRECATED: (
        NotSupported,
        "the installed driver no longer has that function",
        "update wattune",
    ),
    pynvml.NVML_ERROR_TIMEOUT: (DeviceError, "the driver did not answer in time", "search `dmesg` for Xid lines"),
}


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded NVML: the clock of its readings, and whether it is the emulation of wattune."""

    clock: Callable[[], float]
    emulated: bool
    energy_call: Callable[..., int]
    """nvmlDeviceGetTotalEnergyConsumption without the overhead of pynvml: spans call it twice."""


def load() -> Library:
    """Load and initialise NVML; `close` undoes that. `DeviceNotFound` without a driver."""
    _forget_parent()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            _explain_missing_library()
        fail(error, "cannot use NVML")
    native = ctypes.CDLL(SONAME)  # the object that pynvml loaded already
    # Without argtypes ctypes passes its own pointers in two thirds of the time. CDLL, unlike PyDLL, releases the
    # interpreter lock during the call: a driver that blocks must not stop the threads of the program.
    energy_call = native["nvmlDeviceGetTotalEnergyConsumption"]
    return Library(_clock(native), hasattr(native, "wattuneIsEmulated"), energy_call)


SYS_ADMIN_BIT = 21  # CAP_SYS_ADMIN in linux/capability.h


def may_set() -> bool:
    """Return whether this process is privileged to set GPUs; nothing is set to find out. NVML must be loaded."""
    ask = getattr(native(), "wattuneMaySet", None)
    return has_sys_admin() if ask is None else bool(ask())


def has_sys_admin(status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process has the capability that drivers ask for: root's, or that of a container."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return bool(masks) and bool(int(masks[0], 16) >> SYS_ADMIN_BIT & 1)


def _explain_missing_library() -> None:
    """Raise the error of a driver that is there but whose library is not; return where no driver is installed."""
    try:
        ctypes.CDLL(SONAME)
    except OSError as error:
        if "No such file" not in str(error):
            raise DeviceNotFound(
                f"cannot use NVML: the NVIDIA library cannot be loaded: {error}",
                hint="reinstall the driver; or use a simulated GPU: --device sim:a100",
            ) from None
    if KERNEL_DRIVER.exists():
        raise DeviceNotFound(
            f"cannot use NVML: the NVIDIA driver is loaded, but its library {SONAME} was not found",
            hint="in a container start it with `--gpus all`, else install the driver; or use --device sim:a100",
        )


def close() -> None:
    """Undo one `load`; in a forked child, which did not load it, do nothing."""
    if not _inherited:
        pynvml.nvmlShutdown()


def native() -> ctypes.CDLL:
    """Return the loaded library for calls without pynvml."""
    return ctypes.CDLL(SONAME)


def loaded_path() -> str:
    """Return the path of the loaded library, so that another process can load the same one."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            path = line.rstrip("\n").partition("/")
            if "/libnvidia-ml.so" in line:
                return path[1] + path[2]
    return SONAME


_inherited = False
"""True in a forked child until it loads NVML itself: the parent's state is no good there."""


def _mark_inherited() -> None:
    global _inherited
    _inherited = True


os.register_at_fork(after_in_child=_mark_inherited)


def _forget_parent() -> None:
    """In a forked child, shut down what it inherited, so that NVML initialises again."""
    global _inherited
    if not _inherited:
        return
    _inherited = False
    try:
        while True:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return  # it is not initialised any more


def _clock(native: ctypes.CDLL) -> Callable[[], float]:
    """Return the host's monotonic clock, or that of an emulated library that runs in virtual time."""
    if not hasattr(native, "wattuneClockIsVirtual") or not native.wattuneClockIsVirtual():
        return time.monotonic
    now_ns = native.wattuneNowNs
    now_ns.restype = ctypes.c_int64

    def virtual_now_s() -> float:
        return int(now_ns()) / 1e9

    return virtual_now_s


@contextmanager
def translated(what: str, *, mig: bool = False) -> Iterator[None]:
    """Convert NVML errors of the block to errors of wattune; `what` describes the attempt."""
    try:
        yield
    except pynvml.NVMLError as error:
        fail(error, what, mig=mig)


def fail(error: pynvml.NVMLError, what: str, *, mig: bool = False) -> NoReturn:
    """Raise the error of wattune for one of NVML's."""
    kind, meaning, hint = _HINTS.get(error.value, (DeviceError, f"NVML reports: {error}", "see `wattune doctor`"))
    if mig and kind in (NotSupported, NoPermission):
        hint = "this GPU is sliced by MIG, which hides some readings and controls; `sudo nvidia-smi -mig 0` ends that"
    raise kind(f"{what}: {meaning}", hint=hint) from None
