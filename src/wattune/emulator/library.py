"""The emulated libnvidia-ml.so.1: compiled once from the C source beside this file, then kept in a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from wattune.core.errors import DeviceError, NotSupported

SOURCE = Path(__file__).parent / "nvml"
SONAME = "libnvidia-ml.so.1"
LINK = "libnvidia-ml.so"
CLOCK = "libwattune-clock.so"
CLOCK_SOURCES = ("clock_preload.c", "node.c")
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs")


def build_library(cache_dir: Path, *, compiler: str | None = None) -> Path:
    """The path of the library, compiled now unless the cache has it.

    The folder it lies in also holds the `libnvidia-ml.so` link and the clock to preload for virtual time, and can be
    put on LD_LIBRARY_PATH. Any number of processes may do this at once.
    """
    folder = cache_dir / f"nvml-{_fingerprint()}"
    if not (folder / SONAME).exists():
        _compile_into(folder, compiler or _find_compiler())
    return folder / SONAME


def clock_library(library: Path) -> Path:
    """The library to preload so that CLOCK_REALTIME follows a node's virtual time."""
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
    """Nothing; the folder is there, whole. It is made under another name and renamed, so nobody sees half of it."""
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
        _put_in_place(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _put_in_place(making: Path, folder: Path) -> None:
    try:
        making.rename(folder)
    except OSError:
        # Somebody else was quicker, and theirs is as good as ours.
        if not (folder / SONAME).exists():
            raise


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
