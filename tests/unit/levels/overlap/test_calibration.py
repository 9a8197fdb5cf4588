"""Whole passes beside the sum of their partitions: which are measured, which factors follow, and described loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.calibration import calibrations, passes_to_measure, whole_options
from wattune.levels.overlap.described_work import DescribedWork
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import SearchedPartition
from wattune.levels.overlap.simulated_stages import JOIN_S, partition_cost_table
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import PassChoice, PassTrial
from wattune.physics.catalog import load_model
from wattune.plans.stage_profile import PLAIN

GPU = load_model("a100-40gb")
RUNS = {"repeats": 1, "cooling_s": 0.0, "window_s": 1.0, "start_c": None, "end_c": None, "simulated": True}


def model(**changed):
    options = {"microbatch_size": 8, "sequence": 4096, **changed}
    return partition_model("llama3.2-3b", ParallelLayout(tp=8, pp=2), **options)


def searched(clocks=(1110, 1410), launches=("norm_0", "none")):
    """Return all partitions, each measured by itself at some settings."""
    found = []
    for own in model().partitions:
        settings = [PartitionChoice(clock, 6, launch) for clock in clocks for launch in launches]
        cost = partition_cost_table(own, GPU, settings)
        pairs = zip(settings, cost.time_s.tolist(), cost.energy_j.tolist(), strict=True)
        found.append(SearchedPartition(own, tuple(Trial(at, Measurement(t, e)) for at, t, e in pairs)))
    return found


def table_cost(tables, clock):
    column = tables[0].sm_mhz.index(clock)
    return Measurement(float(tables[0].iteration_s[column]), float(tables[0].iteration_j[column]))


def described_pass(choice, layers=3):
    work = DescribedWork(GPU, model(), model(nanobatches=1))
    cost = table_cost(work.run_pass(choice, layers), choice.sm_mhz)
    return PassTrial(choice=choice, layers=layers, recompute=True, cost=cost, **RUNS)


def test_passes_are_those_of_the_fastest_and_cheapest_settings_and_whole_microbatches():
    found = passes_to_measure(searched(clocks=(900, 1110, 1200)), GPU)
    split = [own for own in found if own.settings]
    whole = [own for own in found if not own.settings]
    assert [(own.instruction, own.sm_mhz) for own in split] == [
        (instruction, clock) for instruction in ("forward", "backward") for clock in (1200, 900)
    ]
    assert set(split[0].settings) == {"fwd_attn", "fwd_mlp"}
    assert set(split[2].settings) == {"fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"}
    assert [own.sm_mhz for own in whole] == 2 * [900, 1110, 1200, 1410]


def test_whole_microbatches_are_measured_at_a_few_clocks_only():
    found = passes_to_measure(searched(clocks=range(900, 1411, 30)), GPU)
    clocks = [own.sm_mhz for own in found if not own.settings and own.instruction == "forward"]
    assert (len(clocks), clocks[0], clocks[-1]) == (5, 900, 1410)


def test_the_factor_of_simulated_passes_is_that_of_their_joins():
    own = searched()
    passes = [described_pass(choice) for choice in passes_to_measure(own, GPU)]
    found = calibrations(model(), own, passes)
    fastest = next(one.choice for one in passes if one.choice.instruction == "forward" and one.choice.settings)
    alone_s = sum(
        2 * trial.cost.time_s
        for part in own
        for trial in part.history
        if trial.choice == fastest.choices.get(part.partition.name)
    )
    joins = sum(not choice.sequential for choice in fastest.choices.values())
    assert joins
    first = calibrations(model(), own, [one for one in passes if one.choice == fastest])["forward"]
    assert first.factor.time == pytest.approx(1 + 2 * joins * JOIN_S / alone_s)
    assert found["forward"].passes == len({one.choice.key for one in passes if one.choice.settings}) / 2
    assert 1 <= found["backward"].factor.energy < found["backward"].factor.time < 1.2


def test_only_passes_with_known_partitions_and_the_same_recomputation_count():
    own = searched()
    split = [described_pass(choice) for choice in passes_to_measure(own, GPU) if choice.settings]
    assert calibrations(model(), own[:2], split).keys() == {"forward"}
    assert calibrations(model(recompute=False), own, split).keys() == {"forward"}
    assert calibrations(model(), own, []) == {}


def test_described_partitions_cost_what_the_simulation_computes():
    work = DescribedWork(GPU, model(), model(nanobatches=1))
    choice = PartitionChoice(1200, 6, "linear_0")
    wanted = partition_cost_table(model().partition("fwd_mlp"), GPU, [choice])
    found = table_cost(work.partition("fwd_mlp", choice), 1200)
    assert (found.time_s, found.energy_j) == pytest.approx((wanted.time_s[0], wanted.energy_j[0]))


def test_measured_whole_microbatches_are_options_of_all_stages_in_proportion_to_their_layers():
    passes = [described_pass(PassChoice(name, clock, {})) for name in ("forward", "backward") for clock in (1110, 1410)]
    found = whole_options(model(), GPU, passes)
    assert set(found) == {"0.forward", "0.backward", "1.forward", "1.backward"}
    assert all(trial.choice.knobs == (PLAIN,) for trials in found.values() for trial in trials)
    layers = passes[1].cost.time_s / 3 * model().stage_layers[0]
    assert layers < found["0.forward"][1].cost.time_s < 1.1 * layers
    assert whole_options(model(), GPU, passes[:2]) == {}
    assert whole_options(model(), GPU, [replace(own, recompute=False) for own in passes]) == {}
