"""The accessors of the emulated library, with their C types."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from wattune.core.errors import DeviceNotFound

_VOID = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_UINT = ctypes.c_uint
_INT = ctypes.c_int
_LONG = ctypes.c_int64
_DOUBLE = ctypes.c_double
_DOUBLES = ctypes.POINTER(ctypes.c_double)
_UINTS = ctypes.POINTER(ctypes.c_uint32)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # name: (what comes back, what goes in ...)
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
    "wattuneUntilNs": (_LONG, _VOID, _UINT, _DOUBLE),
    "wattuneControls": (_INT, _VOID, _UINT, _UINTS, _DOUBLES),
    "wattuneFault": (None, _VOID, _UINT, _INT, _LONG),
    "wattuneRefuse": (None, _VOID, _UINT, _INT),
    "wattuneFunctions": (_UINT,),
    "wattuneFunctionName": (_TEXT, _UINT),
    "wattuneFunctionKind": (ctypes.c_char, _UINT),
    "wattuneCalls": (ctypes.c_uint64, _VOID, _UINT),
    "wattuneDieSetting": (None, _VOID, _UINT, _UINT),
    "wattuneSizeOf": (ctypes.c_size_t, _TEXT),
    "wattuneIsEmulated": (_INT,),
    "wattuneClockIsVirtual": (_INT,),
    "wattuneNowNs": (_LONG,),
}


@cache
def load_library(path: Path) -> ctypes.CDLL:
    """The library, loaded into this process and typed.

    From here on glibc gives this one to whoever asks for libnvidia-ml.so.1 by its bare name, because its soname says
    so; nvidia-ml-py does.
    """
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError):
        raise DeviceNotFound(
            f"{path} is not the emulated NVML library", hint="start the program by: wattune simulate"
        ) from None
    return library
