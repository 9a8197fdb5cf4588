"""How fast a program works by its counters alone: what takes the place of a pace where nothing repeats."""

from __future__ import annotations

from wattune.core.gpu_spec import GpuSpec
from wattune.core.run_window import Window


def work_rate(window: Window, spec: GpuSpec) -> float | None:
    """Work per second in a unit of its own, or None without counters.

    The use of an arithmetic unit times the clock is operations per second, the use of the memory times its clock is
    bytes per second. A program that does the same over and over keeps the proportion of both, so that their sum is as
    good as instructions per second, which is what GPOEO counts.
    """
    counters, sm_mhz = window.features, window.sm_mhz or window.setting.sm_mhz
    if not counters or sm_mhz is None:
        return None
    arithmetic = (counters.get("tensor", 0.0) + counters.get("fp32", 0.0)) * sm_mhz / spec.sm_clocks_mhz[-1]
    top_mhz = spec.clocks[0].mem_mhz
    lower = 1.0 if window.setting.mem_mhz is None or not top_mhz else window.setting.mem_mhz / top_mhz
    rate = arithmetic + counters.get("dram", 0.0) * lower
    return rate if rate > 0 else None
