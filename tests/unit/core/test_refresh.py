"""Held counters: the truth against what is made of two counts."""

import random
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.reading import Count
from wattune.core.refresh import Refresh, spent_j

PERIOD_S = 0.1


def held(time_s, power_w, phase_s=0.0, period_s=PERIOD_S):
    """A count of a constant load by a counter that moves at phase + k·period."""
    last_s = floor((time_s - phase_s) / period_s) * period_s + phase_s
    return Count(time_s, power_w * (last_s + 10 * period_s))


@given(st.floats(0, 10), st.floats(0.25, 100), st.floats(10, 500), st.floats(0, 0.0999))
def test_a_known_phase_gives_the_true_energy(start_s, length_s, power_w, phase_s):
    before, after = held(start_s, power_w, phase_s), held(start_s + length_s, power_w, phase_s)
    energy_j, error_j = spent_j(before, after, Refresh(PERIOD_S, phase_s))
    truth_j = power_w * length_s
    assert abs(energy_j - truth_j) <= error_j
    ages = [(t - phase_s) % PERIOD_S for t in (start_s, start_s + length_s)]
    if all(1e-4 < age < PERIOD_S - 1e-4 for age in ages):
        assert energy_j == pytest.approx(truth_j, rel=1e-6)


@given(st.floats(0, 10), st.floats(0.01, 20), st.floats(10, 500))
def test_the_error_covers_an_unknown_phase(start_s, length_s, power_w):
    found = spent_j(held(start_s, power_w), held(start_s + length_s, power_w), None)
    if found is not None:
        energy_j, error_j = found
        assert abs(energy_j - power_w * length_s) <= error_j + 1e-6


def test_a_counter_that_did_not_move_gives_no_energy():
    assert spent_j(Count(0, 5), Count(0.01, 5), None) is None


def test_distant_edges_give_a_more_exact_period():
    generator = random.Random(7)
    true_period_s, jitter_s = 0.1013, 0.0003
    refresh = Refresh(0.1, 0.0, 0.02, jitter_s)
    for periods in (1, 2, 20, 200, 5000):
        noise_s = generator.uniform(-jitter_s, jitter_s)
        refresh = refresh.observed(refresh.edge_s + periods * true_period_s + noise_s, jitter_s)
    assert refresh.period_s == pytest.approx(true_period_s, rel=1e-5)
    assert refresh.age_error_s(refresh.edge_s + 60) < 0.001


def test_an_impossible_edge_restarts_the_phase():
    refresh = Refresh(0.1, 0.0, 1e-6, 1e-4).observed(1.05, 1e-4)
    assert refresh.edge_s == 1.05
    assert refresh.period_error_s == pytest.approx(0.01)


def test_a_lost_phase_is_not_used():
    lost = Refresh(0.1, 0.0, period_error_s=0.01)
    assert lost.age_error_s(100) == 0.1
    _, error_j = spent_j(held(50, 100), held(51, 100), lost)
    assert error_j == pytest.approx(10, rel=0.15)


def test_a_counter_stands_still_until_its_next_move_and_not_where_that_is_unknown():
    refresh = Refresh(0.1, 0.0, 1e-6, 0.001)
    for time_s in (0.53, 7.96, 20.05):
        moves_s = time_s + refresh.still_s(time_s)
        assert 0 < moves_s - time_s < 0.1
        assert moves_s == pytest.approx(round(moves_s, 1), abs=0.002)
        assert moves_s <= round(moves_s, 1)
    assert refresh.still_s(0.5001) == 0  # it may move just now
    assert Refresh(0.1, 0.0, period_error_s=0.01).still_s(100.03) == 0
