from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from layer_samples import NAMES, SWITCHING, sample_comparison, sample_costs
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.tariff import Tariff
from wattune.core.workload import Pipe
from wattune.levels.layer.comparison import LATENCIES_S, LayerComparison, Played, StrategyPlans, segments_of
from wattune.levels.layer.costs import STEP, simulated_costs
from wattune.levels.layer.planner import IDEAL, SEGMENTS, SINGLE, STRATEGIES
from wattune.levels.layer.source import LayerSource
from wattune.levels.layer.switching import FREE, switches_of
from wattune.levels.layer.view.charts import clock_charts, reach_of, strategies_chart
from wattune.levels.layer.view.page import MEANINGS, layers_page, roofline_page
from wattune.levels.layer.view.result import PlannedLayers, latency_words, verdict_sentence
from wattune.levels.layer.view.roofline import LayersAt, limit_words, lower_pair, roofline_charts
from wattune.physics.catalog import load_model
from wattune.render.chart import Scale, default_series
from wattune.render.page import render_page
from wattune.workloads.catalog import make_layers


def planned(found: LayerComparison, *, roofline: bool = False) -> PlannedLayers:
    """Return what was planned for these layers, as if they were those of a network that has a roofline."""
    model, workload = load_model("a4000"), make_layers("vgg16")
    source = LayerSource(
        model=model,
        costs=simulated_costs(model, workload) if roofline else found.costs,
        scope=found.scope,
        workload=workload if roofline else None,
        batch_size=None,
        precision=None,
        origin="as the table says",
    )
    return PlannedLayers(
        found=found, source=source, strategy=SEGMENTS, switching_origin="from the catalogue", tariff=Tariff()
    )


def judged(
    segments: float, *, single: float = 0.9, below_s: float | None = 0.01, simulated: bool = True, switches: bool = True
) -> LayerComparison:
    """Return a comparison in which plans take these shares of the default's energy."""
    costs = sample_costs(simulated=simulated)
    default = costs.default

    def trial(share: float, *columns: int) -> Trial:
        settings = np.resize(np.array(columns), len(costs.names))
        plan = costs.plan(settings, np.zeros(len(costs.names))).choice
        return Trial(plan, Measurement(1.04 * default.time_s, share * default.energy_j))

    trials = {
        SINGLE: trial(single, 1),
        SEGMENTS: trial(segments, *((1, 2) if switches else (1,))),
        IDEAL: trial(0.5, 1, 2),
    }
    return LayerComparison(
        costs=costs,
        scope=STEP,
        switching=SWITCHING.at(0.02),
        max_slowdown=0.05,
        strategies=tuple(StrategyPlans(name, Frontier((own,)), Played(own, own.cost)) for name, own in trials.items()),
        pays_below_s=below_s,
    )


# the sentence


def test_the_verdict_is_one_sentence_that_says_that_switching_pays():
    assert verdict_sentence(judged(0.8, below_s=0.03)) == (
        "Changing clocks between layers pays on NVIDIA Sample (simulated) at a switching latency of 20 ms: within a "
        "slowdown of 5 %, the energy of a training step of net:8 changes by −20.0 % against default clocks and by "
        "−11.1 % against the best single setting (1350 MHz); it pays up to a latency of about 30 ms."
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            judged(0.9, switches=False),
            "by −10.0 % against default clocks, as with one setting for all layers (135",
        ),
        (judged(0.9), "does not pay on NVIDIA Sample"),
        (judged(0.9), "it would begin to pay below about 10 ms."),
        (judged(0.895), "and by only −0.6 % against the best single setting"),
        (judged(0.95), " and by +5.6 % against the best single setting (1350 MHz); "),
        (judged(0.9, below_s=None), "it would pay at no latency of 0.1 ms or more."),
        (judged(0.9, below_s=0.03), "longer segments would pay, as at a latency of 30 ms."),
        (judged(0.8, below_s=LATENCIES_S[-1]), "it pays up to a latency of at least 100 ms."),
        (judged(0.8, below_s=None), "it pays up to a latency of about 20 ms."),
        (judged(1.0, single=1.0, switches=False), "changes by 0.0 % against default clocks"),
        (judged(1.02, single=1.0), "changes by +2.0 % against default clocks"),
        (judged(0.8, simulated=False), "pays on NVIDIA Sample at"),
    ],
)
def test_the_verdict_has_words_for_each_outcome(found, words):
    sentence = verdict_sentence(found)
    assert words in sentence
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")


