"""A node of simulated GPUs: the file that all processes with the emulated library share, and its controls."""

from __future__ import annotations

import ctypes
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal, Self

from wattune.core.errors import DeviceError, DeviceNotFound, InputError, NotSupported
from wattune.core.setting import Setting
from wattune.emulator.emulated_gpu import EmulatedGpu, describe, fitted, limited_w, pack
from wattune.emulator.library import SONAME, load_library
from wattune.physics.load_table import LoadTable

NODE_VARIABLE = "WATTUNE_NODE"
NO_PROCESS = 0
"""In place of a process number: a load that belongs to no process."""
_NEVER_NS = (1 << 63) - 1
_IGNORED = -1
_SLICE_S = 0.02


class Privilege(IntEnum):
    """Permission to set clocks and limits."""

    DENIED = 0
    GRANTED = 1
    EUID = 2
    """Root only, as with the real driver."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a GPU had truly spent and done since the node was made by one time, and its clocks then."""

    time_s: float
    """Since the node was made."""
    energy_j: float
    iterations: float
    sm_mhz: int
    mem_mhz: int


class Node:
    """Some simulated GPUs and their common time, as a context manager; the creator removes the file at the end."""

    def __init__(self, path: Path, *, library: Path, handle: int, is_owner: bool) -> None:
        self.path = path
        self.library = library
        self._c = load_library(library)
        self._open_handle: int | None = handle
        self._is_owner = is_owner

    @classmethod
    def create(
        cls,
        path: Path,
        gpus: Sequence[EmulatedGpu],
        *,
        library: Path,
        clock: Literal["wall", "virtual"] = "wall",
        privilege: Privilege = Privilege.GRANTED,
        call_latency_s: float = 0.0,
    ) -> Node:
        """Create a node in a new file."""
        if path.exists():
            raise DeviceError(f"{path} is there already", hint="give every node a file of its own")
        c = load_library(library)
        making = path.with_name(f".{path.name}.{os.getpid()}")
        latency_ns = round(call_latency_s * 1e9)
        handle = c.wattuneNodeCreate(os.fsencode(making), len(gpus), clock == "virtual", int(privilege), latency_ns)
        if not handle:
            reason = os.strerror(ctypes.get_errno())
            raise DeviceError(
                f"cannot make a node of {len(gpus)} simulated GPUs in {path}: {reason}",
                hint="1 to 16 GPUs fit, into a folder that is writable and has room; TMPDIR names another one",
            )
        node = cls(path, library=library, handle=handle, is_owner=True)
        try:
            for index, gpu in enumerate(gpus):
                describe(c, handle, index, gpu)
            c.wattuneNodePublish(handle)
            making.rename(path)
        except BaseException:
            making.unlink(missing_ok=True)
            node.close()
            raise
        return node

    @classmethod
    def attach(cls, path: Path, *, library: Path = Path(SONAME)) -> Node:
        """Open a node of another process; under `wattune simulate` the library is found by its name alone."""
        handle = load_library(library).wattuneNodeOpen(os.fsencode(path))
        if not handle:
            raise DeviceNotFound(f"{path} is no node of simulated GPUs", hint="start the program by: wattune simulate")
        return cls(path, library=library, handle=handle, is_owner=False)

    def close(self) -> None:
        """Close the node; its creator also removes the file."""
        handle, self._open_handle = self._open_handle, None
        if handle is not None:
            self._c.wattuneNodeClose(handle)
        if self._is_owner:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # what plays

    def play(self, index: int, tables: Sequence[LoadTable], *, pid: int | None = None, memory_bytes: int = 0) -> None:
        """Repeat a load on the GPU on behalf of a process, by default this one."""
        device = self._device(index)
        clocks = self._clocks(device)
        fitting = fitted(tables, clocks)
        if pid != NO_PROCESS:
            self.join(index, pid=pid, memory_bytes=memory_bytes)
        arrays = (*pack(fitting), limited_w(tables, clocks))
        packed = [array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for array in arrays]
        self._c.wattunePlay(self._handle, device, fitting[0].duration_s.shape[0], *packed)

    def idle(self, index: int, *, context: bool = True) -> None:
        """Stop the load; without a context the GPU also lowers its clocks."""
        self._c.wattuneIdle(self._handle, self._device(index), context)

    def join(self, index: int, *, pid: int | None = None, memory_bytes: int = 0) -> None:
        """Add a process, by default this one, to the users of the GPU; it holds some of the memory."""
        pid = os.getpid() if pid is None else pid
        if self._c.wattuneJoin(self._handle, self._device(index), pid, memory_bytes):
            raise DeviceError(f"GPU {index} has too many users", hint="32 processes can share a simulated GPU")

    def leave(self, index: int, *, pid: int | None = None) -> None:
        """Remove a process, by default this one, from the users of the GPU."""
        self._c.wattuneLeave(self._handle, self._device(index), os.getpid() if pid is None else pid)

    # time and truth

    @property
    def is_virtual(self) -> bool:
        """True if time passes only by `advance`."""
        return bool(self._c.wattuneNodeIsVirtual(self._handle))

    def now_s(self) -> float:
        """Seconds since the node was made."""
        return float(self._c.wattuneNodeNowNs(self._handle)) / 1e9

    def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        if not self.is_virtual:
            raise NotSupported("the time of this node is real and cannot be advanced", hint="make it with virtual time")
        if not seconds >= 0:
            raise InputError(f"time cannot go back by {seconds} s", hint="advance by zero or more seconds")
        self._c.wattuneAdvance(self._handle, round(seconds * 1e9))

    def run(self, index: int, iterations: float) -> None:
        """Wait for that many more iterations in real time, or advance virtual time by them."""
        device = self._device(index)
        target = self.iterations(index) + iterations
        while left_ns := int(self._c.wattuneUntilNs(self._handle, device, target)):
            if left_ns == _NEVER_NS:
                raise DeviceError(f"GPU {index} plays nothing that could be waited for", hint="call play before run")
            if self.is_virtual:
                self._c.wattuneAdvance(self._handle, left_ns)
            else:
                # In slices, because another process may change the clock meanwhile.
                time.sleep(min(left_ns / 1e9, _SLICE_S))

    def iterations(self, index: int) -> float:
        """Return the iterations of all loads so far."""
        return float(self._c.wattuneIterations(self._handle, self._device(index)))

    def truth_j(self, index: int) -> float:
        """Return the true energy of the GPU since the node was made."""
        return float(self._c.wattuneTruthJ(self._handle, self._device(index)))

    def at(self, index: int, time_s: float) -> Moment:
        """Return what the GPU had truly spent and done by a time of the node, of at most the last 4095 changes."""
        found = (ctypes.c_double * 4)()
        self._c.wattuneAt(self._handle, self._device(index), round(time_s * 1e9), found)
        energy_j, iterations, sm_mhz, mem_mhz = found
        return Moment(time_s, energy_j, iterations, round(sm_mhz), round(mem_mhz))

    # controls, faults, calls

    def setting(self, index: int) -> Setting:
        """Return the locked clocks and the power limit in force."""
        return self._controls(index)[0]

    def persistence(self, index: int) -> bool:
        return self._controls(index)[1]

    def _controls(self, index: int) -> tuple[Setting, bool]:
        clocks, limit_w = (ctypes.c_uint32 * 6)(), ctypes.c_double()
        persistent = self._c.wattuneControls(self._handle, self._device(index), clocks, ctypes.byref(limit_w))
        _, sm_mhz, _, mem_mhz, app_sm_mhz, app_mem_mhz = clocks
        limit = limit_w.value if math.isfinite(limit_w.value) else None
        return Setting(sm_mhz or app_sm_mhz or None, mem_mhz or app_mem_mhz or None, limit), bool(persistent)

    def lose(self, index: int, *, at_s: float | None = None) -> None:
        """Make every call on the GPU report that it is lost, from now or from a time on."""
        lost_ns = round((self.now_s() if at_s is None else at_s) * 1e9)
        self._c.wattuneFault(self._handle, self._device(index), 0, lost_ns)

    def fail(self, index: int, code: int) -> None:
        """Make every call on the GPU return this NVML error code; 0 ends the fault."""
        self._c.wattuneFault(self._handle, self._device(index), code, _NEVER_NS)

    def refuse(self, index: int, code: int) -> None:
        """Make every change of the GPU return this NVML error code without effect; 0 ends the fault."""
        self._c.wattuneRefuse(self._handle, self._device(index), code)

    def ignore(self, index: int) -> None:
        """Accept requested clocks without effect, until `refuse(index, 0)`."""
        self._c.wattuneRefuse(self._handle, self._device(index), _IGNORED)

    def reset(self, index: int, *, at_s: float | None = None) -> None:
        """Reset the GPU now or at a time: its counter starts from zero and its settings are gone."""
        self._c.wattuneReset(self._handle, self._device(index), round((self.now_s() if at_s is None else at_s) * 1e9))

    def inject(self, function: str, *, code: int = 0, blocking_s: float = 0.0) -> None:
        """Make all versions of an NVML function, or `all`, block and then return this error; with neither, end that."""
        versions = re.compile(r"\w+" if function == "all" else re.escape(function) + r"(_v\d|WithFlags)?")
        numbers = [number for number in range(self._c.wattuneFunctions()) if versions.fullmatch(self._name(number))]
        if not numbers:
            raise InputError(f"NVML has no function {function!r}", hint='write its full name, or "all"')
        for number in numbers:
            self._c.wattuneInject(self._handle, number, code, round(blocking_s * 1e9))

    def shift_pids(self, shift: int) -> None:
        """Report processes by numbers that differ by this much, as a driver does to a container."""
        self._c.wattuneShiftPids(self._handle, shift)

    def _name(self, number: int) -> str:
        return str(self._c.wattuneFunctionName(number).decode())

    def calls(self) -> dict[str, int]:
        """Count the calls of each NVML function by all processes, without those never called."""
        return {self._name(number): count for number, count in self._counts() if count}

    def setter_calls(self) -> int:
        """Count the calls that set something, by all processes."""
        return sum(count for number, count in self._counts() if self._c.wattuneFunctionKind(number) == b"s")

    def getter_calls(self) -> int:
        """Count the calls that read something, by all processes."""
        return sum(count for number, count in self._counts() if self._c.wattuneFunctionKind(number) == b"g")

    def _counts(self) -> list[tuple[int, int]]:
        """Return the calls of each NVML function, by its number."""
        numbers = range(self._c.wattuneFunctions())
        return [(number, int(self._c.wattuneCalls(self._handle, number))) for number in numbers]

    # inside

    @property
    def _handle(self) -> int:
        if self._open_handle is None:
            raise DeviceError("the node of simulated GPUs is closed", hint="use it inside its with block")
        return self._open_handle

    @property
    def count(self) -> int:
        return int(self._c.wattuneNodeDevices(self._handle))

    def _device(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise DeviceNotFound(f"there is no GPU {index}", hint=f"the node has GPUs 0 to {self.count - 1}")
        return index

    def _clocks(self, device: int) -> list[tuple[int, tuple[int, ...]]]:
        mem_mhz, sm_mhz, found = ctypes.c_uint32(), (ctypes.c_uint32 * 256)(), []
        for row in range(self._c.wattuneDeviceRows(self._handle, device)):
            count = self._c.wattuneDeviceClocks(self._handle, device, row, ctypes.byref(mem_mhz), sm_mhz)
            found.append((mem_mhz.value, tuple(sm_mhz[:count])))
        return found


@contextmanager
def emulated(node: Node) -> Iterator[Node]:
    """Make nvmlInit in this process use the node until the block ends.

    The node's library is loaded already, so nvidia-ml-py gets it by its bare name unless a real one was loaded before.
    A process can use one node at a time.
    """
    before = os.environ.get(NODE_VARIABLE)
    os.environ[NODE_VARIABLE] = str(node.path)
    try:
        yield node
    finally:
        if before is None:
            del os.environ[NODE_VARIABLE]
        else:
            os.environ[NODE_VARIABLE] = before
