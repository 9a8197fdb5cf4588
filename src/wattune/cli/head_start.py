"""Wall time that can be put forward, for simulated GPUs that should have been at work for a while."""

from __future__ import annotations

from wattune.devices.passing_time import WallTime


class HeadStart(WallTime):
    """Time as it passes on the wall, ahead of it by what was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0

    def now_s(self) -> float:
        """Seconds since the clock was made, the skipped ones included."""
        return super().now_s() + self._ahead_s

    def skip(self, seconds: float) -> None:
        """Nothing; the clock is so many seconds further on."""
        self._ahead_s += seconds
