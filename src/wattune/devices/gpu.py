"""The one protocol behind which every GPU stands."""

from __future__ import annotations

from typing import Protocol

from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting


class Gpu(Protocol):
    """A GPU that can be read and set. `wattune.devices.open.open_gpu` makes one and always restores it."""

    @property
    def spec(self) -> GpuSpec:
        """What the part is and what may be set on it."""
        ...

    refresh: Refresh | None
    """When the energy counter moves, where that is known; whoever watches the counter writes here what it learned."""

    def read(self) -> Reading:
        """Everything the part tells now."""
        ...

    def count(self) -> Count:
        """The energy counter now, and nothing else: cheap enough for the inside of a training loop."""
        ...

    def apply(self, setting: Setting) -> None:
        """Nothing; the part now has this setting, and each None in it is back with the driver."""
        ...

    def restore(self) -> None:
        """Nothing; the part is as it was found. Doing it twice does no harm."""
        ...
