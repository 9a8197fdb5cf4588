"""What was spent between two instants, by a counter that stands still between its edges."""

import random
from math import pi, sin

import pytest

from wattune.core.reading import Reading
from wattune.core.refresh import Refresh
from wattune.devices.counter_trace import spent_between

PERIOD_S, EDGE_S = 0.1, 0.03
REFRESH = Refresh(PERIOD_S, EDGE_S, 1e-6, 2e-4)


def truth_j(time_s: float, step_s: float) -> float:
    """Energy of 300 W that swings by half of it within each step."""
    return 300 * time_s - 150 * step_s / (2 * pi) * sin(2 * pi * time_s / step_s)


def readings(
    step_s: float, *, until_s: float, chance: random.Random, soonest_s: float = 0.0005, latest_s: float = 0.02
) -> list[Reading]:
    """Read after each edge, a little late, as a sampler does."""
    found = []
    for number in range(int((until_s - EDGE_S) / PERIOD_S)):
        edge_s = EDGE_S + number * PERIOD_S
        late_s = chance.uniform(soonest_s, latest_s)
        found.append(Reading(time_s=edge_s + late_s, energy_j=round(truth_j(edge_s, step_s), 3)))
    return found


@pytest.mark.parametrize("step_s", [0.011, 0.068, 0.25, 1.7])
def test_the_stated_error_holds_the_truth(step_s: float) -> None:
    chance = random.Random(step_s)
    held, shares = 0, []
    for _ in range(200):
        trace = readings(step_s, until_s=8.0, chance=chance)
        start_s, end_s = chance.uniform(0.2, 2.0), chance.uniform(5.0, 7.7)
        cost = spent_between(trace, REFRESH, start_s, end_s)
        assert cost is not None
        assert cost.energy_error_j is not None
        assert cost.time_s == pytest.approx(end_s - start_s)
        true_j = truth_j(end_s, step_s) - truth_j(start_s, step_s)
        held += abs(cost.energy_j - true_j) <= cost.energy_error_j
        shares.append(cost.energy_error_j / true_j)
    assert held >= 190
    assert max(shares) < 0.012


def test_a_late_reading_before_an_edge_has_the_value_of_the_one_before() -> None:
    phase = Refresh(PERIOD_S, EDGE_S, 1e-6, 5e-4)
    trace = readings(0.011, until_s=3.0, chance=random.Random(5))
    late = Reading(time_s=EDGE_S + 11 * PERIOD_S - 2e-4, energy_j=trace[10].energy_j)
    for some in ([*trace[:10], late, *trace[11:]], [*trace[:11], late, *trace[11:]]):
        cost = spent_between(some, phase, 0.2, EDGE_S + 10.4 * PERIOD_S)
        assert cost is not None
        assert cost.energy_j == pytest.approx(300 * cost.time_s, abs=300 * PERIOD_S / 10)


@pytest.mark.parametrize("off_s", [-4e-4, 4e-4])
def test_a_reading_at_an_edge_belongs_to_no_wrong_refresh(off_s: float) -> None:
    """Where the phase is off within its error, a reading just after an edge seems to be older by a whole refresh."""
    chance, phase = random.Random(4), Refresh(PERIOD_S, EDGE_S + off_s, 1e-6, 5e-4)
    for _ in range(200):
        trace = readings(0.068, until_s=8.0, chance=chance, soonest_s=0.0, latest_s=0.002)
        start_s, end_s = (EDGE_S + PERIOD_S * (chance.randint(*range_) + 0.02) for range_ in ((3, 20), (50, 75)))
        cost = spent_between(trace, phase, start_s, end_s)
        assert cost is not None
        true_j = truth_j(end_s, 0.068) - truth_j(start_s, 0.068)
        assert cost.energy_j == pytest.approx(true_j, abs=300 * PERIOD_S / 3)


def test_missed_edges_make_the_error_wider() -> None:
    chance = random.Random(1)
    every = readings(0.068, until_s=8.0, chance=chance)
    some = every[::10]
    one, other = (spent_between(trace, REFRESH, 1.5, 6.5) for trace in (every, some))
    assert one is not None
    assert other is not None
    assert (other.energy_error_j or 0) > 3 * (one.energy_error_j or 0)
    assert other.energy_j == pytest.approx(one.energy_j, abs=other.energy_error_j)


def test_a_lost_phase_makes_the_error_wider_and_the_truth_stays_in_it() -> None:
    chance = random.Random(3)
    lost = Refresh(PERIOD_S, 0.041, 0.01, 0.002)
    for _ in range(100):
        trace = readings(0.068, until_s=8.0, chance=chance)
        start_s, end_s = chance.uniform(3.0, 4.0), chance.uniform(6.0, 7.5)
        cost = spent_between(trace, lost, start_s, end_s)
        assert cost is not None
        assert 20 < (cost.energy_error_j or 0) < 100
        assert cost.energy_j == pytest.approx(truth_j(end_s, 0.068) - truth_j(start_s, 0.068), abs=cost.energy_error_j)


def test_nothing_is_made_up_outside_the_readings() -> None:
    trace = readings(0.068, until_s=4.0, chance=random.Random(2))
    assert spent_between(trace, REFRESH, 1.0, 9.0) is None
    assert spent_between(trace[:1], REFRESH, 0.0, 0.1) is None
    assert spent_between(trace, REFRESH, 2.0, 2.0) is None
    assert spent_between([Reading(time_s=1.0), Reading(time_s=2.0)], REFRESH, 1.0, 2.0) is None
    unknown = spent_between(trace, None, 1.0, 3.0)
    assert unknown is not None
    assert (unknown.energy_error_j or 0) > 30 - 1  # a refresh of 0.1 s at 300 W
