"""When a counter is polled, the errors of means, and the overhead of the polling thread."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import OddGpu

from wattune.control import background as run_background
from wattune.control.background import Background
from wattune.control.counter_edges import DOUBT_S, CounterEdges
from wattune.control.window_totals import BLOCKS, Blocks, Tally, mean_error
from wattune.core.reading import Count, Reading
from wattune.core.setting import DRIVER_DEFAULT


def polled(refresh_s, *, nominal_s=None, seconds=120.0, late_s=0.0003, phase_s=0.013, power_w=300.0, closely=False):
    """Poll a counter, late by up to so much; return all states, each with the true time of its value's move."""
    generator, edges, now_s, found = random.Random(3), CounterEdges(nominal_s), 0.0, []
    while now_s < seconds:
        now_s += edges.wait_s(closely=closely or edges.is_doubtful) + generator.random() * late_s
        moves = math.floor((now_s + phase_s) / refresh_s)
        edges = edges.polled(Count(now_s, power_w * moves * refresh_s))
        found.append((edges, moves * refresh_s - phase_s))
    return found


@pytest.mark.parametrize("late_s", [0.0003, 0.03])
@pytest.mark.parametrize("nominal_s", [None, 0.1])
@pytest.mark.parametrize("refresh_s", [0.1, 0.0973, 0.05, 0.2])
def test_the_time_of_a_move_is_within_its_error(refresh_s, nominal_s, late_s):
    found = [one for one in polled(refresh_s, nominal_s=nominal_s, late_s=late_s) if one[0].moved]
    held = [abs(edges.edge_s - truth_s) <= edges.error_s + 1e-9 for edges, truth_s in found]
    assert sum(held) > 0.99 * len(held)
    assert len(found) > 500


@pytest.mark.parametrize("refresh_s", [0.1, 0.05, 0.2])
def test_a_counter_that_is_known_is_polled_once_for_each_refresh(refresh_s):
    found = polled(refresh_s)
    late = [edges for edges, _ in found if edges.last.time_s > 60.0]
    assert len(late) / 60.0 < 1.1 / refresh_s
    assert max(edges.error_s for edges in late) < 1.1 * DOUBT_S


def test_a_move_that_is_needed_is_seen_closely():
    assert sum(edges.is_sharp for edges, _ in polled(0.1, seconds=10.0, closely=True)) > 90


def test_a_counter_that_stands_still_is_not_polled_closely_for_ever():
    edges, now_s = CounterEdges(0.1), 0.0
    for _ in range(3000):
        now_s += edges.wait_s(closely=edges.is_doubtful)
        edges = edges.polled(Count(now_s, 7.0))
    assert edges.wait_s(closely=True) >= 0.02
    reading = edges.exact(Reading(time_s=now_s, energy_j=7.0))
    assert reading.time_s == now_s


def test_a_counter_that_moves_at_every_poll_is_exact():
    edges = CounterEdges()
    for place in range(100):
        edges = edges.polled(Count(0.001 * place, 0.3 * place))
    assert edges.is_fast
    assert edges.is_sharp
    assert not edges.is_doubtful


# means


def test_the_error_of_a_mean_covers_the_true_value():
    generator, misses = random.Random(1), 0
    for _ in range(300):
        values = [generator.gauss(5.0, 1.0) for _ in range(10)]
        misses += abs(sum(values) / 10 - 5.0) > mean_error(values)
    assert misses < 30
    assert mean_error([1.0]) is None


@given(st.lists(st.tuples(st.floats(0.01, 50.0), st.floats(0.0, 1.0)), min_size=1, max_size=80))
def test_blocks_keep_the_mean_and_stay_few(pairs):
    blocks, age_s = Blocks(), 0.0
    for length_s, value in pairs:
        blocks, age_s = blocks.add(age_s, age_s + length_s, value), age_s + length_s
    total_s = sum(length_s for length_s, _ in pairs)
    assert blocks.mean == pytest.approx(sum(length_s * value for length_s, value in pairs) / total_s, abs=1e-9)
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

    rest_s = 0.0

    def __init__(self):
        self.readings = self

    def close(self):
        """Nothing."""

    def take_cpu_s(self):
        return 0.0


def test_expensive_ticks_are_made_less_often():
    loop = Expensive()
    background = Background(loop)
    cpu_s = wall_s = 0.0
    for _ in range(400):
        cpu_s, wall_s = cpu_s + 0.001, wall_s + max(loop.rest_s, 0.02)
        background._count(cpu_s, wall_s)
    assert loop.rest_s == pytest.approx(0.001 / run_background.MOST_SHARE, rel=0.01)
    assert background.cpu_s < 0.01 * background.wall_s


def test_one_expensive_tick_does_not_reduce_polling():
    loop = Expensive()
    background = Background(loop)
    for place in range(1, 400):
        background._count(0.0001 * place + (0.5 if place > 200 else 0.0), 0.02 * place)
    assert loop.rest_s < 0.05


def test_a_gpu_is_read_when_its_counter_updates():
    assert OddGpu().spec.sensors.counter_period_s == pytest.approx(0.1, rel=0.5)
