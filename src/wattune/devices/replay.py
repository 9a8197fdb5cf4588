"""A recorded run behind the protocol of every GPU.

Each look, `read` or `count`, gives the next reading of the recording. What happened cannot be changed any more, so
nothing can be set: a setting that had no effect must not look like one that had.
"""

from __future__ import annotations

from pathlib import Path

from wattune.core.errors import DeviceLost, NotSupported
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.recording import Recording, read_recording


class ReplayGpu:
    """A recording, played one reading at a time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.refresh: Refresh | None = None
        self._next = 0
        self._spec = GpuSpec(
            name=f"{recording.gpu} (replayed)",
            uuid=recording.uuid,
            clocks=(),
            power_limits=None,
            simulated=recording.simulated,
            sensors=recording.sensors,
        )

    @classmethod
    def load(cls, file: Path) -> ReplayGpu:
        """The GPU that a recording shows."""
        return cls(read_recording(file))

    @property
    def spec(self) -> GpuSpec:
        """The recorded GPU, on which nothing may be set any more."""
        return self._spec

    @property
    def left(self) -> int:
        """How many readings are still to come."""
        return len(self._recording.readings) - self._next

    def read(self) -> Reading:
        """The next reading."""
        if not self.left:
            raise DeviceLost(
                f"the recording of {self._recording.gpu} ends after {self._next} readings",
                hint="record a longer run, or ask for fewer readings",
            )
        self._next += 1
        return self._recording.readings[self._next - 1]

    def count(self) -> Count:
        """The counter of the next reading."""
        reading = self.read()
        if reading.energy_j is None:
            raise NotSupported(
                f"the recording of {self._recording.gpu} has no energy counter at {reading.time_s:g} s",
                hint="integrate its power instead",
            )
        return Count(reading.time_s, reading.energy_j)

    def apply(self, setting: Setting) -> None:
        """Nothing where nothing is asked for; anything else is refused."""
        if setting != DRIVER_DEFAULT:
            raise NotSupported(
                f"{self._spec.label} is a recording and cannot be set",
                hint="use a simulated or a real GPU to try settings",
            )

    def restore(self) -> None:
        """Nothing; nothing was changed."""
