"""When a state is over: by seconds, by steps, by the error, and by a longest length whatever the error is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.control.window_state import Until

LENGTHS = st.floats(0.0, 100.0)
COUNTS = st.integers(0, 100)


@pytest.mark.parametrize(
    ("until", "passed", "over"),
    [
        (Until(), {}, True),
        (Until(least_s=1.0), {"time_s": 0.9}, False),
        (Until(least_s=1.0), {"time_s": 1.0}, True),
        (Until(least_steps=3, least_s=0.5), {"steps": 3, "time_s": 0.4}, False),
        (Until(least_steps=3, least_s=0.5), {"steps": 2, "time_s": 9.0}, False),
        (Until(least_steps=3, least_s=0.5), {"steps": 3, "time_s": 0.5}, True),
        (Until(least_s=1.0, precision=0.01), {"time_s": 2.0}, False),
        (Until(least_s=1.0, precision=0.01), {"time_s": 2.0, "error": 0.02}, False),
        (Until(least_s=1.0, precision=0.01), {"time_s": 2.0, "error": 0.01}, True),
        (Until(least_steps=20, most_steps=100, precision=0.05), {"steps": 100}, True),
        (Until(least_steps=4, most_s=15.0, precision=0.01), {"steps": 1, "time_s": 15.0}, True),
    ],
)
def test_a_state_is_over(until, passed, over):
    assert until.is_over(**passed) is over


@given(LENGTHS, COUNTS, LENGTHS, COUNTS, st.floats(0.0, 1.0))
def test_a_state_that_is_over_stays_over(least_s, least_steps, time_s, steps, error):
    until = Until(least_s=least_s, least_steps=least_steps, most_s=2 * least_s + 1.0, precision=0.5)
    if until.is_over(time_s=time_s, steps=steps, error=error):
        assert until.is_over(time_s=time_s + 1.0, steps=steps + 1, error=error / 2)


@given(st.floats(0.01, 10.0), COUNTS, st.floats(0.01, 1.0), st.integers(1, 50))
def test_after_the_steps_that_are_left_the_least_length_is_reached(least_s, least_steps, step_s, steps):
    until = Until(least_s=least_s, least_steps=least_steps)
    done = steps + until.steps_left(time_s=steps * step_s, steps=steps)
    assert until.is_over(time_s=done * step_s * (1 + 1e-9), steps=done)


def test_before_the_first_step_the_least_number_is_left():
    assert Until(least_steps=3, least_s=9.0).steps_left() == 3
    assert Until().steps_left() == 1
