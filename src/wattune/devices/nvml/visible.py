"""Which GPU a number means: the order in which CUDA numbers GPUs, and CUDA_VISIBLE_DEVICES.

NVML numbers GPUs by their bus ids. CUDA does so only with CUDA_DEVICE_ORDER=PCI_BUS_ID; by default (FASTEST_FIRST) the
fastest comes first, by a rule that NVIDIA does not publish. Where all GPUs are of one kind, both orders are the same.
Elsewhere CUDA itself is asked, in a process of its own, because asking initialises it. Without CUDA the order is
estimated: more cores times clock first, then by bus.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from wattune.core.errors import NotSupported

BUS_ORDER = "PCI_BUS_ID"
ORDER_TIMEOUT_S = 20.0
"""Initialising CUDA takes about a second on a server with many GPUs."""

Origin = Literal["bus", "cuda", "estimate"]


@dataclass(frozen=True, slots=True)
class Present:
    """A GPU of the machine; text is empty and speed 0 for a lost one."""

    index: int
    """Its number in NVML."""
    uuid: str
    name: str = ""
    speed: float = 0.0
    """Cores times the highest clock: only for comparison."""


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs that a program sees, in the order of CUDA, the origin of that order, and how many the machine has."""

    gpus: tuple[Present, ...]
    origin: Origin
    total: int


def visible_gpus(
    variable: str | None,
    order: str | None,
    gpus: Sequence[Present],
    *,
    ask_cuda: Callable[[], tuple[str, ...] | None],
) -> Visible:
    """Return the GPUs that CUDA would show with these values of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""
    in_order, origin = _cuda_order(order, gpus, ask_cuda)
    places = visible_places(variable, [gpus[index].uuid for index in in_order])
    return Visible(tuple(gpus[in_order[place]] for place in places), origin, len(gpus))


def _cuda_order(
    order: str | None, gpus: Sequence[Present], ask_cuda: Callable[[], tuple[str, ...] | None]
) -> tuple[tuple[int, ...], Origin]:
    by_bus = tuple(range(len(gpus)))
    if order == BUS_ORDER or len({(gpu.name, gpu.speed) for gpu in gpus if gpu.name}) <= 1:
        return by_bus, "bus"
    uuids = [gpu.uuid for gpu in gpus]
    asked = ask_cuda()
    if asked is not None and all(uuid in uuids for uuid in asked):
        shown = [uuids.index(uuid) for uuid in asked]
        return (*shown, *(index for index in by_bus if index not in shown)), "cuda"
    return tuple(sorted(by_bus, key=lambda index: -gpus[index].speed)), "estimate"


def visible_places(variable: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the places of the visible GPUs among these, which are in the order of CUDA.

    Unset means all. The first entry decides whether the list is one of numbers or of UUIDs. A UUID may be shortened as
    long as it is unique. The list ends at the first entry that names no GPU, and one that names a GPU twice is empty.
    """
    if variable is None:
        return tuple(range(len(uuids)))
    _refuse_slices(variable.split(",")[0].strip())
    if variable.startswith("GPU-"):
        named = list(takewhile(lambda entry: entry.startswith("GPU-"), variable.split(",")))
        places = [_place_of_uuid(entry, uuids) for entry in named]
    else:
        named = list(takewhile(bool, map(_leading_digits, variable.split(","))))
        places = [int(digits) if len(digits) < 10 and int(digits) < len(uuids) else None for digits in named]
    known = [place for place in takewhile(lambda place: place is not None, places) if place is not None]
    return tuple(known) if len(set(named)) == len(named) and len(set(known)) == len(known) else ()


def _refuse_slices(entry: str) -> None:
    """Raise an error for a slice of a GPU: its energy cannot be told from that of its neighbours."""
    if not entry.startswith("MIG-"):
        return
    old_form = re.match(r"MIG-(GPU-[^/]+)/", entry)
    whole = f"nvml:{old_form[1]}" if old_form else "nvml:GPU-…"
    raise NotSupported(
        f"CUDA_VISIBLE_DEVICES names a slice of a GPU ({entry}); energy, clocks and limits are those of the whole GPU",
        hint=f"name the GPU that holds the slice: --device {whole} (`nvidia-smi -L` lists both)",
    )


def _place_of_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    matches = [place for place, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _leading_digits(entry: str) -> str:
    """Return the number at the beginning of an entry, as C reads it; empty for a negative one and for none."""
    number = re.match(r"\s*\+?([0-9]+)", entry)
    return (number[1].lstrip("0") or "0") if number else ""


ASK = """
import ctypes, json, os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
cuda = ctypes.CDLL("libcuda.so.1")
count, uuids = ctypes.c_int(), []
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for index in range(count.value):
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGet(ctypes.byref(device), index) == 0 and cuda.cuDeviceGetUuid(uuid, device) == 0
    uuids.append(bytes(uuid).hex())
print(json.dumps(uuids))
"""


def ask_cuda() -> tuple[str, ...] | None:
    """Return the UUIDs of all GPUs in the order of CUDA; None where CUDA does not answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", ASK], capture_output=True, timeout=ORDER_TIMEOUT_S, check=True
        )
        return tuple(_uuid_text(digits) for digits in json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _uuid_text(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)
