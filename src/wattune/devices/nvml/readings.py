"""What a GPU shows beside its counter: every value is optional, and read by the newest function that the driver has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pynvml

from wattune.core.reading import Count, Reading, Throttle
from wattune.devices.in_turn import PATIENCE_S
from wattune.devices.nvml.describe import FATAL, answers, field_of

T = TypeVar("T")

ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_DEPRECATED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Errors of a function that this driver does not have, or not for this GPU."""

CHEAP_S = 0.002
"""A reading of eight values takes half a millisecond with an ordinary driver. Where it takes longer than this, values
that change slowly are read less often."""
SLOW_S = 2.0
"""Between two readings of those."""

THROTTLE_BITS = (
    (pynvml.nvmlClocksEventReasonGpuIdle, Throttle.IDLE),
    (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, Throttle.LOCKED),
    (pynvml.nvmlClocksEventReasonSwPowerCap, Throttle.POWER_CAP),
    (pynvml.nvmlClocksEventReasonHwSlowdown, Throttle.HARDWARE),
    (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, Throttle.HARDWARE),
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, Throttle.THERMAL),
    (pynvml.nvmlClocksEventReasonHwThermalSlowdown, Throttle.THERMAL),
    (pynvml.nvmlClocksEventReasonSyncBoost, Throttle.OTHER),
    (pynvml.nvmlClocksEventReasonDisplayClockSetting, Throttle.OTHER),
)


class Query(Generic[T]):
    """An optional value: the first of its functions that the driver has, and None where it has none."""

    def __init__(self, *functions: Callable[[], T]) -> None:
        """`functions` are those that give the value, the newest first."""
        self._functions = list(functions)

    def __call__(self) -> T | None:
        while self._functions:
            try:
                return self._functions[0]()
            except pynvml.NVMLError as error:
                if error.value in FATAL:
                    raise
                if error.value not in ABSENT:
                    return None
                self._functions.pop(0)
        return None


class Readings:
    """Reads all that one GPU shows."""

    def __init__(self, handle: Any, *, call_s: float = 0.0) -> None:
        """A call of the driver has taken so long."""
        self._takes_long = call_s > PATIENCE_S
        gpu, sm, mem = pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
        self._utilisation = Query[Any](lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
        self._sm_mhz = Query[int](lambda: pynvml.nvmlDeviceGetClockInfo(handle, sm))
        self._mem_mhz = Query[int](lambda: pynvml.nvmlDeviceGetClockInfo(handle, mem))
        self._reasons = Query[int](
            lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        )
        self._temperature_c = Query[float](
            lambda: float(pynvml.nvmlDeviceGetTemperatureV(handle, gpu)),
            lambda: float(pynvml.nvmlDeviceGetTemperature(handle, gpu)),
        )
        self._limit_mw = Query[int](lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        self._memory = Query[Any](lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        self._slow: tuple[Any, ...] = (None, None)
        self._slow_until_s = 0.0

    def take(self, count: Count, *, power_mw: int | None) -> Reading:
        """Return a reading with these values of the sensors that were read already, at the time of the count.

        The other sensors may take long, in which the energy counter moves.
        """
        begun_s = time.monotonic()
        # The limit always: by it one sees whether a setting was applied.
        always = (self._utilisation, self._sm_mhz, self._mem_mhz, self._reasons, self._limit_mw)
        utilisation, sm_mhz, mem_mhz, reasons, limit_mw = self._asked(*always)
        throttle = throttle_of(reasons)
        if begun_s >= self._slow_until_s:
            self._slow = tuple(self._asked(self._temperature_c, self._memory))
            ended_s = time.monotonic()
            self._slow_until_s = 0.0 if ended_s - begun_s < CHEAP_S else ended_s + SLOW_S
        temperature_c, memory = self._slow
        return Reading(
            time_s=count.time_s,
            energy_j=count.energy_j,
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=temperature_c,
            sm_mhz=sm_mhz,
            mem_mhz=mem_mhz,
            throttle=throttle,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            sm_util=None if utilisation is None else utilisation.gpu / 100,
            mem_util=None if utilisation is None else utilisation.memory / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
        )

    def _asked(self, *queries: Query[Any]) -> list[Any]:
        """Return the answers to queries, made beside each other where the driver takes long."""
        return answers(*queries) if self._takes_long else [query() for query in queries]


def power_query(handle: Any) -> Callable[[], int | None]:
    """Return how to read power in mW: the instant field if there is one, because the plain reading may be 1 s old."""
    instant = pynvml.NVML_FI_DEV_POWER_INSTANT
    if field_of(handle, instant) is not None:
        return lambda: field_of(handle, instant)
    return Query(lambda: int(pynvml.nvmlDeviceGetPowerUsage(handle)))


def throttle_of(bits: int | None) -> Throttle | None:
    """Return the reasons that a mask of NVML stands for."""
    if bits is None:
        return None
    reasons = Throttle.NONE
    for bit, reason in THROTTLE_BITS:
        if bits & bit:
            reasons |= reason
    return reasons
