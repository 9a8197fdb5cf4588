"""Reuse of earlier measurements: of an earlier run of the same program, or of an earlier phase of this run.

The policy gets earlier settings as windows that took no time, relative to the present baseline, with errors wide enough
for another day and another batch of data. They are used only where the baseline is as it was then.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from math import hypot, inf
from pathlib import PurePath
from typing import TYPE_CHECKING

from wattune.control.step_time import WorkUnit
from wattune.core.frontier import History, Trial
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window, phases_of, since_change
from wattune.response.clock_doubt import window_doubt
from wattune.signals.change import PERIOD, POWER, Change, Shift

if TYPE_CHECKING:
    from wattune.store.sql_store import Store

_VOLATILE = re.compile(
    r"(seed|port|rank|host|addr|run|id|name|tag|out|log|dir|save|path|resume|ckpt|checkpoint|wandb|tensorboard)",
    re.IGNORECASE,
)
"""Options that do not change the work: output paths, names, seeds."""
_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-.*|[0-9a-f]{16,}|\d{4}-\d\d-\d\d.*|\d{8,}", re.IGNORECASE)
"""Identifiers, hashes, dates and times."""
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_ANY = "*"


def fingerprint(command_line: str) -> str:
    """Reduce a command line to what is equal in every run of the same program on the same kind of work."""
    try:
        words = shlex.split(command_line)
    except ValueError:
        words = command_line.split()
    return " ".join(_plain(word, before) for before, word in zip(("", *words), words, strict=False))


def _plain(word: str, before: str) -> str:
    name, equals, value = word.partition("=")
    if word.startswith("-") and equals:
        return f"{name}={_ANY if _VOLATILE.search(name) else _value(value)}"
    if word.startswith("-"):
        return word
    if before.startswith("--") and "=" not in before and _VOLATILE.search(before):
        return _ANY
    return _value(word)


def _value(word: str) -> str:
    if _UNIQUE.fullmatch(word):
        return _ANY
    last = PurePath(word).name if "/" in word and not re.search(r"\s", word) else word
    return "python" if _INTERPRETER.fullmatch(last) else last


POWER_DISTANCE, STEP_TIME_DISTANCE = 0.07, 0.15
"""Largest relative differences of the baseline from that of the earlier run: a warm room changes the power by a few
percent and another input the step time; another program changes one of them by more."""
STEP_TIME_ERROR, POWER_ERROR = 0.015, 0.02
"""Relative 95 % half-widths of earlier measurements: about the difference of two runs of one program."""
LENGTH_S = 1e-3
"""Length of an earlier window: it cost this run nothing."""
MOST = 4
"""Number of earlier settings that are used: those of least energy."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Units of work that were measured earlier: at the baseline, and at other settings."""

    base: Measurement
    trials: History[Setting]
    step_time_distance: float = STEP_TIME_DISTANCE
    power_distance: float = POWER_DISTANCE

    def fits(self, baseline: Window) -> bool:
        """Return whether the baseline is as it was then."""
        unit = baseline.unit
        if unit is None or self.base.time_s <= 0 or self.base.power_w <= 0:
            return False
        step_time, power = unit.time_s / self.base.time_s - 1, unit.power_w / self.base.power_w - 1
        return abs(step_time) <= self.step_time_distance and abs(power) <= self.power_distance

    def recalled(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        """Insert the earlier measurements after the first baseline, unless the program has changed."""
        if not windows or windows[0].purpose is not Purpose.BASELINE or any(window.changed for window in windows):
            return windows
        if not self.fits(windows[0]):
            return windows
        best = sorted(self.trials, key=lambda trial: trial.cost.energy_j)[:MOST]
        return (windows[0], *(self._window(trial.choice, trial.cost, windows[0]) for trial in best), *windows[1:])

    def _window(self, setting: Setting, cost: Measurement, baseline: Window) -> Window:
        unit = baseline.unit
        assert unit is not None
        step_time_s = unit.time_s * cost.time_s / self.base.time_s
        power_w = unit.power_w * cost.power_w / self.base.power_w
        own = (unit.time_error_s or 0.0) / unit.time_s
        energy_j = power_w * LENGTH_S
        return Window(
            setting=setting,
            purpose=Purpose.TRIAL,
            start_s=baseline.start_s,
            cost=Measurement(LENGTH_S, energy_j, None, POWER_ERROR * energy_j),
            settling=Measurement(0.0, 0.0),
            step_time_s=step_time_s,
            step_time_error_s=hypot(STEP_TIME_ERROR, own) * step_time_s,
            sm_mhz=None if setting.sm_mhz is None else float(setting.sm_mhz),
            recalled=True,
        )


def load_memory(store: Store, command_line: str, *, gpu: str, simulated: bool) -> Memory | None:
    """Return the measurements of the latest run of this program on this GPU model; None where there was none."""
    trials = store.latest_trials(kind="run", workload=fingerprint(command_line), gpu=gpu, simulated=simulated)
    return _memory(trials, DRIVER_DEFAULT)


def _memory(trials: History[Setting], base: Setting | None) -> Memory | None:
    cost = next((trial.cost for trial in trials if trial.choice == base), None)
    others = tuple(trial for trial in trials if trial.choice != base)
    return None if cost is None or not others else Memory(cost, others)


def trials_of(windows: tuple[Window, ...]) -> tuple[Trial[Setting], ...]:
    """Average the unit of work at each setting over the windows of the last phase, weighted by their lengths."""
    found: dict[Setting, list[Window]] = {}
    for window in since_change(windows):
        if window.unit is not None and window.held and not window.by_phase:
            found.setdefault(window.setting, []).append(window)
    return tuple(Trial(setting, _mean(measured)) for setting, measured in found.items())


def _mean(windows: list[Window]) -> Measurement:
    total_s = sum(window.cost.time_s for window in windows)
    units = [(window.cost.time_s / total_s, window.unit) for window in windows]
    time_s = sum(weight * unit.time_s for weight, unit in units if unit is not None)
    energy_j = sum(weight * unit.energy_j for weight, unit in units if unit is not None)
    return Measurement(time_s, energy_j)


PHASE_STEP_TIME_DISTANCE, PHASE_POWER_DISTANCE = 0.02, 0.04
"""Largest relative differences between baselines of one phase: two windows differ by about a percent of step time, and
a warm GPU draws some percent more. Estimated."""

ROOM = 1.1
"""Factor by which a step time may exceed the physical bounds without a change of the program: data differ from epoch to
epoch, and loaders stall."""


def unexplained_change(windows: tuple[Window, ...], spec: GpuSpec) -> Change | None:
    """Return a change of the program if clock changes do not explain the step time of the last window.

    Change detection starts again at every setting; a program that changes at the same time shows only here. Step times
    must be of one unit: of steps, or of counted work.
    """
    *earlier, last = since_change(windows) or (None,)
    first = next((one for one in earlier if one and one.purpose is Purpose.BASELINE and one.step_time_s), None)
    if first is None or first.step_time_s is None or last is None or last.step_time_s is None or last.by_phase:
        return None
    unit = WorkUnit(first.step_time_s, _mhz(first, spec), _mem_mhz(first, spec))
    low_s, high_s = unit.bounds_s(sm_mhz=_mhz(last, spec), mem_mhz=_mem_mhz(last, spec))
    error_s = last.step_time_error_s or 0.0
    if (last.step_time_s + error_s) * ROOM >= low_s and last.step_time_s - error_s <= high_s * ROOM:
        return None
    shift = Shift(last.step_time_s / first.step_time_s - 1, error_s / first.step_time_s, certain=True)
    end_s = last.start_s + last.cost.time_s
    return Change(time_s=end_s, since_s=last.start_s, samples=1, shifts={PERIOD: shift})


def known_phase(windows: tuple[Window, ...], change: Change) -> Memory | None:
    """Return the measurements of an earlier phase that is like the present one; None without such a phase.

    Where only the power changed, the last phase is used whatever its power was: step times by clock stay the same,
    and power is relative to the baseline. Of a program that did not follow the clock nothing is used.
    """
    *earlier, present = phases_of(windows)
    if not earlier or not present or present[0].purpose is not Purpose.BASELINE:
        return None
    if any(window_doubt(phase) is not None for phase in earlier):
        return None
    memories = [_phase_memory(phase, power_distance=PHASE_POWER_DISTANCE) for phase in reversed(earlier)]
    if change.what == (POWER,):
        memories.insert(0, _phase_memory(earlier[-1], power_distance=inf))
    return next((memory for memory in memories if memory is not None and memory.fits(present[0])), None)


def _phase_memory(phase: tuple[Window, ...], *, power_distance: float) -> Memory | None:
    """Return the measurements of a phase without the window in which it ended; None where there are none."""
    base = next((window.setting for window in phase if window.purpose is Purpose.BASELINE), None)
    found = _memory(trials_of(tuple(window for window in phase if not window.changed)), base)
    return found and replace(found, step_time_distance=PHASE_STEP_TIME_DISTANCE, power_distance=power_distance)


def _mhz(window: Window, spec: GpuSpec) -> float | None:
    """Return the core clock of a window, measured or requested; None where it depends on a power limit."""
    if window.sm_mhz is not None or window.setting.sm_mhz is not None:
        return window.sm_mhz or window.setting.sm_mhz
    known = window.setting.power_limit_w is None and spec.sm_clocks_mhz
    return float(spec.sm_clocks_mhz[-1]) if known else None


def _mem_mhz(window: Window, spec: GpuSpec) -> float | None:
    top = spec.mem_clocks_mhz[0] if spec.mem_clocks_mhz else None
    return window.setting.mem_mhz or top
