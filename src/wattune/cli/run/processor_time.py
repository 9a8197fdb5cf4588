"""The processor time of this process, from its start: what tuning a program costs the machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from wattune.levels.run.report import ProcessorTime

_START_FIELD = 19
"""Of /proc/PID/stat, counted behind the name of the process: when it started, in clock ticks after boot."""


def processor_time() -> ProcessorTime | None:
    """Return what all threads of this process took so far; None where the system does not show when it started."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
        wall_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return ProcessorTime(time.process_time(), wall_s) if wall_s > 0 else None
