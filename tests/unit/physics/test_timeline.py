from __future__ import annotations

from math import exp

import numpy as np
import pytest

from wattune.core.reading import Throttle
from wattune.physics.gpu_parts import Thermal
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import OperatingPoint
from wattune.physics.timeline import MEMORY_S, Cycle, Timeline

POINT = OperatingPoint(0, 0, 210, 1215, Throttle.NONE)
THERMAL = Thermal(ambient_c=30.0, resistance_k_per_w=0.1, tau_s=20.0)

# Two phases at two clocks: 1 s of 100 W and 3 s of 200 W, or 0.5 s of 150 W and 2 s of 300 W.
TABLE = LoadTable(
    name="load",
    mem_mhz=1215,
    sm_mhz=(700, 1400),
    duration_s=np.array([[1.0, 0.5], [3.0, 2.0]]),
    power_w=np.array([[100.0, 150.0], [200.0, 300.0]]),
    sm_util=np.array([0.0, 1.0]),
    mem_util=np.array([[0.0, 0.0], [0.5, 0.6]]),
)
SLOW, FAST = Cycle.of(TABLE, 0), Cycle.of(TABLE, 1)


def idle() -> Timeline:
    return Timeline.begin(THERMAL, POINT, 50.0)


def test_energy_of_a_known_schedule() -> None:
    timeline = idle().changed(10.0, load="load", point=POINT, cycle=SLOW)
    assert timeline.totals(10.0).energy_j == pytest.approx(500.0, abs=1e-9)
    assert timeline.totals(10.5).energy_j == pytest.approx(550.0, abs=1e-9)
    assert timeline.totals(12.0).energy_j == pytest.approx(500 + 100 + 200, abs=1e-9)
    assert timeline.totals(14.0).energy_j == pytest.approx(500 + 700, abs=1e-9)
    assert timeline.totals(10 + 4e6).energy_j == pytest.approx(500 + 700e6, rel=1e-12)


def test_totals_in_an_earlier_segment() -> None:
    timeline = idle().changed(10.0, load="load", point=POINT, cycle=SLOW)
    assert timeline.totals(9.0).energy_j == pytest.approx(450.0)
    assert timeline.totals(-1.0).energy_j == pytest.approx(-50.0)


def test_a_new_clock_takes_a_load_up_where_it_stands() -> None:
    timeline = idle().changed(0.0, load="load", point=POINT, cycle=SLOW)
    # 2.5 s are the first phase and half of the second; at the other clock 1 s of it remains.
    timeline = timeline.changed(2.5, load="load", point=POINT, cycle=FAST)
    assert timeline.iterations(2.5) == pytest.approx((0.5 + 1.0) / 2.5)
    assert timeline.time_of(1) == pytest.approx(3.5)
    assert timeline.totals(3.5).energy_j == pytest.approx(100 + 300 + 300)
    assert timeline.time_of(3) == pytest.approx(3.5 + 2 * 2.5)


def test_another_load_begins_at_its_beginning() -> None:
    timeline = (
        idle().changed(0.0, load="one", point=POINT, cycle=SLOW).changed(2.5, load="two", point=POINT, cycle=SLOW)
    )
    assert timeline.iterations(2.5) == 0
    assert timeline.totals(3.5).energy_j == pytest.approx(400 + 100)


def test_an_equal_setting_returns_the_same_timeline() -> None:
    timeline = idle().changed(0.0, load="load", point=POINT, cycle=SLOW)
    assert timeline.changed(1.0, load="load", point=POINT, cycle=SLOW) is timeline


def test_old_segments_are_dropped_and_recent_ones_are_not() -> None:
    timeline = idle()
    for step in range(1, 200):
        timeline = timeline.changed(step * 0.1, load=step, point=POINT, cycle=SLOW)
    assert len(timeline.segments) <= MEMORY_S / 0.1 + 2
    assert timeline.segments[0].start_s <= 19.9 - MEMORY_S + 1e-9


def test_temperature_follows_power_with_a_delay() -> None:
    timeline = idle().changed(0.0, load="hot", point=POINT, cycle=Cycle.steady(400.0))
    assert timeline.temperature_c(0.0) == pytest.approx(35.0)
    assert timeline.temperature_c(20.0) == pytest.approx(70 - 35 * exp(-1))
    assert timeline.temperature_c(1e4) == pytest.approx(70.0)


def test_busy_time_is_counted() -> None:
    timeline = idle().changed(0.0, load="load", point=POINT, cycle=SLOW)
    assert timeline.totals(8.0).busy_s == pytest.approx(6.0)
    assert timeline.totals(8.0).mem_busy_s == pytest.approx(3.0)
