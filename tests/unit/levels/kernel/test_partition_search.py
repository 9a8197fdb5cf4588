"""Searchers of a partition: seeded, resumable from a history, better than chance; noise and stopping."""

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.levels.kernel.partition.kareus_search import KareusSearch, encoded
from wattune.levels.kernel.partition.physics_search import PhysicsSearch
from wattune.levels.kernel.partition.search import (
    PartitionSpace,
    RandomSearch,
    Searcher,
    observed,
    search,
)
from wattune.search.boosted_trees import installed
from wattune.search.hypervolume import epsilon, front_places

CLOCKS, SMS, LAUNCHES = (900, 1050, 1200, 1410), tuple(range(2, 21, 2)), (-1, 0, 1, 2)


def _space() -> tuple[PartitionSpace[int], np.ndarray]:
    features = np.array([(c, s, w) for c in CLOCKS for s in SMS for w in LAUNCHES], dtype=float)
    clock, sms, launch = features[:, 0] / 1410, features[:, 1], features[:, 2]
    compute, comm = 3e-3 / clock, 6e-3 / (sms * clock) + 5e-4
    hidden = compute * np.choose(launch.astype(int) + 1, [0.0, 1.0, 0.8, 0.5])
    beside = compute - hidden + np.maximum(hidden * (1 + sms / 108), comm)
    time_s = np.where(launch < 0, compute + comm, beside)
    energy_j = 0.3 + 0.5 * clock**2 + (80 + 40 * clock**3) * time_s
    costs = np.stack([time_s, energy_j], axis=1)
    return PartitionSpace(tuple(range(len(features))), features, ("sm_mhz", "comm_sms", "launch")), costs


def _run(space: PartitionSpace[int], costs: np.ndarray, searcher: Searcher, budget: int) -> History[int]:
    return search(space, searcher, lambda place: Measurement(*map(float, costs[place])), budget=budget)


def _epsilon(costs: np.ndarray, history: History[int]) -> float:
    return epsilon(costs[[trial.choice for trial in history]], costs[front_places(costs)])


SEARCHERS = [
    RandomSearch(seed=3),
    PhysicsSearch(seed=3, batch=3),
    pytest.param(
        KareusSearch(seed=3, initial=12, batch=6), marks=pytest.mark.skipif(not installed(), reason="needs LightGBM")
    ),
]


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_search_goes_on_from_a_history_as_if_it_had_not_ended(searcher: Searcher) -> None:
    space, costs = _space()
    whole = _run(space, costs, searcher, 24)
    assert len({trial.choice for trial in whole}) == 24
    batch = len(searcher.propose(space, whole[:18]))
    assert searcher.propose(space, whole[:18]) == searcher.propose(space, whole[:18])
    again = search(
        space, searcher, lambda place: Measurement(*map(float, costs[place])), budget=18 + batch, history=whole[:18]
    )
    assert [trial.choice for trial in again[18:]] == list(searcher.propose(space, whole[:18]))


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_search_ends_when_all_is_measured(searcher: Searcher) -> None:
    space, costs = _space()
    history = tuple(Trial(place, Measurement(*map(float, costs[place]))) for place in range(len(space)))
    assert searcher.propose(space, history) == ()


def test_ours_finds_a_smooth_frontier_early() -> None:
    space, costs = _space()
    ours = _run(space, costs, PhysicsSearch(seed=0), 30)
    chance = [_epsilon(costs, _run(space, costs, RandomSearch(seed=seed), 60)) for seed in range(5)]
    assert _epsilon(costs, ours) <= 0.01
    assert _epsilon(costs, ours) < np.median(chance)


def test_a_rough_sweep_is_recognised_as_one() -> None:
    space, smooth = _space()
    rough = smooth * np.exp(0.02 * np.random.default_rng(0).standard_normal(smooth.shape))
    places = np.random.default_rng(1).permutation(len(space))[:40]
    surrogates = [
        PhysicsSearch(seed=0).surrogate(
            space, observed(space, tuple(Trial(int(place), Measurement(*map(float, costs[place]))) for place in places))
        )
        for costs in (smooth, rough)
    ]
    errors = [np.abs(own.logs - np.log(costs)) for own, costs in zip(surrogates, (smooth, rough), strict=True)]
    assert np.median(errors[0]) < 0.005
    assert np.median(surrogates[1].sd) > 2 * np.median(surrogates[0].sd)
    assert np.median(surrogates[1].sd) > 0.01


def test_seeds_differ_and_repeat() -> None:
    space, costs = _space()
    runs = [[trial.choice for trial in _run(space, costs, PhysicsSearch(seed=seed), 8)] for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_stops_when_little_is_expected_to_remain() -> None:
    space, costs = _space()
    history = _run(space, costs, PhysicsSearch(seed=0, enough=0.01), 160)
    assert 5 < len(history) < 160
    remaining = PhysicsSearch(seed=0).remaining(space, history)
    early = PhysicsSearch(seed=0).remaining(space, history[:6])
    assert remaining.epsilon <= 0.01 < early.epsilon
    assert 0 <= remaining.hypervolume_share < early.hypervolume_share < 1
    assert _epsilon(costs, history) <= 0.03


def test_a_doubtful_choice_on_the_frontier_is_repeated() -> None:
    space, costs = _space()
    history = tuple(
        Trial(place, Measurement(*map(float, costs[place]), *map(float, 0.04 * costs[place])))
        for place in range(0, 160, 20)
    )
    proposed = PhysicsSearch(seed=0, batch=4).propose(space, history)
    repeated = [choice for choice in proposed if choice in {trial.choice for trial in history}]
    assert len(repeated) == 1
    assert len(proposed) == 4


def test_repeats_are_averaged_and_strangers_refused() -> None:
    space, _ = _space()
    twice = (Trial(5, Measurement(1.0, 4.0, 0.1, 0.4)), Trial(5, Measurement(1.0, 1.0, 0.1, 0.1)))
    seen = observed(space, twice)
    assert seen.values == pytest.approx(np.array([[1.0, 2.0]]))
    assert seen.repeats.tolist() == [2]
    assert seen.variance[0, 0] == pytest.approx((0.1 / 1.96) ** 2 / 2)
    with pytest.raises(InputError, match="is no choice here"):
        observed(space, (Trial(999, Measurement(1.0, 1.0)),))


def test_kareus_encodes_launches_as_categories_and_keeps_its_budget() -> None:
    space, costs = _space()
    assert encoded(space).shape == (len(space), 2 + len(LAUNCHES))
    if installed():
        history = _run(space, costs, KareusSearch(seed=0, initial=12, batch=6, batches=2), 160)
        assert len(history) == 24


@pytest.mark.parametrize("features", [np.ones((2, 2)), np.array([[np.nan], [1.0]])])
def test_spaces_are_checked(features: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite feature"):
        PartitionSpace(("a", "b"), features, ("comm_sms",))
