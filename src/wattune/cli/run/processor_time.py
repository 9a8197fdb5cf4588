"""The processor time of this process: what tuning a program costs the machine, and how it is kept low."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wattune.cli.threads import one_thread_each

if TYPE_CHECKING:
    from wattune.levels.run.report import ProcessorTime

_START_FIELD = 19
"""Of /proc/PID/stat, counted behind the name of the process: when it started, in clock ticks after boot."""


def load_matrices() -> None:
    """Import the libraries for matrices with one thread each: others would spin beside the program that is tuned.

    Its environment stays as it is.
    """
    with one_thread_each():
        import_module("scipy.linalg")  # which imports NumPy


def processor_time() -> ProcessorTime | None:
    """Return what all threads of this process took so far; None where the system does not show when it started."""
    from wattune.levels.run.report import ProcessorTime

    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
        wall_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return ProcessorTime(time.process_time(), wall_s) if wall_s > 0 else None
