"""What an earlier run of the same program showed, for a policy that begins: a head start, and no more than that.

Earlier settings are shown to the policy as windows that took no time, relative to the baseline of this run, with error
bars wide enough for another day and another batch of data. They are used only where the baseline looks as it did then.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

from wattune.control.fingerprint import fingerprint
from wattune.core.measurement import Measurement
from wattune.core.run_window import Purpose, Window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.trial import History
from wattune.store.protocol import Store

POWER_APART, PACE_APART = 0.07, 0.15
"""How far the power and the pace of the baseline may be off those of the earlier run: a warm room makes a few percent
of power, and another input some percent of pace; another program makes more of one of them."""
PACE_ERROR, POWER_ERROR = 0.015, 0.02
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
    pace_apart: float = PACE_APART
    power_apart: float = POWER_APART

    def fits(self, baseline: Window) -> bool:
        """Whether the program looks as it did then."""
        unit = baseline.unit
        if unit is None or self.base.time_s <= 0 or self.base.power_w <= 0:
            return False
        pace, power = unit.time_s / self.base.time_s - 1, unit.power_w / self.base.power_w - 1
        return abs(pace) <= self.pace_apart and abs(power) <= self.power_apart

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
        pace_s = unit.time_s * cost.time_s / self.base.time_s
        power_w = unit.power_w * cost.power_w / self.base.power_w
        own = (unit.time_error_s or 0.0) / unit.time_s
        energy_j = power_w * LENGTH_S
        return Window(
            setting=setting,
            purpose=Purpose.TRIAL,
            start_s=baseline.start_s,
            cost=Measurement(LENGTH_S, energy_j, None, POWER_ERROR * energy_j),
            settling=Measurement(0.0, 0.0),
            pace_s=pace_s,
            pace_error_s=hypot(PACE_ERROR, own) * pace_s,
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
