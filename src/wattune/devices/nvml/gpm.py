"""What a GPU's own counters say it does, from outside the program: NVML's GPM metrics, on Hopper and newer.

Two samples are taken and NVML works out shares over the time between them. Nothing is injected into the program, and no
privilege is needed unless the administrator restricts counters. DCGM would tell the same of older data-centre parts; it
needs a service of its own, so that it is left to whoever runs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pynvml

from wattune.core.errors import NotSupported
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import known

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
"""NVML wants its two samples so far apart (estimate: the reference names a minimum and gives no figure)."""


class GpmReader:
    """Reads the counters of one GPU: each call tells of the time since the one before."""

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
        """Shares from 0 to 1 by name since the last call that told some; None where that is too short ago."""
        now_s = self._clock()
        if now_s - self._since_s < LEAST_S:
            return None
        with library.translated("cannot read the counters"):
            pynvml.nvmlGpmSampleGet(self._handle, self._after)
            asked = pynvml.nvmlGpmMetricsGet(_question(self._before, self._after))
        self._before, self._after, self._since_s = self._after, self._before, now_s
        return dict(_shares(asked))

    def close(self) -> None:
        """Nothing; what NVML allocated for this reader is given back."""
        while self._free:
            sample = self._free.pop()
            known(lambda sample=sample: pynvml.nvmlGpmSampleFree(sample))  # type: ignore[misc]

    def _allocated(self) -> Any:
        sample = pynvml.nvmlGpmSampleAlloc()
        self._free.append(sample)
        return sample


@contextmanager
def opened_counters(uuid: str) -> Iterator[GpmReader | None]:
    """A reader of the counters of the GPU with this UUID until the end of the block; None where the part has none."""
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


def _question(before: Any, after: Any) -> Any:
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(METRICS)
    asked.sample1, asked.sample2 = before, after
    for place, metric in enumerate(METRICS.values()):
        asked.metrics[place].metricId = metric
    return asked


def _shares(asked: Any) -> Iterator[tuple[str, float]]:
    """The metrics that were told, as shares; one that the part lacks, or that makes no sense, is left out."""
    for place, name in enumerate(METRICS):
        metric = asked.metrics[place]
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and 0 <= metric.value <= 100:
            yield name, metric.value / 100
