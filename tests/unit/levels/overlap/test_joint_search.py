"""The joint search of all partitions of a model: its form, its surrogate, what it proposes and what it expects."""

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.joint_plans import composed_plans
from wattune.levels.overlap.joint_search import JointSearch
from wattune.levels.overlap.joint_state import DIRECTIONS, JointState
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import (
    expected_remaining,
    joint_part,
    search_model,
    searched_profile,
    simulated_measure,
)
from wattune.levels.overlap.stream_form import stream_runs, time_values
from wattune.levels.overlap.stream_terms import model_terms
from wattune.physics.catalog import load_model

GPU = load_model("a100-40gb")
MODEL = partition_model("llama3.2-3b", ParallelLayout(tp=8, pp=2), microbatch_size=8, sequence=4096)
MEASURE = simulated_measure(GPU)


def parts(histories=((), (), (), ())):
    return [joint_part(own, GPU, history) for own, history in zip(MODEL.partitions, histories, strict=True)]


def measured(part, choices):
    trials = [Trial(choice, MEASURE(part.partition, choice)) for choice in choices]
    return replace(part, history=(*part.history, *trials))


def stepped(rule, given, steps):
    for _ in range(steps):
        given = [measured(part, own) for part, own in zip(given, rule.propose(given), strict=True)]
    return given


@pytest.fixture(scope="module")
def begun():
    return stepped(JointSearch(seed=0), parts(), 1)


def test_first_settings_are_spread_over_partitions_and_clocks(begun):
    assert [len(part.history) for part in begun] == [3] * 4
    clocks = {trial.choice.sm_mhz for part in begun for trial in part.history}
    assert len(clocks) >= 4


def test_the_form_predicts_all_settings_from_a_few(begun):
    state = JointState.of(begun)
    true = [[(own := MEASURE(p.partition, c)).time_s, own.energy_j] for p in begun for c in p.space.choices]
    off = np.abs(state.logs - np.log(true))
    assert np.median(off) < 0.01
    assert off[state.measured].max() < 1e-9


def test_constants_of_time_explain_what_was_measured(begun):
    terms = model_terms([part.terms for part in begun])
    starts = np.concatenate([[0], terms.ends[:-1]])
    places = np.array(
        [s + part.space.place[t.choice] for s, part in zip(starts, begun, strict=True) for t in part.history]
    )
    logs = np.log([trial.cost.time_s for part in begun for trial in part.history])
    runs = stream_runs(time_values(terms, places, logs), terms)
    assert np.abs(runs.log_time[places] - logs).max() < 0.01


def test_draws_pass_through_what_was_measured_and_spread_elsewhere(begun):
    state = JointState.of(begun)
    draws = state.surrogate.draws(64, np.random.default_rng(0))
    assert np.abs(draws[:, state.measured] - state.logs[state.measured]).max() < 2e-3
    spread = draws.std(axis=0)
    assert spread[~state.measured].mean() > 5 * spread[state.measured].mean()
    process = state.surrogate.time
    again = np.sqrt(process.variance)[~state.measured]
    assert np.corrcoef(again, spread[~state.measured, 0])[0, 1] > 0.8


def test_proposals_follow_from_histories_and_seed(begun):
    rule = JointSearch(seed=0)
    again = parts([part.history for part in begun])
    assert rule.propose(begun) == rule.propose(again)


def test_a_partition_whose_budget_is_spent_is_not_proposed(begun):
    closed = [replace(begun[0], most=3), *begun[1:]]
    for _ in range(4):
        proposed = JointSearch(seed=0).propose(closed)
        assert proposed[0] == ()
        closed = [measured(part, own) for part, own in zip(closed, proposed, strict=True)]


def test_composition_is_that_of_every_combination():
    some = [replace(part, partition=replace(part.partition, backward_per_layer=1)) for part in parts()[:2]]
    random = np.random.default_rng(0)
    costs = [
        np.where(random.random((len(part.space), 1)) < 0.02, random.uniform(1, 2, (len(part.space), 2)), np.inf)
        for part in some
    ]
    plans = composed_plans(some, DIRECTIONS[0], costs)
    counts = [part.partition.per_layer(DIRECTIONS[0]) for part in some]
    every = [
        counts[0] * costs[0][i] + counts[1] * costs[1][j]
        for i in np.flatnonzero(np.isfinite(costs[0][:, 0]))
        for j in np.flatnonzero(np.isfinite(costs[1][:, 0]))
        if some[0].space.choices[i].sm_mhz == some[1].space.choices[j].sm_mhz
    ]
    for point in every:
        assert (plans.costs <= point + 1e-12).all(axis=1).any()
    for row, cost in zip(plans.places, plans.costs, strict=True):
        assert cost == pytest.approx(sum(n * c[place] for n, c, place in zip(counts, costs, row, strict=True)))


def test_nothing_is_expected_of_plans_that_do_not_exist(begun):
    assert JointSearch(seed=0).remaining(parts()).epsilon == float("inf")


def test_a_small_budget_still_gives_a_clock_that_all_share():
    found = search_model(MODEL, GPU, MEASURE, budget=2)
    assert searched_profile(MODEL, GPU, found).stages == 2


def test_what_is_expected_of_another_search_is_stated_too():
    found = search_model(MODEL, GPU, MEASURE, search_name="random", budget=25)
    left = expected_remaining(found, GPU)
    assert left is not None
    assert left.epsilon > 0.005


def test_partitions_without_collectives_are_searched():
    alone = partition_model("llama3.2-3b", ParallelLayout(), microbatch_size=2, sequence=512)
    found = search_model(alone, GPU, simulated_measure(GPU))
    assert all(len(own.history) >= 3 for own in found)


def test_noise_is_averaged_out():
    (part, *_) = parts()
    choice = part.space.choices[0]
    cost = MEASURE(part.partition, choice)
    noisy = Measurement(cost.time_s * 1.02, cost.energy_j, time_error_s=0.04 * cost.time_s)
    state = JointState.of([replace(part, history=(Trial(choice, noisy), Trial(choice, cost)))])
    assert state.measured.sum() == 1
    assert np.isfinite(state.surrogate.logs).all()
