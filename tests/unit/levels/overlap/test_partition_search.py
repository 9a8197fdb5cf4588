"""Searchers of a partition: seeded, resumable from a history, with a budget."""

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.kareus_search import KareusSearch, encoded
from wattune.levels.overlap.search import (
    PartitionSpace,
    RandomSearch,
    Searcher,
    observed,
    search,
)
from wattune.response.boosted_trees import installed

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


SEARCHERS = [
    RandomSearch(seed=3),
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


def test_seeds_differ_and_repeat() -> None:
    space, costs = _space()
    runs = [[trial.choice for trial in _run(space, costs, RandomSearch(seed=seed), 8)] for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_repeats_are_averaged_and_strangers_refused() -> None:
    space, _ = _space()
    twice = (Trial(5, Measurement(1.0, 4.0, 0.1, 0.4)), Trial(5, Measurement(1.0, 1.0, 0.1, 0.1)))
    seen = observed(space, twice)
    assert seen.values == pytest.approx(np.array([[1.0, 2.0]]))
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
