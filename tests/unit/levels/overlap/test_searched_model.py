"""Searched partitions composed to a stage profile, on a simulated GPU."""

import pytest

from wattune.core.errors import InputError
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import (
    completed,
    search_model,
    searched_profile,
    searcher_named,
    simulated_measure,
    space_of,
)
from wattune.levels.overlap.simulated_stages import sequentially, stage_profile_of
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.physics.catalog import load_model

GPU = load_model("a100-40gb")
LAYOUT = ParallelLayout(tp=8, pp=2)


def model(nanobatches=2):
    return partition_model("llama3.2-3b", LAYOUT, microbatch_size=8, sequence=4096, nanobatches=nanobatches)


@pytest.fixture(scope="module")
def searched():
    return search_model(model(), GPU, simulated_measure(GPU), search_name="random", budget=60, seed=1)


def test_every_partition_is_measured_at_the_same_clocks(searched):
    clocks = [{trial.choice.sm_mhz for trial in own.history} for own in searched]
    assert all(own == clocks[0] for own in clocks)


def test_clocks_that_a_partition_lacks_are_measured(searched):
    short = [searched[0], *searched[1:]]
    first = short[0]
    missing = max(trial.choice.sm_mhz for trial in first.history)
    kept = tuple(trial for trial in first.history if trial.choice.sm_mhz != missing)
    short[0] = type(first)(first.partition, kept)
    again = completed(short, simulated_measure(GPU))
    assert missing in {trial.choice.sm_mhz for trial in again[0].history}


def test_plans_are_never_slower_than_plain_execution(searched):
    plain = model(nanobatches=1)
    profile = searched_profile(model(), GPU, searched, plain=plain)
    base = stage_profile_of(plain, GPU, sequentially())
    graph = profile.shape("1f1b", 4).graph
    ours = plan_pipeline(graph, profile.options, blocking_power_w=85.0, points=4)
    theirs = plan_pipeline(graph, base.options, blocking_power_w=85.0, points=4)
    assert ours.fastest.cost.time_s <= theirs.fastest.cost.time_s * (1 + 1e-9)


def test_choices_of_an_instruction_name_its_partitions(searched):
    profile = searched_profile(model(), GPU, searched)
    names = [name for name, _ in profile.options["0.backward"][0].choice.knobs]
    assert names == ["fwd_attn", "fwd_mlp", "bwd_attn", "bwd_mlp"]


def test_a_search_goes_on_from_known_trials(searched):
    known = {own.partition.name: own.history for own in searched}
    calls = []
    measure = simulated_measure(GPU)

    def counted(partition, choice):
        calls.append(choice)
        return measure(partition, choice)

    search_model(model(), GPU, counted, search_name="random", budget=60, seed=1, known=known)
    assert calls == []


def test_there_is_no_other_search():
    with pytest.raises(InputError, match="magic"):
        searcher_named("magic", "fwd_mlp", seed=0)


def test_the_space_has_sequential_execution():
    space = space_of(model().partition("fwd_attn"), GPU)
    assert {-1.0} <= set(space.features[:, 0])
