"""What was found before a program changed, and holds still or again: so that only what changed is looked for anew.

A *stage* is what lies between two changes of what a program does: training, evaluation, training again. Each begins
with a look at the baseline, by which it is known whether it is one that was there before.
"""

from __future__ import annotations

from math import inf

from wattune.control.step_time import Unit
from wattune.control.trials import trials_of
from wattune.control.warm_start import Memory
from wattune.core.gpu_spec import GpuSpec
from wattune.core.run_window import Purpose, Window
from wattune.core.setting import Setting
from wattune.core.trial import History
from wattune.signals.change import PERIOD, POWER, Change, Shift

PACE_APART, POWER_APART = 0.02, 0.04
"""How far a baseline may be off that of an earlier stage of the same run which it is taken for: two looks at one stage
differ by about a percent of pace, and a GPU that got warm draws some percent more. Estimated."""

ROOM = 1.1
"""How far beyond what physics allows a pace may be without the program being another: one epoch's data is not the
next one's, and loaders have bad moments."""


def stages_of(windows: tuple[Window, ...]) -> list[tuple[Window, ...]]:
    """The windows of each stage; the one in which the program changed belongs to the stage that it ended."""
    ends = [place + 1 for place, window in enumerate(windows) if window.changed]
    return [windows[start:end] for start, end in zip((0, *ends), (*ends, len(windows)), strict=True)]


def impossible(windows: tuple[Window, ...], spec: GpuSpec) -> Change | None:
    """The change that must have been, where no clock explains the pace of the last window; None otherwise.

    What watches a program learns anew at every setting; a program that changes just then shows in this only. Paces are
    those of one unit: of steps, or of counted work.
    """
    *earlier, last = last_stage(windows) or (None,)
    first = next((one for one in earlier if one and one.purpose is Purpose.BASELINE and one.pace_s), None)
    if first is None or first.pace_s is None or last is None or last.pace_s is None:
        return None
    unit = Unit(first.pace_s, _mhz(first, spec), _mem_mhz(first, spec))
    low_s, high_s = unit.bounds_s(sm_mhz=_mhz(last, spec), mem_mhz=_mem_mhz(last, spec))
    error_s = last.pace_error_s or 0.0
    if (last.pace_s + error_s) * ROOM >= low_s and last.pace_s - error_s <= high_s * ROOM:
        return None
    shift = Shift(last.pace_s / first.pace_s - 1, error_s / first.pace_s, certain=True)
    end_s = last.start_s + last.cost.time_s
    return Change(time_s=end_s, since_s=last.start_s, looks=1, shifts={PERIOD: shift})


def last_stage(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows since the program last changed."""
    return stages_of(windows)[-1]


def known_stage(windows: tuple[Window, ...], change: Change) -> Memory | None:
    """What an earlier stage showed that the present one is like; None where there was none, or none can be told yet.

    Where nothing but the power changed, the stage before is taken whatever its power was: how long a unit of work takes
    at which clock is as it was, and power is counted over that of the baseline.
    """
    *earlier, present = stages_of(windows)
    if not earlier or not present or present[0].purpose is not Purpose.BASELINE:
        return None
    memories = [_memory(stage, power_apart=POWER_APART) for stage in reversed(earlier)]
    if change.what == (POWER,):
        memories.insert(0, _memory(earlier[-1], power_apart=inf))
    return next((memory for memory in memories if memory is not None and memory.fits(present[0])), None)


def _memory(stage: tuple[Window, ...], *, power_apart: float) -> Memory | None:
    """A stage as it is remembered, without the window in which it ended; None where it tells nothing."""
    trials = trials_of(tuple(window for window in stage if not window.changed))
    base = next((window.setting for window in stage if window.purpose is Purpose.BASELINE), None)
    found: History[Setting] = tuple(trial for trial in trials if trial.choice != base)
    cost = next((trial.cost for trial in trials if trial.choice == base), None)
    return None if cost is None or not found else Memory(cost, found, PACE_APART, power_apart)


def _mhz(window: Window, spec: GpuSpec) -> float | None:
    """The core clock of a window: as it was read, else as it was asked for; None where a limit decides it unseen."""
    if window.sm_mhz is not None or window.setting.sm_mhz is not None:
        return window.sm_mhz or window.setting.sm_mhz
    known = window.setting.power_limit_w is None and spec.sm_clocks_mhz
    return float(spec.sm_clocks_mhz[-1]) if known else None


def _mem_mhz(window: Window, spec: GpuSpec) -> float | None:
    top = spec.mem_clocks_mhz[0] if spec.mem_clocks_mhz else None
    return window.setting.mem_mhz or top
