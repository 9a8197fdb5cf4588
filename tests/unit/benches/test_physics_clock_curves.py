"""Forms of one variable: what is put in comes out again, and what physics forbids does not happen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.voltage import switching, voltage
from wattune.physics.fit.prior import logistic
from wattune_bench.physics.clock_curves import fit_power, fit_stage, soft_minimum

CLOCKS = np.linspace(405.0, 1755.0, 10)
SHARES = st.floats(0.3, 0.95)


def a4000_like(sm_mhz):
    v = voltage(sm_mhz / 1755.0, knee=0.77, rise=0.29)
    return 29.0 + 0.0379 * sm_mhz * v**2


@given(knee=SHARES, rise=st.floats(0.01, 1.0), bend=st.floats(1.0, 2.0))
def test_switching_power_rises_with_the_clock_and_ends_at_one(knee, rise, bend):
    clocks = np.linspace(0.05, 1.0, 50)
    power = switching(clocks, knee=knee, rise=rise, bend=bend)
    assert np.all(np.diff(power) > 0)
    assert power[-1] == pytest.approx(1.0)
    assert np.all(voltage(clocks[clocks <= knee], knee=knee, rise=rise, bend=bend) == 1.0)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.floats(0.01, 100), st.floats(3, 60))
def test_a_soft_minimum_is_below_both_and_near_the_smaller(values, other, sharpness):
    found = soft_minimum(np.array(values), other, sharpness)
    least = np.minimum(values, other)
    assert np.all(found <= least)
    assert np.all(found >= least * 2 ** (-1 / sharpness) * (1 - 1e-9))


def test_a_power_curve_finds_what_made_it():
    curve = fit_power(CLOCKS, a4000_like(CLOCKS))
    log_constant, log_slope, logit_knee, log_rise = curve.estimate.values
    assert logistic(logit_knee) == pytest.approx(0.77, rel=0.02)
    assert 1 + np.exp(log_rise) == pytest.approx(1.29, rel=0.03)
    assert np.exp(log_constant) * curve.largest_w == pytest.approx(29.0, rel=0.05)
    assert np.exp(log_slope) * curve.largest_w / 1.755 == pytest.approx(37.9, rel=0.03)
    between = np.linspace(450.0, 1700.0, 40)
    assert curve.power_w(between) == pytest.approx(a4000_like(between), rel=0.01)


def test_a_power_curve_is_less_sure_where_points_are_few():
    many, few = fit_power(CLOCKS, a4000_like(CLOCKS)), fit_power(CLOCKS[::3], a4000_like(CLOCKS[::3]))
    assert np.all(many.estimate.sd <= few.estimate.sd)


def stage(sm_mhz):
    """A stage that is mostly compute, on a GPU whose cap is not reached."""
    power_w = 60.0 + 300.0 * switching(sm_mhz / 1410.0, knee=0.75, rise=0.25)
    time_s = 0.05 * (0.95 * 1410.0 / sm_mhz + 0.05)
    return time_s, time_s * power_w


def test_four_clocks_of_a_stage_predict_the_others():
    clocks = np.arange(855.0, 1411.0, 15.0)
    used = np.round(np.linspace(0, len(clocks) - 1, 4)).astype(int)
    time_s, energy_j = stage(clocks)
    curve = fit_stage(clocks[used], time_s[used], energy_j[used], highest_mhz=1410.0)
    predicted_s, predicted_j = curve.predict(clocks)
    assert predicted_s == pytest.approx(time_s, rel=0.01)
    assert predicted_j == pytest.approx(energy_j, rel=0.03)
    assert predicted_s[used] == pytest.approx(time_s[used], rel=1e-6)


def test_a_stage_predicts_beyond_its_clocks_without_turning():
    clocks = np.array([855.0, 1035.0, 1215.0, 1410.0])
    curve = fit_stage(clocks, *stage(clocks), highest_mhz=1410.0)
    time_s, energy_j = curve.predict(np.array([600.0, 700.0, 800.0]))
    assert np.all(np.diff(time_s) < 0)
    assert np.all(np.diff(energy_j / time_s) > 0)
