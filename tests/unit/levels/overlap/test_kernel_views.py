"""Streams of partitions, options of plans, the comparison with Megatron, and profiles as CSV."""

from __future__ import annotations

import pytest

from wattune.core.tariff import Tariff
from wattune.levels.overlap.baselines import MegatronComparison, gpu_hours, kareus_trials, megatron_profile
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import search_model, searched_profile, simulated_measure
from wattune.levels.overlap.simulated_stages import partition_cost_table
from wattune.levels.overlap.space import PartitionChoice, choices
from wattune.levels.overlap.view.kernel_report import KernelReport, SearchedKernels
from wattune.levels.overlap.view.partitions_page import clocks_chart, kernels_page, partition_chart
from wattune.levels.overlap.view.stream_timeline import draw_streams, partition_streams, text_streams
from wattune.levels.overlap.view.used_settings import mean_clocks_mhz, used_choices, used_options
from wattune.levels.pipeline.planned import Source, plan_profile
from wattune.physics.catalog import load_model
from wattune.plans.stage_profile import parse_stage_profile, stage_profile_text
from wattune.render.page import render_page

GPU = load_model("a100-40gb")
TP, CP = ParallelLayout(tp=8, pp=2), ParallelLayout(cp=2, tp=4, pp=2)


def model_of(layout, nanobatches=2):
    return partition_model("llama3.2-3b", layout, microbatch_size=8, sequence=4096, nanobatches=nanobatches)


def plan(profile):
    shape = profile.shape("1f1b", 4)
    return plan_profile(profile, shape, source=Source("x", "", simulated=True), blocking_power_w=85)


@pytest.fixture(scope="module")
def report():
    model, plain = model_of(TP), model_of(TP, nanobatches=1)
    searched = search_model(model, GPU, simulated_measure(GPU), search_name="random", budget=40)
    ours = plan(searched_profile(model, GPU, searched, plain=plain))
    megatron = plan(megatron_profile(plain, GPU))
    comparison = MegatronComparison(megatron.default, megatron.frontier, ours.frontier)
    return KernelReport("x", ours, SearchedKernels(model, GPU, searched, measured=False), comparison)


@pytest.mark.parametrize("layout", [TP, CP])
def test_streams_end_when_the_partition_does(layout):
    for partition in model_of(layout).partitions:
        for choice in choices(partition, GPU, clocks_mhz=[900, 1410], comm_sms=[3, 18]):
            streams = partition_streams(partition, GPU, choice)
            time_s = partition_cost_table(partition, GPU, [choice]).time_s[0]
            assert streams.end_s == pytest.approx(time_s)
            ends = [bar.end_s for bar in streams.compute]
            assert ends == sorted(ends)
            if not choice.sequential:
                start = next(bar.start_s for bar in streams.compute if bar.label == choice.launch)
                assert streams.collective.start_s == pytest.approx(start)


def test_a_partition_without_a_collective_has_one_stream():
    (partition, *_) = partition_model("llama3.2-3b", ParallelLayout(), microbatch_size=8, sequence=4096).partitions
    streams = partition_streams(partition, GPU, PartitionChoice(1410, 3, "none"))
    assert streams.collective is None
    assert len(text_streams([streams], width=80)) == 2


def test_drawn_streams_name_every_slot_and_fit_the_terminal(report):
    picture = draw_streams(report.streams, simulated=True)
    assert all(f"{bar.label}: " in picture for streams in report.streams for bar in streams.compute)
    assert "(simulated)" in picture
    assert max(len(line.plain) for line in text_streams(report.streams, width=80)) <= 80


def test_options_of_a_plan_count_every_operation(report):
    chosen = report.planned.plan.choice
    used = used_options(chosen)
    assert sum(option.runs for options in used.values() for option in options) == len(chosen.graph.operations)
    settings = {own for options in used.values() for option in options for own in option.partitions.items()}
    names = {own.partition.name for own in report.searched.partitions}
    assert {(name, choice) for name in names for choice in used_choices(chosen, name)} == settings
    clocks = mean_clocks_mhz(report.planned.plan, dict.fromkeys(used, "all"))
    assert 900 <= clocks["all"] <= 1410


def test_charts_show_the_plan_on_the_trials(report):
    for own in report.searched.partitions:
        trials, frontier, chosen = partition_chart(own, report.planned.plan.choice).series
        assert len(trials.points) <= len(own.history)
        assert len(frontier.points) == len(own.frontier)
        assert chosen.points
    assert [line.name for line in clocks_chart(report).series] == [
        f"stage {stage} {name}" for stage in (0, 1) for name in ("backward", "forward")
    ]
    assert "equal time" in render_page(kernels_page(report, made="now", tariff=Tariff()))


def test_plans_are_compared_at_equal_time_and_at_equal_energy(report):
    found = report.comparison
    assert found.equal_time.cost.time_s <= found.perseus.fastest.cost.time_s * 1.001
    assert found.equal_energy.cost.energy_j <= found.perseus.cheapest.cost.energy_j * 1.001
    same = MegatronComparison(found.default, found.perseus, found.perseus)
    assert same.equal_time_energy_percent == pytest.approx(0, abs=0.5)
    assert same.equal_energy_time_percent == pytest.approx(0, abs=0.5)
    worse = MegatronComparison(found.default, found.ours, found.perseus)
    assert worse.equal_time is None or worse.equal_time_energy_percent >= 0


def test_the_budget_of_kareus_is_the_published_one():
    for layout, trials in ((TP, 896), (CP, 1400)):
        names = [partition.name for partition in model_of(layout).partitions]
        assert kareus_trials(names) == trials
    for unknown in (ParallelLayout(tp=8, sequence_parallel=True), ParallelLayout()):
        assert kareus_trials([partition.name for partition in model_of(unknown).partitions]) is None
    assert gpu_hours(896, gpus=8) == pytest.approx(24.9, abs=0.05)


@pytest.mark.parametrize("layout", [TP, CP])
def test_a_profile_is_the_same_after_writing_and_reading(layout):
    model, plain = model_of(layout), model_of(layout, nanobatches=1)
    searched = search_model(model, GPU, simulated_measure(GPU), search_name="random", budget=20)
    profile = searched_profile(model, GPU, searched, plain=plain)
    again = parse_stage_profile(stage_profile_text(profile), file="x")
    assert (dict(again.options), again.stages, again.simulated) == (dict(profile.options), 2, True)
