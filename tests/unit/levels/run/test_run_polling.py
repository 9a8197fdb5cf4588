"""When a counter is polled, the errors of means, and the overhead of the polling thread."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import OddGpu

from wattune.control import background as run_background
from wattune.control.background import Background
from wattune.control.window_totals import BLOCKS, POLL_S, Blocks, Polling, Tally, mean_error
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT


def polls(refresh_s, *, known_s=None, seconds=60.0, late_s=0.001, phase_s=0.013):
    """Return the polls per second of a counter with such a refresh, and the longest delay of an update."""
    polling, now_s, moves, count, latest_s = Polling(known_s), 0.0, 0, 0, 0.0
    while now_s < seconds:
        now_s += polling.wait_s + late_s
        reached = math.floor((now_s + phase_s) / refresh_s)
        polling = polling.polled(now_s, moved=reached != moves)
        if reached != moves and now_s > 2.0:
            latest_s = max(latest_s, (now_s + phase_s) % refresh_s)
        moves, count = reached, count + 1
    return count / seconds, latest_s


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("refresh_s", [0.1, 0.05, 0.2, 1.0])
def test_a_counter_is_polled_little_more_often_than_it_updates(refresh_s, known):
    a_second, latest_s = polls(refresh_s, known_s=refresh_s if known else None)
    assert a_second < max(2.1 / refresh_s, 5.0)
    assert latest_s < POLL_S + 0.002


def test_a_counter_that_never_updates_is_polled():
    assert Polling(0.1).polled(1.0, moved=False).wait_s == POLL_S
    assert Polling().polled(1.0, moved=True).wait_s == POLL_S


# means


def test_the_error_of_a_mean_covers_the_true_value():
    generator, misses = random.Random(1), 0
    for _ in range(300):
        values = [generator.gauss(5.0, 1.0) for _ in range(10)]
        misses += abs(sum(values) / 10 - 5.0) > mean_error(values)
    assert misses < 30
    assert mean_error([1.0]) is None


@given(st.lists(st.tuples(st.floats(0.0, 500.0), st.floats(0.0, 1.0)), min_size=1, max_size=80))
def test_blocks_keep_the_mean_and_stay_few(pairs):
    blocks = Blocks()
    for age_s, value in sorted(pairs):
        blocks = blocks.add(age_s, value)
    assert blocks.mean == pytest.approx(sum(value for _, value in pairs) / len(pairs))
    assert len(blocks.sums) <= BLOCKS


def test_slow_variation_increases_the_error_of_a_window():
    tally_of = {}
    for name, slow_s in (("fast", 0.4), ("slow", 12.0)):
        tally = Tally(Reading(time_s=0.0, energy_j=0.0))
        for place in range(1, 200):
            busy = 0.9 if (0.1 * place) % slow_s < slow_s / 2 else 0.7
            tally = tally.add(Reading(time_s=0.1 * place, energy_j=place, sm_util=busy), DRIVER_DEFAULT)
        tally_of[name] = tally
    assert tally_of["fast"].sm_utils.mean == pytest.approx(0.8, abs=0.01)
    assert tally_of["slow"].sm_utils.error > 3 * tally_of["fast"].sm_utils.error


# the thread


class Expensive:
    """A loop whose ticks a test makes cost something, by the clock of the thread that ticks it."""

    wait_s = 0.02
    controller = progress = None

    def close(self):
        """Nothing."""

    def take_reading_cpu_s(self):
        return 0.0


def test_expensive_ticks_are_made_less_often():
    background = Background(Expensive())
    assert background.wait_s == 0.02
    cpu_s = wall_s = 0.0
    for _ in range(400):
        cpu_s, wall_s = cpu_s + 0.001, wall_s + background.wait_s
        background._count(cpu_s, wall_s)
    assert background.wait_s == pytest.approx(0.001 / run_background.MOST_SHARE, rel=0.01)
    assert background.cpu_share < 0.01


def test_one_expensive_tick_does_not_reduce_polling():
    background = Background(Expensive())
    for place in range(1, 400):
        background._count(0.0001 * place + (0.5 if place > 200 else 0.0), 0.02 * place)
    assert background.wait_s == pytest.approx(0.02, rel=0.05)


def test_a_gpu_is_read_when_its_counter_updates():
    assert OddGpu().spec.sensors.counter_period_s == pytest.approx(0.1, rel=0.5)