@pytest.mark.parametrize("share", [1.0, 1 + 1e-12, 1 - 1e-12, 1 + 1e-4, 1 - 1e-4])
def test_no_zero_has_a_sign(share):
    found = judged(share, single=1.0)
    texts = (verdict_sentence(found), render_page(layers_page(planned(found), made="today")))
    assert not any(zero in text for text in texts for zero in ("-0.0 %", "−0.0 %", "+0.0 %", "-0.0\u00a0%"))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ms"), (0.0003, "0.3 ms"), (0.08, "80 ms"), (0.5, "500 ms"), (1.0, "1 s"), (2.5, "2.5 s")],
)
def test_a_latency_is_in_its_usual_unit(seconds, words):
    assert latency_words(seconds) == words


def test_every_strategy_has_a_meaning():
    assert tuple(MEANINGS) == STRATEGIES


# the charts


def test_the_frontiers_are_drawn_against_the_default():
    found = sample_comparison()
    chart = strategies_chart(found)
    names = [series.name for series in chart.series]
    assert names == ["single", "exhaustive", "segments", "ideal (upper bound)", "default"]
    assert [series.dashed for series in chart.series] == [False, False, False, True, False]
    default = chart.series[-1]
    assert (default.points[0].x, default.points[0].y) == (0.0, 0.0)
    assert default == default_series("default", *default.points)
    assert default.tone not in [series.tone for series in chart.series[:-1]]
    assert chart.subtitle.startswith("simulated; ")
    assert (chart.bands[0].start, chart.bands[0].end, chart.bands[0].text) == (0.0, 5.0, "up to 5 % slower")
    assert [note.text.partition(":")[0] for note in chart.notes] == [
        "default",
        "best single setting",
        "segments",
        "upper bound",
    ]
    assert all(point.x <= 100 * reach_of(found) for series in chart.series for point in series.points)
    assert all("J" in point.tip and "time" in point.tip for series in chart.series for point in series.points)


def test_a_plan_without_changes_shares_its_note_with_the_single_setting():
    chart = strategies_chart(sample_comparison(switching=SWITCHING.at(0.5), simulated=False))
    assert "segments and best single setting: 1350 MHz" in [note.text for note in chart.notes]
    assert "simulated" not in chart.subtitle


def test_a_strategy_that_is_far_too_slow_is_named_and_not_drawn():
    found = sample_comparison(switching=SWITCHING.at(0.5))
    slow = replace(found, strategies=tuple(replace_frontier(plans) for plans in found.strategies))
    chart = strategies_chart(slow)
    assert "exhaustive: at least 40 times the time" in chart.subtitle
    assert "exhaustive" not in [series.name for series in chart.series]


def replace_frontier(plans):
    if plans.name != "exhaustive":
        return plans
    fastest = plans.frontier.fastest
    time_s = 40 * sample_costs().default.time_s
    slow = Trial(fastest.choice, Measurement(time_s, fastest.cost.energy_j))
    return replace(plans, within=None, frontier=replace(plans.frontier, trials=(slow,)))


def test_the_clocks_over_a_step_are_those_of_the_plan():
    found = sample_comparison()
    (chart,) = clock_charts(found, SEGMENTS)
    assert [series.name for series in chart.series] == ["ideal (upper bound)", "segments"]
    assert [band.text for band in chart.bands] == ["forward", "backward", "optimizer"]
    plan = found.of(SEGMENTS).shown
    own = chart.series[1].points
    assert own[-1].x == pytest.approx(1000 * plan.cost.time_s)
    assert {point.y for point in own} <= {1500, 1350, 1200, 1050, 900}
    assert f"{switches_of(plan.choice)} changes" in chart.subtitle


