"""Whatever is measured, the search proposes candidates only, ends, and holds what was measured."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline, EnergyDelay, LeastCost, LeastEnergy, PowerBudget
from wattune.core.setting import Setting
from wattune.response.setting_search import SettingSearch, SimilarProfile

OBJECTIVES = st.one_of(
    st.floats(0, 1).map(lambda eta: LeastCost(eta, 400.0)),
    st.floats(0, 0.5).map(LeastEnergy),
    st.floats(0.01, 100).map(Deadline),
    st.floats(0, 3).map(EnergyDelay),
    st.floats(1, 500).map(PowerBudget),
)
LIMITS = st.lists(st.integers(50, 400), min_size=1, max_size=9, unique=True).map(
    lambda watts: tuple(Setting(power_limit_w=float(one)) for one in watts)
)
CLOCKS = st.lists(st.integers(200, 2000), min_size=1, max_size=9, unique=True).map(
    lambda mhz: tuple(Setting(sm_mhz=one) for one in mhz)
)
COSTS = st.tuples(st.floats(1e-4, 1e5), st.floats(1e-3, 1e7))


@settings(max_examples=40, deadline=None)
@given(objective=OBJECTIVES, candidates=st.one_of(LIMITS, CLOCKS), seed=st.integers(0, 2**32 - 1), wild=st.booleans())
def test_a_search_ends_and_chooses_what_it_measured(objective, candidates, seed, wild):
    rng = np.random.default_rng(seed)
    search = SettingSearch(objective=objective)
    history = ()
    while (wanted := search.propose(candidates, history)) is not None and len(history) < 60:
        assert wanted in candidates
        time_s, power_w = np.exp(rng.normal(0, 2 if wild else 0.02, 2)) * (1.0, 150.0)
        history = (*history, Trial(wanted, Measurement(float(time_s), float(time_s * power_w))))
    assert history
    chosen = search.best(candidates, history)
    assert chosen in {trial.choice for trial in history}
    assert {trial.choice for trial in search.settled(candidates, history)} == {trial.choice for trial in history}
    if not wild:
        assert len(history) < 60


@settings(max_examples=40, deadline=None)
@given(objective=OBJECTIVES, candidates=LIMITS, costs=st.lists(COSTS, min_size=1, max_size=9))
def test_the_same_history_in_another_order_gives_the_same_answer(objective, candidates, costs):
    history = tuple(
        Trial(setting, Measurement(time_s, energy_j))
        for setting, (time_s, energy_j) in zip(candidates, costs, strict=False)
    )
    search = SettingSearch(objective=objective, similar=(SimilarProfile(trials=history, octaves=2.0),))
    assert search.best(candidates, history) == search.best(candidates[::-1], history[::-1])
    for trial in search.curve(candidates, history):
        assert trial.cost.time_s > 0
        assert trial.cost.energy_j > 0
