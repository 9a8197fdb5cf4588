"""What windows say of each setting that was looked at."""

from __future__ import annotations

from wattune.core.measurement import Measurement
from wattune.core.run_window import Window
from wattune.core.setting import Setting
from wattune.core.trial import Trial


def trials_of(windows: tuple[Window, ...]) -> tuple[Trial[Setting], ...]:
    """The mean unit of work at each setting, the longer windows counting more; as the program was last."""
    last = max((place for place, window in enumerate(windows) if window.changed), default=-1)
    found: dict[Setting, list[Window]] = {}
    for window in windows[last + 1 :]:
        if window.unit is not None and window.held:
            found.setdefault(window.setting, []).append(window)
    return tuple(Trial(setting, _mean(parts)) for setting, parts in found.items())


def _mean(windows: list[Window]) -> Measurement:
    total_s = sum(window.cost.time_s for window in windows)
    units = [(window.cost.time_s / total_s, window.unit) for window in windows]
    time_s = sum(weight * unit.time_s for weight, unit in units if unit is not None)
    energy_j = sum(weight * unit.energy_j for weight, unit in units if unit is not None)
    return Measurement(time_s, energy_j)
