"""The frontier against brute force, and its own properties."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement

costs = st.builds(Measurement, st.floats(0.1, 100), st.floats(0.1, 100))
trials = st.lists(st.builds(Trial, st.integers(), costs), max_size=12)


def dominates(one: Measurement, other: Measurement) -> bool:
    no_worse = one.time_s <= other.time_s and one.energy_j <= other.energy_j
    return no_worse and (one.time_s < other.time_s or one.energy_j < other.energy_j)


@given(trials)
def test_frontier_is_what_nothing_dominates(history):
    frontier = Frontier.of(history)
    points = {(trial.cost.time_s, trial.cost.energy_j) for trial in frontier}
    brute = {
        (trial.cost.time_s, trial.cost.energy_j)
        for trial in history
        if not any(dominates(other.cost, trial.cost) for other in history)
    }
    assert points == brute


@given(trials.filter(bool), st.floats(0.1, 100))
def test_within_is_the_cheapest_that_is_quick_enough(history, deadline_s):
    quick = [trial.cost.energy_j for trial in history if trial.cost.time_s <= deadline_s]
    frontier = Frontier.of(history)
    if not quick:
        with pytest.raises(Infeasible, match="takes"):
            frontier.within(deadline_s)
    else:
        assert frontier.within(deadline_s).cost.energy_j == min(quick)


@given(trials.filter(bool))
def test_hypervolume_against_a_grid_of_boxes(history):
    reference = Measurement(101, 101)
    frontier = Frontier.of(history)
    times = sorted({trial.cost.time_s for trial in history} | {101})
    energies = sorted({trial.cost.energy_j for trial in history} | {101})
    brute = sum(
        (t1 - t0) * (e1 - e0)
        for t0, t1 in pairwise(times)
        for e0, e1 in pairwise(energies)
        if any(trial.cost.time_s <= t0 and trial.cost.energy_j <= e0 for trial in history)
    )
    assert frontier.hypervolume(reference) == pytest.approx(brute)


@given(trials.filter(bool), trials)
def test_more_trials_never_shrink_the_hypervolume(history, more):
    reference = Measurement(101, 101)
    assert Frontier.of(history + more).hypervolume(reference) >= Frontier.of(history).hypervolume(reference) - 1e-9


def test_fastest_cheapest_and_knee():
    costs = [(1.0, 100.0), (1.05, 70.0), (1.5, 60.0), (2.0, 58.0)]
    frontier = Frontier.of(Trial(index, Measurement(*cost)) for index, cost in enumerate(costs))
    assert (frontier.fastest.choice, frontier.knee.choice, frontier.cheapest.choice) == (0, 1, 3)


def test_a_frontier_out_of_order_is_refused():
    with pytest.raises(ValueError, match="fast and expensive"):
        Frontier((Trial(0, Measurement(2, 1)), Trial(1, Measurement(1, 2))))


def test_an_empty_frontier_says_what_to_do():
    with pytest.raises(Infeasible) as caught:
        _ = Frontier(()).fastest
    assert caught.value.hint
