"""Pauses of any length: what a program was seen to do is not taken for rest, and real rest is found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.reading import Reading
from wattune.signals.readings import LEAST_IDLE_S, Activity, IdleWatch

EVERY_S = 0.5
spans = st.lists(st.tuples(st.integers(2, 60), st.integers(2, 60)), min_size=2, max_size=12)
"""Readings of work and of pause, by turns."""


def said(turns, *, wrong=frozenset()):
    """For each pause: how long it had lasted when it was first called rest, or None, and what was known by then."""
    watch, place, pauses = IdleWatch(), 0, []
    for work, pause in turns:
        rested_s, longest_s = None, watch.longest_s
        for count, busy in ((work, True), (pause, False)):
            for _ in range(count):
                place += 1
                util = None if place in wrong else 0.9 * busy
                watch = watch.add(Reading(time_s=EVERY_S * place, sm_util=util))
                if busy and util is not None:
                    assert watch.activity in (Activity.WORKING, Activity.BURSTY)
                    longest_s = watch.longest_s
                elif watch.activity is Activity.IDLE and rested_s is None:
                    rested_s = watch.pause_s
        pauses.append((rested_s, longest_s))
    return watch, pauses


@settings(max_examples=60, deadline=None)
@given(spans)
def test_no_pause_is_idle_before_ten_seconds_nor_within_earlier_pauses(turns):
    _, pauses = said(turns)
    for rested_s, longest_s in pauses:
        # What was seen fades a little within the pause.
        assert rested_s is None or rested_s >= max(LEAST_IDLE_S, 3.8 * longest_s) - 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(2, 10))
def test_equal_pauses_are_taken_for_idle_once_at_most(work, pause, count):
    _, pauses = said([(work, pause)] * count)
    assert sum(rested_s is not None for rested_s, _ in pauses) <= 1


@settings(max_examples=40, deadline=None)
@given(spans)
def test_a_program_that_ended_becomes_idle(turns):
    watch, _ = said([*turns, (2, 1000)])
    assert watch.activity is Activity.IDLE


@settings(max_examples=40, deadline=None)
@given(spans, st.sets(st.integers(1, 400), max_size=60))
def test_sensor_errors_make_nothing_idle_sooner(turns, wrong):
    _, pauses = said(turns, wrong=frozenset(wrong))
    assert all(rested_s is None or rested_s >= LEAST_IDLE_S for rested_s, _ in pauses)
