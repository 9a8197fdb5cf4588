"""The account of steps: what moves of the counters show of them, however late these are polled."""

import random
from dataclasses import dataclass, field
from math import floor

import pytest

from fakes import FakeGpu
from wattune.control.counter_edges import PolledCounters
from wattune.core.reading import Count, CountedReading
from wattune.levels.job.step_tally import StepTally

STEP_S, PERIOD_S = 0.13, 0.1


@dataclass
class Program(FakeGpu):
    """Steps at a power, with pauses at another, on a counter that moves once a period."""

    busy_w: float = 300.0
    pauses: tuple[tuple[float, float], ...] = ()
    """Starts and ends."""
    polls: list[float] = field(default_factory=list)

    def __post_init__(self):
        FakeGpu.__init__(self)
        self.now_s = 0.0

    def spent_j(self, time_s):
        paused_s = sum(max(min(time_s, end_s) - start_s, 0.0) for start_s, end_s in self.pauses)
        return self.busy_w * (time_s - paused_s) + 60.0 * paused_s

    def count(self):
        self.polls.append(self.now_s)
        return Count(self.now_s, self.spent_j(floor(self.now_s / PERIOD_S) * PERIOD_S))

    def steps_between(self, start_s, end_s):
        """The ends of the steps in an interval; none ends in a pause, after which the first begins anew."""
        bounds = [0.0, *(time_s for pause in self.pauses for time_s in pause), 1e9]
        ends_s = []
        for begin_s, stop_s in zip(bounds[::2], bounds[1::2], strict=True):
            count = floor((min(stop_s, end_s) - begin_s) / STEP_S + 1e-9)
            ends_s += [begin_s + STEP_S * (place + 1) for place in range(max(count, 0))]
        return [one for one in ends_s if start_s < one <= end_s]


def followed(program, until_s, *, late=lambda: 0.0, window=lambda _: 0):
    """The account of a program, whose counter and steps are looked at as late as given."""
    counters, tally, seen_s = PolledCounters((program,)), StepTally(1), 0.0
    while program.now_s < until_s:
        counters.poll()
        if counters.moved:
            tally.read(counters.readings, window=window(program.now_s))
        for end_s in program.steps_between(seen_s, program.now_s):
            if any(seen_s <= end <= end_s for _, end in program.pauses):
                tally.pause()
            tally.step(end_s, 1)
            seen_s = end_s
        program.wait(counters.wait_s(0.08) + late())
    return tally


def test_a_pause_is_in_neither_the_steps_nor_their_energy():
    program = Program(pauses=((5.0, 9.0), (12.03, 12.9)))
    account = followed(program, 20.0).account(total=100)
    each = account.cost / account.count
    assert each.time_s == pytest.approx(STEP_S, rel=1e-6)
    assert abs(each.energy_j - 300.0 * STEP_S) <= each.energy_error_j < 0.01 * each.energy_j
    assert account.count > 0.9 * (20.0 - 4.87) / STEP_S - 1


@pytest.mark.parametrize("latest_s", [0.0, 0.03, 0.3])
def test_what_is_polled_late_has_an_error_that_holds(latest_s):
    held, generator = 0, random.Random(3)
    for _ in range(20):
        program = Program()
        program.now_s = generator.uniform(0.0, 1.0)
        # A busy host delays few polls by much.
        account = followed(program, 12.0, late=lambda: generator.random() ** 4 * latest_s).account(total=90)
        each = account.default_cost / account.default_count
        held += abs(each.energy_j - 300.0 * STEP_S) <= each.energy_error_j
        assert each.energy_error_j < 0.015 * each.energy_j
    assert held >= 18


def test_only_the_readings_of_a_window_show_the_default():
    program = Program()
    account = followed(program, 30.0, window=lambda time_s: 1 if 10.0 < time_s < 20.0 else None).account(total=200)
    assert account.default_count == pytest.approx(10.0 / STEP_S, abs=3)
    assert account.count == pytest.approx(30.0 / STEP_S, abs=5)


def test_a_program_that_was_slow_at_first_counts_from_its_last_window_on():
    tally = StepTally(1)
    tally.begin(0.0)
    for place in range(1, 101):
        slow = place <= 50
        time_s = 0.2 * place if slow else 10.0 + 0.1 * (place - 50)
        tally.step(time_s, 1)
        tally.read((CountedReading(time_s=time_s, energy_j=200.0 * time_s, exact_s=time_s),), window=1 if slow else 2)
    tally.begin_again()
    account = tally.account(total=100)
    assert account.count == account.default_count == 49
    assert account.cost.time_s / account.count == pytest.approx(0.1)


def test_a_counter_is_polled_once_a_refresh_where_its_moves_are_known():
    program = Program()
    followed(program, 5.0)
    learned = len(program.polls)
    program.polls.clear()
    followed(program, 65.0)
    assert learned < 700
    assert len(program.polls) < 60 * 15
