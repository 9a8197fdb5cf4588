"""The power-trace CSV: `time_s,power_w,sm_util,mem_util,sm_mhz`, time counted from the first reading."""

from __future__ import annotations

from wattune.core.trace import Trace

COLUMNS = ("time_s", "power_w", "sm_util", "mem_util", "sm_mhz")


def trace_csv(trace: Trace) -> str:
    """The trace as CSV text; a field is empty where the GPU did not tell."""
    start_s = trace.readings[0].time_s if trace.readings else 0.0
    lines = [",".join(COLUMNS)]
    for reading in trace.readings:
        values = (reading.power_w, reading.sm_util, reading.mem_util, reading.sm_mhz)
        fields = ("" if value is None else f"{value:g}" for value in values)
        lines.append(",".join((f"{reading.time_s - start_s:.6f}", *fields)))
    return "\n".join(lines) + "\n"
