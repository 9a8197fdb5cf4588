"""Undo what a process set on an NVIDIA GPU, knob by knob, and only where the knob still has a value of ours.

This is the one place that gives knobs back: at the end of a program, in `wattune restore` and in the watchdog. The
watchdog imports it, so it calls NVML through ctypes and does without pynvml.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence

from wattune.devices.entry import DONE, FOREIGN, KNOBS, UNDO, Entry, judge, judge_lock

FUNCTION_NOT_FOUND = 13
_UNREADABLE = (3, 4, FUNCTION_NOT_FOUND, 26)
"""Not supported, no permission, missing in an old driver, removed from a new one."""

_GETTERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "power_limit": ("nvmlDeviceGetPowerManagementLimit", ()),
    "sm_clock": ("nvmlDeviceGetClockInfo", (1,)),
    "mem_clock": ("nvmlDeviceGetClockInfo", (2,)),
    "app_sm_clock": ("nvmlDeviceGetApplicationsClock", (0,)),
    "app_mem_clock": ("nvmlDeviceGetApplicationsClock", (2,)),
}
"""How a knob is read. A lock cannot be read; the clock itself is read in its place."""

_RESETS = {"sm_clock": "nvmlDeviceResetGpuLockedClocks", "mem_clock": "nvmlDeviceResetMemoryLockedClocks"}

APART = (("power_limit",), ("sm_clock",), ("mem_clock",), ("app_mem_clock", "app_sm_clock"))
"""Knobs that can be given back at the same time as the others."""

SETTLE_S = 0.5
"""A clock may stay above a new lock for this long: published switching times end below 0.4 s."""

_POLL_S = 0.01
_MOST_CLOCKS = 1024
"""More than any GPU lists; a longer list is left to the driver to check."""


class Refused(Exception):
    """The error code of an NVML call that failed."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


def read_knob(library: ctypes.CDLL, handle: ctypes.c_void_p, knob: str) -> int | None:
    """Read a knob; None where the GPU does not report it."""
    name, arguments = _GETTERS[knob]
    value = ctypes.c_uint()
    code = _call(library, name, handle, *map(ctypes.c_uint, arguments), ctypes.byref(value))
    if code and code not in _UNREADABLE:
        raise Refused(code)
    return None if code else value.value


def undo_entry(library: ctypes.CDLL, entry: Entry, *, since_s: float) -> tuple[str, ...]:
    """Undo an entry on the GPU it names; ValueError if it cannot be an entry of that GPU."""
    if entry.device != f"nvml:{entry.uuid}":
        raise ValueError(f"it names the device {entry.device[:60]!r}")
    handle = ctypes.c_void_p()
    code = _call(library, "nvmlDeviceGetHandleByUUID", entry.uuid.encode(), ctypes.byref(handle))
    if code:
        raise Refused(code)
    return undo(library, handle, entry.ours, entry.found, since_s=since_s)


def undo(
    library: ctypes.CDLL,
    handle: ctypes.c_void_p,
    ours: Mapping[str, Sequence[int]],
    found: Mapping[str, int],
    *,
    since_s: float | None,
) -> tuple[str, ...]:
    """Give back each knob that still has a value of ours, last set at `since_s` (Unix time).

    `since_s` is None where the driver is slow: then it is asked for no more than must be known. Return a line about
    each knob that somebody else has set since, which is left as it is. A knob that fails does not keep the others from
    being undone; its error is raised at the end.
    """
    left: list[str] = []
    failures: list[Exception] = []
    for undo_some in (_undo_limit, _undo_locks, _undo_applications_clocks):
        try:
            left += undo_some(library, handle, ours, found, since_s)
        except (Refused, ValueError) as error:
            failures.append(error)
    if failures:  # an entry that says too much is set aside, so that it must not hide a knob to try again
        raise next((failure for failure in failures if isinstance(failure, Refused)), failures[0])
    return tuple(left)


Values = Mapping[str, Sequence[int]]
Found = Mapping[str, int]


def _undo_limit(
    library: ctypes.CDLL, handle: ctypes.c_void_p, ours: Values, found: Found, since_s: float | None
) -> list[str]:
    limit_mw = found.get("power_limit")
    if "power_limit" not in ours or limit_mw is None:
        return []
    now_mw = read_knob(library, handle, "power_limit")
    verdict = judge(ours["power_limit"], limit_mw, now_mw)
    if verdict == FOREIGN:
        return [
            f"its power limit is {_watts(now_mw)}, set by somebody else after our {_watts(ours['power_limit'][-1])}"
        ]
    if verdict == UNDO:
        low_mw, high_mw = ctypes.c_uint(), ctypes.c_uint()
        constraints = (ctypes.byref(low_mw), ctypes.byref(high_mw))
        unknown = since_s is None or _call(
            library, "nvmlDeviceGetPowerManagementLimitConstraints", handle, *constraints
        )
        if not unknown and not low_mw.value <= limit_mw <= high_mw.value:
            raise ValueError(f"its power limit of {_watts(limit_mw)} is none of that GPU")
        _set(library, "nvmlDeviceSetPowerManagementLimit", handle, ctypes.c_uint(limit_mw))
    return []