def test_segments_cover_all_layers_and_the_whole_time():
    plan = sample_comparison().of(SEGMENTS).shown
    segments = segments_of(plan.choice)
    assert sum(segment.layers for segment in segments) == len(NAMES)
    assert (segments[0].first, segments[-1].last) == (NAMES[0], NAMES[-1])
    assert segments[-1].end_s == pytest.approx(plan.cost.time_s)
    assert all(one.end_s == other.start_s for one, other in pairwise(segments))


# the rooflines


@pytest.fixture(scope="module")
def places() -> tuple[LayersAt, ...]:
    model, workload = load_model("a4000"), make_layers("vgg16", batch_size=64, pipe=Pipe.TF32)
    clocks = simulated_costs(model, workload).clocks_mhz
    return tuple(LayersAt.of(model, workload, pair) for pair in (clocks[0], lower_pair(clocks)))


def test_two_rooflines_have_the_same_axes_and_their_own_ridge(places):
    charts = roofline_charts(places, simulated=True)
    assert len(charts) == 2
    assert charts[0].x == charts[1].x
    assert charts[0].y == charts[1].y
    assert charts[0].x.scale is charts[0].y.scale is Scale.LOG
    assert charts[0].rules[0].at > charts[1].rules[0].at
    assert [series.name for series in charts[0].series] == [
        "roof, FP32",
        "roof, TF32",
        "forward",
        "backward",
        "optimizer",
    ]


def test_no_layer_lies_above_its_roof_and_each_has_a_tip(places):
    for place, chart in zip(places, roofline_charts(places, simulated=True), strict=True):
        for series in chart.series[2:]:
            for point in series.points:
                assert point.y * 1e12 <= point.x * place.roofline.bytes_per_s * 1.001
                assert all(word in point.tip for word in ("FLOP", "B\n", "FLOP/byte", "limited by"))


def test_the_shares_of_the_time_are_in_words(places):
    assert "% of the time is limited by compute" in limit_words(places[0])
    assert limit_words(places[0]).startswith(f"at {places[0].title}, ")


def test_a_lower_pair_lowers_only_what_can_be_lowered():
    assert lower_pair([(1000, 7000), (1000, 5000), (500, 7000), (510, 5000), (200, 405)]) == (510, 5000)
    assert lower_pair([(1000, 7000), (700, 7000), (480, 7000)]) == (480, 7000)
    assert lower_pair([(1000, 7000)]) == (1000, 7000)


def test_layers_of_one_pass_alone(places):
    model, workload = load_model("a4000"), make_layers("vgg16")
    only = LayersAt.of(model, workload, (1500, 7001), scope="forward")
    assert {layer.phase.name.partition("/")[0] for layer in only.layers} == {"forward"}
    assert len(only.layers) < len(places[0].layers)


# the pages


class Words(HTMLParser):
    """The text of a page and the names of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)


def test_the_page_begins_with_the_verdict_and_shows_all():
    found = sample_comparison()
    page = layers_page(planned(found, roofline=True), made="Made today.")
    assert page.lead == verdict_sentence(found)
    assert page.simulated
    text = render_page(page)
    read = Words(text)
    words = " ".join(read.words).replace("\u00a0", " ")
    assert read.tags.count("table") == 3
    for expected in (
        "simulated",
        "upper bound",
        "Core clock over a training step",
        "played: Δ time",
        "kWh",
        "saved per 1,000 GPU-hours",
        "How it was",
    ):
        assert expected in words
    assert "The 15 of" in words
    assert "from the catalogue" in words


def test_the_page_of_measured_layers_is_not_simulated_and_has_no_roofline():
    found = sample_comparison(simulated=False)
    page = layers_page(planned(found), made="today")
    assert not page.simulated
    text = render_page(page)
    assert "simulated" not in text
    assert "FLOP/byte" not in " ".join(Words(text).words)


def test_the_page_of_rooflines_lists_every_layer(places):
    text = render_page(roofline_page(places, workload="vgg16:64", gpu="NVIDIA RTX A4000", made="today"))
    assert text.count("<tr>") == len(places[0].layers) + 1
    assert "(simulated)" in text


def test_free_switching_pays_at_no_cost():
    found = sample_comparison(switching=FREE)
    assert found.pays
    assert "at a switching latency of 0 ms" in verdict_sentence(found)
