"""Nothing is held that cannot be checked: whatever windows show a step time, and whatever earlier runs showed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_run_policy import A100, seen

from wattune.control.recall import Memory
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose
from wattune.levels.run.policy import CurvePolicy

EARLIER = (1200, 1215, 1230, 1245)
"""Clocks that an earlier run measured."""


def unit(setting):
    window = seen(setting)
    return Measurement(window.step_time_s, window.step_time_s * window.power_w)


MEMORY = Memory(unit(DRIVER_DEFAULT), tuple(Trial(Setting(mhz), unit(Setting(mhz))) for mhz in EARLIER))


def half_seen_run(visible, *, memory, source="period", seconds=900.0):
    """The windows of a run; `visible` yields for each window away from the baseline whether it shows a step time."""
    policy, windows, passed_s = CurvePolicy(objective=LeastEnergy(0.05)), (), 0.0
    shows = iter(visible)
    while passed_s < seconds:
        order = policy.step(windows if memory is None else memory.recalled(windows), A100)
        window = seen(order.setting, order.purpose, start_s=passed_s, length_s=order.most_s, source=source)
        if order.setting != DRIVER_DEFAULT and not next(shows, False):
            window = replace(window, step_time_s=None, step_time_error_s=None, source=None)
        windows, passed_s = (*windows, window), passed_s + order.most_s
    return windows


@pytest.mark.parametrize("memory", [None, MEMORY], ids=["first run", "an earlier run is known"])
@pytest.mark.parametrize("source", ["period", "steps"])
def test_the_baseline_is_held_where_steps_show_nowhere_else(memory, source):
    windows = half_seen_run((), memory=memory, source=source)
    elsewhere = [window for window in windows if window.setting != DRIVER_DEFAULT]
    assert len(elsewhere) == 2
    assert windows[-1].setting == DRIVER_DEFAULT
    assert windows[-1].purpose is Purpose.HOLD


def test_an_earlier_run_is_used_where_steps_do_show():
    windows = half_seen_run([True] * 100, memory=MEMORY)
    assert windows[1].purpose is Purpose.HOLD
    assert windows[-1].setting != DRIVER_DEFAULT


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), max_size=40), st.booleans())
def test_no_setting_is_held_on_that_no_step_time_was_seen_at(visible, recalls):
    windows = half_seen_run(visible, memory=MEMORY if recalls else None)
    for setting in {window.setting for window in windows} - {DRIVER_DEFAULT}:
        own = [window.step_time_s is None for window in windows if window.setting == setting]
        assert not own[0] or len(own) == 1, "left at once where the first window shows none"
        assert not any(all(own[place : place + 2]) for place in range(len(own) - 2)), "and after two in a row"
