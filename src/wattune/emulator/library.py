"""The emulated libnvidia-ml.so.1: compiled once from the C source in this package and cached."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from wattune.core.errors import DeviceError, DeviceNotFound, NotSupported

SOURCE = Path(__file__).parent / "nvml"
SONAME = "libnvidia-ml.so.1"
LINK = "libnvidia-ml.so"
CLOCK = "libwattune-clock.so"
CLOCK_SOURCES = ("clock_preload.c", "node.c")
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs")


def build_library(cache_dir: Path, *, compiler: str | None = None) -> Path:
    """Return the path of the library; compile it unless the cache has it.

    Its folder, which can be put on LD_LIBRARY_PATH, also holds the `libnvidia-ml.so` link and the clock to preload for
    virtual time. Any number of processes may build at once.
    """
    folder = cache_dir / f"nvml-{_fingerprint()}"
    if not (folder / SONAME).exists():
        _compile_into(folder, compiler or _find_compiler())
    return folder / SONAME


def clock_library(library: Path) -> Path:
    """Return the library to preload so that CLOCK_REALTIME follows a node's virtual time."""
    return library.parent / CLOCK


def _fingerprint() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    digest.update(os.uname().machine.encode())
    for file in sorted(SOURCE.glob("*.[chi]*")):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _find_compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return found
    raise NotSupported(
        "the emulated NVML library has to be compiled once and there is no C compiler",
        hint="install one, for example: apt-get install gcc libc6-dev",
    )


def _compile_into(folder: Path, compiler: str) -> None:
    """Compile into a temporary folder and rename it, so that no other process reads a partial one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DeviceError(
            f"cannot write the emulated library to {folder.parent}: {error.strerror}",
            hint="choose another cache folder with WATTUNE_CACHE",
        ) from None
    try:
        sources = sorted(file.name for file in SOURCE.glob("*.c") if file.name != "clock_preload.c")
        _run_compiler(
            [compiler, *FLAGS, f"-Wl,-soname,{SONAME}", "-o", str(making / SONAME), *sources, "-lm", "-lpthread"]
        )
        _run_compiler([compiler, *FLAGS, "-o", str(making / CLOCK), *CLOCK_SOURCES])
        (making / LINK).symlink_to(SONAME)
        making.chmod(0o755)
        making.rename(folder)
    except OSError:
        if not (folder / SONAME).exists():  # otherwise another process was faster, and its folder is equivalent
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _run_compiler(command: list[str]) -> None:
    try:
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotSupported(f"cannot run the C compiler {command[0]}: {error.strerror}", hint="install gcc") from None
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise DeviceError(
            f"the emulated NVML library does not compile: {complaint.strip()}",
            hint="it needs a C11 compiler and the headers of glibc: apt-get install gcc libc6-dev",
        )


_VOID = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_UINT = ctypes.c_uint
_INT = ctypes.c_int
_LONG = ctypes.c_int64
_DOUBLE = ctypes.c_double
_DOUBLES = ctypes.POINTER(ctypes.c_double)
_UINTS = ctypes.POINTER(ctypes.c_uint32)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # name: (result, arguments ...)
    "wattuneNodeCreate": (_VOID, _TEXT, _UINT, _INT, _UINT, _LONG),
    "wattuneNodePublish": (None, _VOID),
    "wattuneNodeOpen": (_VOID, _TEXT),
    "wattuneNodeClose": (None, _VOID),
    "wattuneNodeDevices": (_UINT, _VOID),
    "wattuneNodeIsVirtual": (_INT, _VOID),
    "wattuneNodeNowNs": (_LONG, _VOID),
    "wattuneDescribeText": (_INT, _VOID, _UINT, _TEXT, _TEXT),
    "wattuneDescribeNumber": (_INT, _VOID, _UINT, _TEXT, _DOUBLE),
    "wattuneDescribeClocks": (_INT, _VOID, _UINT, _UINT, _UINT, _UINTS, _DOUBLES),
    "wattuneDeviceRows": (_UINT, _VOID, _UINT),
    "wattuneDeviceClocks": (_UINT, _VOID, _UINT, _UINT, _UINTS, _UINTS),
    "wattunePlay": (_INT, _VOID, _UINT, _UINT, *[_DOUBLES] * 7),
    "wattuneIdle": (None, _VOID, _UINT, _INT),
    "wattuneJoin": (_INT, _VOID, _UINT, _INT, ctypes.c_uint64),
    "wattuneLeave": (None, _VOID, _UINT, _INT),
    "wattuneAdvance": (None, _VOID, _LONG),
    "wattuneTruthJ": (_DOUBLE, _VOID, _UINT),
    "wattuneIterations": (_DOUBLE, _VOID, _UINT),
    "wattuneAt": (None, _VOID, _UINT, _LONG, _DOUBLES),
    "wattuneUntilNs": (_LONG, _VOID, _UINT, _DOUBLE),
    "wattuneControls": (_INT, _VOID, _UINT, _UINTS, _DOUBLES),
    "wattuneFault": (None, _VOID, _UINT, _INT, _LONG),
    "wattuneRefuse": (None, _VOID, _UINT, _INT),
    "wattuneReset": (None, _VOID, _UINT, _LONG),
    "wattuneInject": (None, _VOID, _UINT, _INT, _LONG),
    "wattuneShiftPids": (None, _VOID, _INT),
    "wattuneFunctions": (_UINT,),
    "wattuneFunctionName": (_TEXT, _UINT),
    "wattuneFunctionKind": (ctypes.c_char, _UINT),
    "wattuneCalls": (ctypes.c_uint64, _VOID, _UINT),
    "wattuneDieSetting": (None, _VOID, _UINT, _UINT),
    "wattuneSizeOf": (ctypes.c_size_t, _TEXT),
    "wattuneIsEmulated": (_INT,),
    "wattuneMaySet": (_INT,),
    "wattuneClockIsVirtual": (_INT,),
    "wattuneNowNs": (_LONG,),
}


@cache
def load_library(path: Path) -> ctypes.CDLL:
    """Load the library into this process and declare its types.

    From then on glibc returns it for the bare name libnvidia-ml.so.1, which is its soname and the name that
    nvidia-ml-py loads.
    """
    try:
        library = ctypes.CDLL(str(path), use_errno=True)
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError):
        raise DeviceNotFound(
            f"{path} is not the emulated NVML library", hint="start the program by: wattune simulate"
        ) from None
    return library
