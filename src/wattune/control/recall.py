"""What an earlier run of the same program showed, for a policy that begins: a head start, and no more than that.

Earlier settings are shown to the policy as windows that took no time, relative to the baseline of this run, with error
bars wide enough for another day and another batch of data. They are used only where the baseline looks as it did then.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from math import hypot, inf
from pathlib import PurePath

from wattune.control.step_time import WorkUnit
from wattune.core.frontier import History, Trial
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window, phases_of, since_change
from wattune.signals.change import PERIOD, POWER, Change, Shift
from wattune.store.protocol import Store

_VOLATILE = re.compile(
    r"(seed|port|rank|host|addr|run|id|name|tag|out|log|dir|save|path|resume|ckpt|checkpoint|wandb|tensorboard)",
    re.IGNORECASE,
)
"""Options whose value says nothing of the work: where it writes to, what it is called, its random numbers."""
_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-.*|[0-9a-f]{16,}|\d{4}-\d\d-\d\d.*|\d{8,}", re.IGNORECASE)
"""Identifiers, hashes, dates and times."""
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_ANY = "*"


def fingerprint(command_line: str) -> str:
    """The command line as it is for every run of the same program on the same kind of work."""
    try:
        words = shlex.split(command_line)
    except ValueError:
        words = command_line.split()
    kept: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        kept.append(_plain(word, before))
    return " ".join(kept)


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
"""How far the power and the pace of the baseline may be off those of the earlier run: a warm room makes a few percent
of power, and another input some percent of pace; another program makes more of one of them."""
STEP_TIME_ERROR, POWER_ERROR = 0.015, 0.02
"""Relative 95 % half-widths of what is remembered: about what two runs of one program differ by."""
LENGTH_S = 1e-3
"""Of a remembered window: it cost this run nothing."""
MOST = 4
"""Settings that are remembered: those of the least energy."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Units of work as an earlier run saw them: at the baseline, and at other settings."""

    base: Measurement
    trials: History[Setting]
    step_time_distance: float = STEP_TIME_DISTANCE
    power_distance: float = POWER_DISTANCE

    def fits(self, baseline: Window) -> bool:
        """Whether the program looks as it did then."""
        unit = baseline.unit
        if unit is None or self.base.time_s <= 0 or self.base.power_w <= 0:
            return False
        step_time, power = unit.time_s / self.base.time_s - 1, unit.power_w / self.base.power_w - 1
        return abs(step_time) <= self.step_time_distance and abs(power) <= self.power_distance

    def recalled(self, seen: tuple[Window, ...]) -> tuple[Window, ...]:
        """The windows of this run, with what is remembered after the first baseline, as long as it holds."""
        if not seen or seen[0].purpose is not Purpose.BASELINE or any(window.changed for window in seen):
            return seen
        if not self.fits(seen[0]):
            return seen
        best = sorted(self.trials, key=lambda trial: trial.cost.energy_j)[:MOST]
        return (seen[0], *(self._window(trial.choice, trial.cost, seen[0]) for trial in best), *seen[1:])

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
        )


def remembered(store: Store, command_line: str, *, gpu: str, simulated: bool) -> Memory | None:
    """What the latest run of this program on this part showed; None where there was none."""
    rows = store.trial_records(workload=fingerprint(command_line), gpu=gpu, choice_kind="setting")
    rows = tuple((run, record) for run, record in rows if record.simulated is simulated and run.kind == "run")
    if not rows:
        return None
    latest = max(rows, key=lambda row: row[0].started_at)[0].id
    trials = [record.trial for run, record in rows if run.id == latest]
    base = next((trial.cost for trial in trials if trial.choice == DRIVER_DEFAULT), None)
    others = tuple(trial for trial in trials if trial.choice != DRIVER_DEFAULT)
    return None if base is None or not others else Memory(base, others)


def trials_of(windows: tuple[Window, ...]) -> tuple[Trial[Setting], ...]:
    """The mean unit of work at each setting, the longer windows counting more; as the program was last."""
    found: dict[Setting, list[Window]] = {}
    for window in since_change(windows):
        if window.unit is not None and window.held:
            found.setdefault(window.setting, []).append(window)
    return tuple(Trial(setting, _mean(parts)) for setting, parts in found.items())


