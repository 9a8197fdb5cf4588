"""A node of simulated GPUs: the file that every process under the emulated library shares, and how it is driven."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from wattune.core.errors import DeviceError, DeviceNotFound, InputError, NotSupported
from wattune.core.setting import Setting
from wattune.emulator.describe import describe, fitted, limited_w, pack
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import SONAME, load_library
from wattune.physics.load_table import LoadTable

NODE_VARIABLE = "WATTUNE_NODE"
NOBODY = 0
"""In place of a process number: a load that no process shows up for."""
_NEVER_NS = (1 << 63) - 1
_IGNORED = -1
_SLICE_S = 0.02


class Privilege(IntEnum):
    """Who may set clocks and limits."""

    DENIED = 0
    GRANTED = 1
    EUID = 2
    """Root only, as with the real driver."""


class Node:
    """Some simulated GPUs and their common time. Use it as a context manager; whoever created it removes it."""

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
        """A new node in a new file."""
        if path.exists():
            raise DeviceError(f"{path} is there already", hint="give every node a file of its own")
        c = load_library(library)
        making = path.with_name(f".{path.name}.{os.getpid()}")
        latency_ns = round(call_latency_s * 1e9)
        handle = c.wattuneNodeCreate(os.fsencode(making), len(gpus), clock == "virtual", int(privilege), latency_ns)
        if not handle:
            raise DeviceError(f"cannot make a node of {len(gpus)} simulated GPUs in {path}", hint="1 to 16 GPUs fit")
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
        """A node that another process made; under `wattune simulate` the library is found by its name alone."""
        handle = load_library(library).wattuneNodeOpen(os.fsencode(path))
        if not handle:
            raise DeviceNotFound(f"{path} is no node of simulated GPUs", hint="start the program by: wattune simulate")
        return cls(path, library=library, handle=handle, is_owner=False)

    def close(self) -> None:
        """Nothing; this process lets go of the node, and its creator removes the file."""
        handle, self._open_handle = self._open_handle, None
        if handle is not None:
            self._c.wattuneNodeClose(handle)
        if self._is_owner:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # what plays

    def play(self, index: int, tables: Sequence[LoadTable], *, pid: int | None = None, memory_bytes: int = 0) -> None:
        """Nothing; the GPU plays this load over and over from now on, on behalf of a process (this one)."""
        device = self._device(index)
        clocks = self._clocks(device)
        fitting = fitted(tables, clocks)
        if pid != NOBODY:
            self.join(index, pid=pid, memory_bytes=memory_bytes)
        arrays = (*pack(fitting), limited_w(tables, clocks))
        packed = [array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for array in arrays]
        self._c.wattunePlay(self._handle, device, fitting[0].duration_s.shape[0], *packed)

    def idle(self, index: int, *, context: bool = True) -> None:
        """Nothing; the load stops. Without a context the GPU goes to sleep."""
        self._c.wattuneIdle(self._handle, self._device(index), context)

    def join(self, index: int, *, pid: int | None = None, memory_bytes: int = 0) -> None:
        """Nothing; a process (this one) is now a user of the GPU and holds some of its memory."""
        pid = os.getpid() if pid is None else pid
        if self._c.wattuneJoin(self._handle, self._device(index), pid, memory_bytes):
            raise DeviceError(f"GPU {index} has too many users", hint="32 processes can share a simulated GPU")

    def leave(self, index: int, *, pid: int | None = None) -> None:
        """Nothing; the process is no user any more."""
        self._c.wattuneLeave(self._handle, self._device(index), os.getpid() if pid is None else pid)

    # time and truth

    @property
    def is_virtual(self) -> bool:
        """Whether time passes only when somebody advances it."""
        return bool(self._c.wattuneNodeIsVirtual(self._handle))

    def now_s(self) -> float:
        """Seconds since the node was made."""
        return float(self._c.wattuneNodeNowNs(self._handle)) / 1e9

    def advance(self, seconds: float) -> None:
        """Nothing; virtual time goes on by so much."""
        if not self.is_virtual:
            raise NotSupported("the time of this node is real and cannot be advanced", hint="make it with virtual time")
        if not seconds >= 0:
            raise InputError(f"time cannot go back by {seconds} s", hint="advance by zero or more seconds")
        self._c.wattuneAdvance(self._handle, round(seconds * 1e9))

    def run(self, index: int, iterations: float) -> None:
        """Nothing; the GPU has done that many more iterations. Waits in real time, advances virtual time."""
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
        """Iterations done by all loads so far."""
        return float(self._c.wattuneIterations(self._handle, self._device(index)))

    def truth_j(self, index: int) -> float:
        """What the GPU really spent since the node was made, whatever its sensors show."""
        return float(self._c.wattuneTruthJ(self._handle, self._device(index)))

    # controls, faults, calls

    def setting(self, index: int) -> Setting:
        """The locks and the power limit in force."""
        clocks = (ctypes.c_uint32 * 6)()
        limit_w = ctypes.c_double()
        self._c.wattuneControls(self._handle, self._device(index), clocks, ctypes.byref(limit_w))
        _, sm_mhz, _, mem_mhz, app_sm_mhz, app_mem_mhz = clocks
        limited = math.isfinite(limit_w.value)
        return Setting(sm_mhz or app_sm_mhz or None, mem_mhz or app_mem_mhz or None, limit_w.value if limited else None)

    def persistence(self, index: int) -> bool:
        """Whether persistence mode is on."""
        clocks, limit_w = (ctypes.c_uint32 * 6)(), ctypes.c_double()
        return bool(self._c.wattuneControls(self._handle, self._device(index), clocks, ctypes.byref(limit_w)))

    def lose(self, index: int, *, at_s: float | None = None) -> None:
        """Nothing; from then on (now) every call on the GPU says that it is lost."""
        lost_ns = round((self.now_s() if at_s is None else at_s) * 1e9)
        self._c.wattuneFault(self._handle, self._device(index), 0, lost_ns)

    def fail(self, index: int, code: int) -> None:
        """Nothing; every call on the GPU gives this NVML error code, and 0 mends it."""
        self._c.wattuneFault(self._handle, self._device(index), code, _NEVER_NS)

    def refuse(self, index: int, code: int) -> None:
        """Nothing; every change on the GPU gives this NVML error code and does nothing, and 0 mends it."""
        self._c.wattuneRefuse(self._handle, self._device(index), code)

    def ignore(self, index: int) -> None:
        """Nothing; clocks that are asked for are taken and never come into force, until `refuse(index, 0)`."""
        self._c.wattuneRefuse(self._handle, self._device(index), _IGNORED)

    def calls(self) -> dict[str, int]:
        """How often each NVML function was called, by all processes; those never called are left out."""
        c = self._c
        counts = {
            c.wattuneFunctionName(n).decode(): int(c.wattuneCalls(self._handle, n)) for n in range(self._functions)
        }
        return {name: count for name, count in counts.items() if count}

    def setter_calls(self) -> int:
        """How often anything was set, by all processes."""
        return self._calls_of(b"s")

    def getter_calls(self) -> int:
        """How often anything was read, by all processes."""
        return self._calls_of(b"g")

    def _calls_of(self, kind: bytes) -> int:
        c = self._c
        numbers = (number for number in range(self._functions) if c.wattuneFunctionKind(number) == kind)
        return sum(int(c.wattuneCalls(self._handle, number)) for number in numbers)

    @property
    def _functions(self) -> int:
        return int(self._c.wattuneFunctions())

    # inside

    @property
    def _handle(self) -> int:
        if self._open_handle is None:
            raise DeviceError("the node of simulated GPUs is closed", hint="use it inside its with block")
        return self._open_handle

    @property
    def count(self) -> int:
        """How many GPUs there are."""
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
    """The node, which nvmlInit in this process finds until the block ends.

    The library is already loaded by whoever made the node, so nvidia-ml-py gets it by its bare name as long as no real
    one was loaded before. Only one node serves a process at a time.
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
