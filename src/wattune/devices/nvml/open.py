"""Finding and opening NVIDIA GPUs and their utilisation counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pynvml

from wattune.core.errors import NotSupported
from wattune.devices.entry import Entry
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import answers, describe, known, mig_enabled, text
from wattune.devices.nvml.gpu import NvmlGpu
from wattune.devices.nvml.undo import Refused, undo_entry
from wattune.devices.nvml.visible import Present, Visible, ask_cuda, visible_gpus


@contextmanager
def opened_nvml(which: str) -> Iterator[NvmlGpu]:
    """Open the GPU with a UUID, or with a number as the driver counts."""
    loaded = library.load()
    try:
        with library.translated(f"cannot open nvml:{which}"):
            handle = (
                pynvml.nvmlDeviceGetHandleByIndex(int(which))
                if which.isdecimal()
                else pynvml.nvmlDeviceGetHandleByUUID(which.encode())
            )
            spec, mig = answers(lambda: describe(handle, emulated=loaded.emulated), lambda: mig_enabled(handle))
            gpu = NvmlGpu(handle, spec, loaded, mig=mig)
        try:
            yield gpu
        finally:
            gpu.close()
    finally:
        library.close()


def list_visible(visible: str | None, order: str | None) -> Visible:
    """Return the GPUs that CUDA shows with these values of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""
    library.load()
    try:
        with library.translated("cannot list the GPUs"):
            gpus = _present()
        return visible_gpus(visible, order, gpus, ask_cuda=ask_cuda)
    finally:
        library.close()


def _present() -> tuple[Present, ...]:
    """Return all GPUs in the driver's order; their speeds where they differ in name."""
    gpus = tuple(_identity(index) for index in range(pynvml.nvmlDeviceGetCount()))
    if len({gpu.name for gpu in gpus if gpu.name}) <= 1:
        return gpus
    return tuple(replace(gpu, speed=_speed(gpu.index)) for gpu in gpus)


def _identity(index: int) -> Present:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = known(lambda: text(pynvml.nvmlDeviceGetName(handle))) or ""
        return Present(index, text(pynvml.nvmlDeviceGetUUID(handle)), name)
    except pynvml.NVMLError:
        return Present(index, "")


def _speed(index: int) -> float:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        cores = pynvml.nvmlDeviceGetNumGpuCores(handle)
        return float(cores * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return 0.0


def forgetful(uuid: str) -> bool:
    """Return whether a GPU is known to lose its settings with its last client. NVML must be loaded."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        return bool(pynvml.nvmlDeviceGetPersistenceMode(handle) == pynvml.NVML_FEATURE_DISABLED)
    except pynvml.NVMLError:
        return False


def undo_left(entry: Entry, *, since_s: float) -> tuple[str, ...]:
    """Undo the journal entry of a dead process; return a line about each knob that somebody else has set since."""
    library.load()
    try:
        return undo_entry(library.native(), entry, since_s=since_s)
    except Refused as error:
        library.fail(pynvml.NVMLError(error.code), f"cannot restore {entry.device}")
    finally:
        library.close()


def process_ids(uuid: str) -> frozenset[int] | None:
    """Return the processes that compute on a GPU; None if the driver does not report them. NVML must be loaded."""
    found = processes(uuid)
    return None if found is None else frozenset(found)


def processes(uuid: str) -> dict[int, int | None] | None:
    """Return the memory in bytes of each process that computes on a GPU, None where unknown; else as `process_ids`."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    return {int(one.pid): None if one.usedGpuMemory is None else int(one.usedGpuMemory) for one in found}


def uuids_used_by(pids: frozenset[int]) -> tuple[str, ...]:
    """Return the GPUs that one of these processes computes on; `DeviceNotFound` without a driver."""
    library.load()
    try:
        with library.translated("cannot list the GPUs"):
            uuids = [gpu.uuid for gpu in _present() if gpu.uuid]
        return tuple(uuid for uuid in uuids if (process_ids(uuid) or frozenset()) & pids)
    finally:
        library.close()


METRICS = {
    "sm": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "occupancy": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64": pynvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16": pynvml.NVML_GPM_METRIC_FP16_UTIL,
    "integer": pynvml.NVML_GPM_METRIC_INTEGER_UTIL,
}

LEAST_S = 0.1
"""Least time between NVML's two samples (an estimate: the reference mentions a minimum without a figure)."""


class GpmReader:
    """Reads the counters of one GPU over the time since the previous read: NVML's GPM metrics, on Hopper and newer.

    NVML computes shares over the time between two samples. The program is not changed, and no privilege is needed
    unless the administrator restricts counters. DCGM offers the same for older data-centre GPUs but needs a running
    service, so it is not used.
    """

    def __init__(self, handle: Any, clock: Callable[[], float]) -> None:
        self._handle = handle
        self._clock = clock
        self._free: list[Any] = []
        self._before = self._allocated()
        self._since_s = clock()
        try:
            self._after = self._allocated()
            pynvml.nvmlGpmSampleGet(handle, self._before)
        except BaseException:
            self.close()
            raise

    def read(self) -> Mapping[str, float] | None:
        """Return shares from 0 to 1 by name since the last read; None if that was too short ago."""
        now_s = self._clock()
        if now_s - self._since_s < LEAST_S:
            return None
        with library.translated("cannot read the counters"):
            pynvml.nvmlGpmSampleGet(self._handle, self._after)
            request = pynvml.nvmlGpmMetricsGet(_request_for(self._before, self._after))
        self._before, self._after, self._since_s = self._after, self._before, now_s
        return dict(_shares(request))

    def close(self) -> None:
        """Free what NVML allocated for this reader."""
        while self._free:
            sample = self._free.pop()
            known(lambda sample=sample: pynvml.nvmlGpmSampleFree(sample))  # type: ignore[misc]

    def _allocated(self) -> Any:
        sample = pynvml.nvmlGpmSampleAlloc()
        self._free.append(sample)
        return sample


@contextmanager
def opened_counters(uuid: str) -> Iterator[GpmReader | None]:
    """Open a reader of the counters of the GPU with this UUID; yield None if the GPU has none."""
    loaded = library.load()
    try:
        reader = _reader(uuid, loaded.clock)
        try:
            yield reader
        finally:
            if reader is not None:
                reader.close()
    finally:
        library.close()


def _reader(uuid: str, clock: Callable[[], float]) -> GpmReader | None:
    try:
        with library.translated("cannot open the counters"):
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
            support = known(lambda: pynvml.nvmlGpmQueryDeviceSupport(handle))
            if support is None or not support.isSupportedDevice:
                return None
            return known(lambda: GpmReader(handle, clock))
    except NotSupported:
        return None


def _request_for(before: Any, after: Any) -> Any:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(METRICS)
    request.sample1, request.sample2 = before, after
    for place, metric in enumerate(METRICS.values()):
        request.metrics[place].metricId = metric
    return request


def _shares(request: Any) -> Iterator[tuple[str, float]]:
    """Yield the metrics as shares; those that are unsupported or out of range are left out."""
    for place, name in enumerate(METRICS):
        metric = request.metrics[place]
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and 0 <= metric.value <= 100:
            yield name, metric.value / 100