def _undo_locks(
    library: ctypes.CDLL, handle: ctypes.c_void_p, ours: Values, _found: Found, since_s: float | None
) -> list[str]:
    left: list[str] = []
    failure: Refused | None = None
    for knob, reset in _RESETS.items():
        if knob not in ours:
            continue
        try:
            now_mhz = _settled_clock(library, handle, knob, ours[knob], since_s)
            if judge_lock(ours[knob], now_mhz) == FOREIGN:
                left.append(f"its {KNOBS[knob]} is {now_mhz} MHz, above our lock of {max(ours[knob])} MHz")
            else:
                _set(library, reset, handle)
        except Refused as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return left


def _settled_clock(
    library: ctypes.CDLL, handle: ctypes.c_void_p, knob: str, ours: Sequence[int], since_s: float | None
) -> int | None:
    """Read a clock; while it is above our lock, wait until a lock that was set last must have taken effect."""
    if since_s is None or _is_virtual(library):
        return None  # it would take too long, or no time passes while we wait
    end_s = min(since_s, time.time()) + SETTLE_S
    while True:
        now_mhz = read_knob(library, handle, knob)
        if judge_lock(ours, now_mhz) == UNDO or time.time() >= end_s:
            return now_mhz
        time.sleep(_POLL_S)


def _undo_applications_clocks(
    library: ctypes.CDLL, handle: ctypes.c_void_p, ours: Values, found: Found, _since_s: float | None
) -> list[str]:
    knobs = [knob for knob in ("app_mem_clock", "app_sm_clock") if knob in ours]
    now = {knob: read_knob(library, handle, knob) for knob in knobs}
    verdicts = {knob: judge(ours[knob], found.get(knob), now[knob]) for knob in knobs}
    foreign = [knob for knob in knobs if verdicts[knob] == FOREIGN]
    if foreign or set(verdicts.values()) <= {DONE}:
        return [f"its {KNOBS[knob]} is {now[knob]} MHz, set by somebody else" for knob in foreign]
    values = [found[knob] for knob in ("app_mem_clock", "app_sm_clock") if knob in found]
    if len(values) == 2:
        if not _is_listed(library, handle, *values):
            raise ValueError(f"its applications clocks of {values[0]} and {values[1]} MHz are none of that GPU")
        _set(library, "nvmlDeviceSetApplicationsClocks", handle, *map(ctypes.c_uint, values))
    else:
        _set(library, "nvmlDeviceResetApplicationsClocks", handle)
    return []


def _is_listed(library: ctypes.CDLL, handle: ctypes.c_void_p, mem_mhz: int, sm_mhz: int) -> bool:
    """Return whether the GPU lists these clocks, as far as it lists any."""
    for name, arguments, mhz in (
        ("nvmlDeviceGetSupportedMemoryClocks", (), mem_mhz),
        ("nvmlDeviceGetSupportedGraphicsClocks", (ctypes.c_uint(mem_mhz),), sm_mhz),
    ):
        clocks = (ctypes.c_uint * _MOST_CLOCKS)()
        count = ctypes.c_uint(_MOST_CLOCKS)
        unknown = _call(library, name, handle, *arguments, ctypes.byref(count), clocks)
        if not unknown and mhz not in clocks[: count.value]:
            return False
    return True


def _set(library: ctypes.CDLL, name: str, handle: ctypes.c_void_p, *arguments: ctypes.c_uint) -> None:
    code = _call(library, name, handle, *arguments)
    if code:
        raise Refused(code)


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> int:
    try:
        function = library[name]
    except AttributeError:
        return FUNCTION_NOT_FOUND
    return int(function(*arguments))


def _is_virtual(library: ctypes.CDLL) -> bool:
    """Return whether it is the emulated library in virtual time."""
    return hasattr(library, "wattuneClockIsVirtual") and bool(library.wattuneClockIsVirtual())


def _watts(milliwatts: int | None) -> str:
    return "unknown" if milliwatts is None else f"{milliwatts / 1000:g} W"
