"""Which settings are one operating point, and how step times of windows become evidence."""

from dataclasses import replace
from math import log

import pytest

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window
from wattune.levels.run.policy import distinct
from wattune.response.evidence import evidence
from wattune.response.points import PointScale

CLOCKS = GpuSpec(
    name="A100",
    uuid="GPU-0",
    clocks=(ClockTable(1215, tuple(range(210, 1411, 15))),),
    power_limits=PowerLimits(100.0, 400.0, 400.0),
)


def window(setting, step_time_s, *, sm_mhz=None, purpose=Purpose.TRIAL):
    return Window(
        setting=setting,
        purpose=purpose,
        start_s=0.0,
        cost=Measurement(10.0, 2000.0),
        settling=Measurement(0.0, 0.0),
        step_time_s=step_time_s,
        step_time_error_s=0.01 * step_time_s,
        sm_mhz=sm_mhz,
    )


def test_settings_of_one_operating_point_count_once():
    settings = (Setting(1200, 1215), Setting(1200), Setting(1410, 1215))
    points = [PointScale.of(CLOCKS).point(setting) for setting in settings]
    found, kept = distinct(settings, points)
    assert kept == (Setting(1200), Setting(1410, 1215))
    assert len(set(found)) == 2


def step_times(*windows, spec=CLOCKS):
    scale = PointScale.of(spec)
    measured = evidence(windows, scale)
    return [measured[scale.point(each.setting, each.sm_mhz)].log_time.value for each in windows]


@pytest.mark.parametrize(("step_time_s", "taken_s"), [(2.0, 1.0), (0.55, 1.1), (1.04, 1.04)])
def test_a_detected_step_time_is_folded(step_time_s, taken_s):
    first = window(DRIVER_DEFAULT, 1.0, sm_mhz=1410.0, purpose=Purpose.BASELINE)
    assert step_times(first, window(Setting(1200), step_time_s, sm_mhz=1200.0))[1] == pytest.approx(log(taken_s))


def test_a_step_time_is_not_folded_to_one_faster_than_at_the_baseline():
    first = window(DRIVER_DEFAULT, 1.0, sm_mhz=1410.0, purpose=Purpose.BASELINE)
    assert step_times(first, window(Setting(660), 1.57, sm_mhz=660.0))[1] == pytest.approx(log(1.57))


def test_a_counted_step_time_is_never_folded():
    first = window(DRIVER_DEFAULT, 1.0, sm_mhz=1410.0, purpose=Purpose.BASELINE)
    assert step_times(first, replace(window(Setting(1200), 2.0, sm_mhz=1200.0), source="steps"))[1] == pytest.approx(
        log(2.0)
    )


def test_a_power_limit_may_slow_a_program_down_by_much():
    limits = replace(CLOCKS, clocks=())
    first = window(Setting(power_limit_w=400.0), 1.0, purpose=Purpose.BASELINE)
    slow = replace(window(Setting(power_limit_w=100.0), 2.4), source="steps")
    assert step_times(first, slow, spec=limits)[1] == pytest.approx(log(2.4))
