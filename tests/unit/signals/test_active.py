"""The active part of a trace: idle time before and after training is no evidence about its steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.signals.active import active_part
from wattune.signals.period import find_period
from wattune.signals.samples import PowerSamples
from wattune_bench.period.loads import LoadPlan, Sensing, polled, training

QUICK = Sensing(refresh_s=0.02, window_s=0.02, noise_w=0.3, poll_s=0.0125)


def trained(*, idle_w=58.0, squeeze=1.0, head_s=15.0, tail_s=4.0, step_s=1.0, seconds=40.0, seed=3):
    """Steps between two levels of idle power before them and one after."""
    random = np.random.default_rng(seed)
    steps = polled(training(LoadPlan(step_s=step_s), seconds, random=random), QUICK, seconds, random=random)
    head = np.arange(0, head_s, QUICK.poll_s)
    tail = np.arange(0, tail_s, QUICK.poll_s)
    idle = np.concatenate((np.where(head < head_s / 2, 12.0, idle_w), np.full(len(tail), idle_w)))
    idle = idle + 0.1 * random.standard_normal(len(idle))
    power_w = idle_w + squeeze * (steps.power_w - 80.0)
    middle = [np.full(len(head), 0.0), np.ones(len(power_w)), np.full(len(tail), 0.0)]
    time_s = np.concatenate((head, head_s + steps.time_s, head_s + seconds + tail))
    return PowerSamples(
        time_s,
        np.concatenate((idle[: len(head)], power_w, idle[len(head) :])),
        np.concatenate(middle),
        np.concatenate((middle[0], steps.mem_util, middle[2])),
    )


@pytest.mark.parametrize("known", [True, False])
def test_idle_time_at_two_levels_is_left_out(known):
    samples = trained()
    samples = samples if known else PowerSamples(samples.time_s, samples.power_w)
    active = active_part(samples)
    assert active.time_s[0] == pytest.approx(15.0, abs=1.2)
    assert active.time_s[-1] == pytest.approx(55.0, abs=1.2)


@pytest.mark.parametrize("squeeze", [0.06, 0.2, 1.0])
def test_training_at_low_clocks_is_found_beside_its_idle_power(squeeze):
    assert find_period(trained(squeeze=squeeze)).period_s == pytest.approx(1.0, rel=0.02)


def test_a_trace_without_idle_time_is_used_whole():
    random = np.random.default_rng(5)
    samples = polled(training(LoadPlan(step_s=0.4), 30.0, random=random), QUICK, 30.0, random=random)
    assert active_part(samples).duration_s > 29.0


@settings(max_examples=15, deadline=None)
@given(head_s=st.floats(1, 40), tail_s=st.floats(1, 40), squeeze=st.floats(0.1, 1.0))
def test_the_answer_does_not_depend_on_idle_time(head_s, tail_s, squeeze):
    samples = trained(head_s=head_s, tail_s=tail_s, squeeze=squeeze, seconds=25.0)
    assert find_period(samples).period_s == pytest.approx(1.0, rel=0.02)