def _mean(windows: list[Window]) -> Measurement:
    total_s = sum(window.cost.time_s for window in windows)
    units = [(window.cost.time_s / total_s, window.unit) for window in windows]
    time_s = sum(weight * unit.time_s for weight, unit in units if unit is not None)
    energy_j = sum(weight * unit.energy_j for weight, unit in units if unit is not None)
    return Measurement(time_s, energy_j)


PHASE_STEP_TIME_DISTANCE, PHASE_POWER_DISTANCE = 0.02, 0.04
"""How far a baseline may be off that of an earlier stage of the same run which it is taken for: two looks at one stage
differ by about a percent of pace, and a GPU that got warm draws some percent more. Estimated."""

ROOM = 1.1
"""How far beyond what physics allows a pace may be without the program being another: one epoch's data is not the
next one's, and loaders have bad moments."""


def impossible(windows: tuple[Window, ...], spec: GpuSpec) -> Change | None:
    """The change that must have been, where no clock explains the pace of the last window; None otherwise.

    What watches a program learns anew at every setting; a program that changes just then shows in this only. Paces are
    those of one unit: of steps, or of counted work.
    """
    *earlier, last = since_change(windows) or (None,)
    first = next((one for one in earlier if one and one.purpose is Purpose.BASELINE and one.step_time_s), None)
    if first is None or first.step_time_s is None or last is None or last.step_time_s is None:
        return None
    unit = WorkUnit(first.step_time_s, _mhz(first, spec), _mem_mhz(first, spec))
    low_s, high_s = unit.bounds_s(sm_mhz=_mhz(last, spec), mem_mhz=_mem_mhz(last, spec))
    error_s = last.step_time_error_s or 0.0
    if (last.step_time_s + error_s) * ROOM >= low_s and last.step_time_s - error_s <= high_s * ROOM:
        return None
    shift = Shift(last.step_time_s / first.step_time_s - 1, error_s / first.step_time_s, certain=True)
    end_s = last.start_s + last.cost.time_s
    return Change(time_s=end_s, since_s=last.start_s, samples=1, shifts={PERIOD: shift})


def known_stage(windows: tuple[Window, ...], change: Change) -> Memory | None:
    """What an earlier stage showed that the present one is like; None where there was none, or none can be told yet.

    Where nothing but the power changed, the stage before is taken whatever its power was: how long a unit of work takes
    at which clock is as it was, and power is counted over that of the baseline.
    """
    *earlier, present = phases_of(windows)
    if not earlier or not present or present[0].purpose is not Purpose.BASELINE:
        return None
    memories = [_memory(stage, power_distance=PHASE_POWER_DISTANCE) for stage in reversed(earlier)]
    if change.what == (POWER,):
        memories.insert(0, _memory(earlier[-1], power_distance=inf))
    return next((memory for memory in memories if memory is not None and memory.fits(present[0])), None)


def _memory(stage: tuple[Window, ...], *, power_distance: float) -> Memory | None:
    """A stage as it is remembered, without the window in which it ended; None where it tells nothing."""
    trials = trials_of(tuple(window for window in stage if not window.changed))
    base = next((window.setting for window in stage if window.purpose is Purpose.BASELINE), None)
    found: History[Setting] = tuple(trial for trial in trials if trial.choice != base)
    cost = next((trial.cost for trial in trials if trial.choice == base), None)
    return None if cost is None or not found else Memory(cost, found, PHASE_STEP_TIME_DISTANCE, power_distance)


def _mhz(window: Window, spec: GpuSpec) -> float | None:
    """The core clock of a window: as it was read, else as it was asked for; None where a limit decides it unseen."""
    if window.sm_mhz is not None or window.setting.sm_mhz is not None:
        return window.sm_mhz or window.setting.sm_mhz
    known = window.setting.power_limit_w is None and spec.sm_clocks_mhz
    return float(spec.sm_clocks_mhz[-1]) if known else None


def _mem_mhz(window: Window, spec: GpuSpec) -> float | None:
    top = spec.mem_clocks_mhz[0] if spec.mem_clocks_mhz else None
    return window.setting.mem_mhz or top
