"""What holds of any trace: an answer comes back, it is one of three, and units and stamps do not change it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import find_peaks

from wattune.signals.period import Verdict, find_period
from wattune.signals.period_candidates import local_maxima
from wattune.signals.samples import PowerSamples

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(numbers, numbers, numbers), max_size=80))
def test_any_samples_get_an_answer(rows):
    time_s, power_w, sm_util = (
        (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 3
    )
    with np.errstate(all="ignore"):
        answer = find_period(PowerSamples(time_s, power_w, sm_util))
    assert (answer.verdict is Verdict.PERIODIC) == (answer.period_s is not None)


@settings(max_examples=15, deadline=None)
@given(
    period_s=st.floats(0.2, 3.0),
    share=st.floats(0.2, 0.8),
    start_s=st.floats(-1e6, 1e6),
    gain=st.floats(0.1, 10.0),
    seed=st.integers(0, 1000),
)
def test_the_start_time_and_the_unit_of_power_do_not_matter(period_s, share, start_s, gain, seed):
    random = np.random.default_rng(seed)
    time_s = np.cumsum(random.uniform(0.015, 0.025, 3000))
    power_w = 100 + 150 * (time_s % period_s < share * period_s) + random.standard_normal(len(time_s))
    first = find_period(PowerSamples(time_s, power_w))
    other = find_period(PowerSamples(time_s + start_s, gain * power_w))
    assert first.verdict is Verdict.PERIODIC
    assert abs(first.period_s / period_s - 1) < 0.01
    assert abs(other.period_s / first.period_s - 1) < 0.005


@settings(max_examples=12, deadline=None)
@given(
    period_s=st.floats(0.2, 2.0),
    share=st.floats(0.25, 0.75),
    phase=st.floats(0.0, 1.0),
    unit=st.sampled_from((0.5, 2.0, 3.0)),
    seed=st.integers(0, 1000),
)
def test_the_phase_and_the_unit_of_time_do_not_matter(period_s, share, phase, unit, seed):
    random = np.random.default_rng(seed)
    time_s = np.cumsum(random.uniform(0.015, 0.025, 3000))
    power_w = 100 + 150 * ((time_s / period_s + phase) % 1.0 < share) + random.standard_normal(len(time_s))
    found = find_period(PowerSamples(time_s, power_w))
    assert found.verdict is Verdict.PERIODIC
    assert abs(found.period_s / period_s - 1) < 0.01
    # What counts in seconds (a stall, a quick sensor) is not stretched, so a period is compared where both have one.
    other = find_period(PowerSamples(unit * time_s, power_w))
    if other.period_s is not None:
        assert abs(other.period_s / (unit * found.period_s) - 1) < 0.01


@given(value=st.lists(st.integers(-3, 3) | numbers, max_size=60))
def test_local_maxima_are_those_of_scipy(value):
    signal = np.array(value, dtype=np.float64)
    assert local_maxima(signal).tolist() == find_peaks(signal)[0].tolist()
