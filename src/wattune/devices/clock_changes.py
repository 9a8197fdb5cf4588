"""Clocks that were asked for and have not taken over yet, for a simulated GPU whose clocks take a while.

One change is on its way at a time; what is asked for meanwhile goes with it. The emulated NVML library does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.setting import Setting


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, when it takes over, and for how long nothing runs then."""

    setting: Setting
    start_s: float
    stall_s: float

    def joined(self, setting: Setting) -> Change:
        """The same with a newer setting."""
        return replace(self, setting=setting)
