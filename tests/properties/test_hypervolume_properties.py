"""Hypervolume, improvements and ε, beside brute force; compositions beside the full product."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.composition import Calibration, Composed, Part, compose, compose_points
from wattune.levels.overlap.hypervolume import (
    distances,
    epsilon,
    front_places,
    hypervolume,
    improvement,
)

_whole = st.integers(1, 12)
_points = st.lists(st.tuples(_whole, _whole), min_size=1, max_size=8).map(lambda rows: np.array(rows, dtype=float))
REFERENCE = np.array([11.0, 11.0])


def _cells(points: np.ndarray) -> int:
    """Count unit squares below the reference that a point dominates."""
    return sum(any(a <= x and b <= y for a, b in points) for x, y in product(range(11), range(11)))


@given(_points)
def test_hypervolume_counts_dominated_squares(points: np.ndarray) -> None:
    assert hypervolume(points, REFERENCE) == pytest.approx(_cells(points))


@given(_points, _points)
def test_improvement_is_the_difference_of_hypervolumes(points: np.ndarray, new: np.ndarray) -> None:
    gains = improvement(points, new, REFERENCE)
    for gain, row in zip(gains, new, strict=True):
        both = np.concatenate([points, row[None]])
        assert gain == pytest.approx(hypervolume(both, REFERENCE) - hypervolume(points, REFERENCE))


@given(_points)
def test_the_front_dominates_all_and_no_member_another(points: np.ndarray) -> None:
    front = points[front_places(points)]
    assert all(any((kept <= row).all() for kept in front) for row in points)
    assert (np.diff(front[:, 0]) > 0).all()
    assert (np.diff(front[:, 1]) < 0).all()


@given(_points, _points)
def test_epsilon_is_the_least_factor_that_dominates(found: np.ndarray, frontier: np.ndarray) -> None:
    factor = 1.0 + epsilon(found, frontier)
    assert all(any((row / (factor + 1e-9) <= goal).all() for row in found) for goal in frontier)
    if factor > 1.0:
        assert not all(any((row / (factor - 1e-6) <= goal).all() for row in found) for goal in frontier)


_costs = st.lists(st.tuples(_whole, _whole), min_size=1, max_size=4)
_parts = st.lists(st.tuples(_costs, st.integers(1, 3)), min_size=1, max_size=4)


def _part(place: int, costs: list[tuple[int, int]], count: int) -> Part[tuple[int, int, int]]:
    trials = [
        Trial((clock, place, row), Measurement(time_s * 900 / clock, energy_j * clock / 900))
        for clock in (900, 1200)
        for row, (time_s, energy_j) in enumerate(costs)
    ]
    return Part(f"p{place}", tuple(trials), count)


@given(_parts)
def test_composition_equals_the_full_product(drawn: list[tuple[list[tuple[int, int]], int]]) -> None:
    parts = [_part(place, costs, count) for place, (costs, count) in enumerate(drawn)]
    every = []
    for clock in (900, 1200):
        for trials in product(*([trial for trial in part.trials if trial.choice[0] == clock] for part in parts)):
            time_s = sum(trial.cost.time_s * part.count for trial, part in zip(trials, parts, strict=True))
            energy_j = sum(trial.cost.energy_j * part.count for trial, part in zip(trials, parts, strict=True))
            every.append(Trial(Composed(clock, tuple(trial.choice for trial in trials)), Measurement(time_s, energy_j)))
    expected = [(trial.cost.time_s, trial.cost.energy_j) for trial in Frontier.of(every)]
    found = compose(parts, lambda choice: choice[0])
    costs = np.array([(trial.cost.time_s, trial.cost.energy_j) for trial in found])
    # Sums in another order differ by rounding, which can let one of two equal points through or not.
    assert epsilon(costs, np.array(expected)) < 1e-12
    assert epsilon(np.array(expected), costs) < 1e-12
    for trial in found:
        chosen = [
            part.trials[[t.choice for t in part.trials].index(choice)]
            for part, choice in zip(parts, trial.choice.choices, strict=True)
        ]
        assert {t.choice[0] for t in chosen} == {trial.choice.sm_mhz}
        total = sum(t.cost.time_s * part.count for t, part in zip(chosen, parts, strict=True))
        assert trial.cost.time_s == pytest.approx(total)


def test_calibration_scales_and_a_missing_clock_is_named() -> None:
    first, second = _part(0, [(1, 2)], 1), _part(1, [(2, 1)], 2)
    plain = compose([first, second], lambda choice: choice[0])
    scaled = compose([first, second], lambda choice: choice[0], calibration=Calibration(1.1, 1.2))
    assert scaled.fastest.cost.time_s == pytest.approx(1.1 * plain.fastest.cost.time_s)
    assert scaled.fastest.cost.energy_j == pytest.approx(1.2 * plain.fastest.cost.energy_j)
    with pytest.raises(InputError, match="p1 was not measured at 1200 MHz"):
        compose([first, Part("p1", second.trials[:1])], lambda choice: choice[0])


@given(_parts)
def test_points_alone_compose_alike(drawn: list[tuple[list[tuple[int, int]], int]]) -> None:
    parts = [_part(place, costs, count) for place, (costs, count) in enumerate(drawn)]
    only = [Part(part.name, tuple(t for t in part.trials if t.choice[0] == 900), part.count) for part in parts]
    found = compose(only, lambda choice: choice[0])
    points = compose_points([(np.array(costs, dtype=float), count) for costs, count in drawn])
    assert points == pytest.approx(np.array([(t.cost.time_s, t.cost.energy_j) for t in found]))


@given(_points, _points)
def test_distances_are_the_least_of_all_pairs(found: np.ndarray, frontier: np.ndarray) -> None:
    every = (found[:, None] / frontier[None]).max(axis=2).min(axis=0) - 1.0
    assert distances(found, frontier) == pytest.approx(every)
