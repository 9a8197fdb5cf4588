"""Reports of tuned runs, for tests of what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import pi, sin

from wattune.control.power_trace import PowerTrace
from wattune.control.progress_estimator import ProgressSeen
from wattune.control.state import Event, OpenWindow, Progress
from wattune.control.window_state import Measuring, Settling
from wattune.control.window_totals import Tally
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.tariff import Tariff
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.report import ProcessorTime, RunReport
from wattune.levels.run.summaries import EstimateWithError
from wattune.levels.run.view.result import RunResult
from wattune.physics.catalog import load_model
from wattune.signals.period import CycleKind, PeriodAnswer, PeriodCycle, Verdict

PERIOD_S = 0.8
BASE_W, BASE_S = 300.0, PERIOD_S / 1.03


def window(setting, purpose, start_s, time_s, *, power_w, step_time_s, error=0.004, changed=False, held=True):
    """A window that spent this power and had this step time; `error` is relative."""
    energy_j = power_w * time_s
    return Window(
        setting=setting,
        purpose=purpose,
        start_s=start_s,
        cost=Measurement(time_s, energy_j, None, 0.003 * energy_j),
        settling=Measurement(1.0, power_w),
        step_time_s=step_time_s,
        step_time_error_s=None if step_time_s is None or error is None else error * step_time_s,
        held=held,
        sm_mhz=None if setting.sm_mhz is None else float(setting.sm_mhz),
        changed=changed,
    )


def searched():
    """A baseline, three trials of which one is too slow, and an interval in which one was held."""
    return (
        window(DRIVER_DEFAULT, Purpose.BASELINE, 2.0, 12.0, power_w=BASE_W, step_time_s=BASE_S),
        window(Setting(1440), Purpose.TRIAL, 15.0, 8.0, power_w=232.0, step_time_s=1.062 * BASE_S),
        window(Setting(1620), Purpose.TRIAL, 24.0, 9.0, power_w=254.0, step_time_s=1.022 * BASE_S, error=0.006),
        window(Setting(1545), Purpose.TRIAL, 34.0, 9.0, power_w=243.0, step_time_s=1.034 * BASE_S),
        window(Setting(1545), Purpose.HOLD, 44.0, 40.0, power_w=242.0, step_time_s=1.033 * BASE_S, error=0.002),
    )


def trace(*, seconds=84.0, every_s=0.05, start_s=1000.0):
    """Power that repeats, at the level of whatever was set."""
    readings = []
    for place in range(int(seconds / every_s)):
        at_s = place * every_s
        mean_w = next((one.power_w for one in reversed(searched()) if one.start_s <= at_s), BASE_W)
        power_w = mean_w * (1 + 0.25 * sin(2 * pi * at_s / PERIOD_S))
        readings.append(Reading(time_s=start_s + at_s, power_w=power_w, sm_mhz=1545, energy_j=200.0 * at_s))
    return PowerTrace().add(readings)


FIGURES = RunFigures(
    saving=EstimateWithError(0.153, 0.006),
    slowdown=EstimateWithError(0.031, 0.0042),
    confidence=0.99999,
    held_saving=EstimateWithError(0.168, 0.005),
    held_slowdown=EstimateWithError(0.033, 0.0043),
    evaluations=3,
    search_s=43.0,
    search_extra_j=-840.0,
    break_even_s=15.2,
)
EVENTS = (
    Event(14.9, "1440 MHz is 6.2 % slower than the baseline, more than is allowed"),
    Event(61.0, "the GPU could not be read: it is busy"),
)
HOLDING = Order(setting=Setting(1545), purpose=Purpose.HOLD, least_s=20.0, most_s=60.0)
PERIOD = PeriodAnswer(
    verdict=Verdict.PERIODIC,
    period_s=PERIOD_S,
    error_s=0.0021,
    cycles=(
        PeriodCycle(kind=CycleKind.STEP, period_s=PERIOD_S, error_s=0.0021, strength=0.8),
        PeriodCycle(kind=CycleKind.CYCLE, period_s=13.4, error_s=0.2, strength=0.1),
    ),
)
GPU = replace(load_model("rtx-3080-ti").spec(), name="NVIDIA GeForce RTX 3080 Ti", simulated=True)


def measuring(order):
    """The state in which a window of this order is under way."""
    return Measuring(order, OpenWindow(Tally(Reading(time_s=0.0))))


def settling(order):
    """The state in which the setting of this order settles."""
    return Settling(order, Reading(time_s=0.0))


def progress(**changes):
    """How far a run of which everything is known has come, with changes."""
    fields = {
        "spec": GPU,
        "state": measuring(HOLDING),
        "windows": searched(),
        "events": EVENTS,
        "first": Reading(time_s=1000.0, energy_j=0.0),
        "last": Reading(time_s=1084.0, energy_j=21_400.0),
    }
    return Progress(**{**fields, **changes})


IN_PROGRESS = ("spec", "state", "windows", "events", "first", "last", "stepped")


IN_SEEN = ("unit", "source", "follows_gpu", "trace", "period")


def run_report(*, figures=FIGURES, **changes):
    """A run of which everything is known, with changes to it, to its progress or to what shows that."""
    inner = {name: changes.pop(name) for name in IN_PROGRESS if name in changes}
    seen = {"trace": trace(), "period": PERIOD} | {name: changes.pop(name) for name in IN_SEEN if name in changes}
    fields = {
        "program": "python train.py --model resnet50",
        "objective": "energy:5%",
        "slowdown_limit": 0.05,
        "progress": progress(**inner),
        "seen": ProgressSeen(**seen),
        "cpu": ProcessorTime(0.51, 84.0),
    }
    return with_figures(RunReport(**{**fields, **changes}), figures)


def with_figures(report, figures):
    """Let a report have these figures in place of those of its windows."""
    report.__dict__["figures"] = figures
    return report


def run_result(report=None, **changes):
    """The result of such a run."""
    started_at = datetime(2026, 3, 4, tzinfo=UTC)
    return RunResult.of(report or run_report(**changes), gpus=[GPU], tariff=Tariff(), started_at=started_at)
