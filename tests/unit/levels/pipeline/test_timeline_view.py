from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from view_samples import plain, styles
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.tariff import Price, Tariff
from wattune.levels.pipeline.planned import PlannedPipeline, Source
from wattune.levels.pipeline.view.page import draw_timelines, pipeline_page, plans_chart, standalone_timelines
from wattune.levels.pipeline.view.timeline import Timelines, text_timelines, timeline
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph
from wattune.plans.shape import PipelineShape
from wattune.render.page import Page, render_page
from wattune.render.palette import STOPS, ink_on, scale_colour
from wattune.render.quantity import number

GRAPH = WorkGraph(
    (
        Operation("forward 0.0", "0.forward", 0),
        Operation("forward 1.0", "1.forward", 1),
        Operation("backward 1.0", "1.backward", 1),
        Operation("backward 0.0", "0.backward", 0),
    ),
    ((), (0,), (1,), (0, 2)),
)


def trial(clocks, durations_s, energy_j, *, time_s=None, bound_j=0.0, graph=GRAPH):
    choices = tuple(StageChoice(Setting(mhz)) for mhz in clocks)
    plan = Plan(graph, choices, durations_s, (1.0,) * len(choices), bound_j)
    return Trial(plan, Measurement(time_s or sum(durations_s), energy_j))


def line(title, clocks, durations_s, energy_j):
    return timeline(title, trial(clocks, durations_s, energy_j))


@pytest.fixture
def view():
    default = line("default", (1400,) * 4, (1.0, 1.0, 2.0, 2.0), 100.0)
    plan = line("plan 3", (1400, 1400, 700, 1050), (1.0, 1.0, 3.0, 2.5), 80.0)
    return Timelines((default, plan))


def test_bars_start_when_what_they_wait_for_has_ended(view):
    first, second = view.lines[0].ranks
    assert [(bar.name, bar.start_s, bar.end_s) for bar in first] == [
        ("forward 0.0", 0.0, 1.0),
        ("backward 0.0", 4.0, 6.0),
    ]
    assert [(bar.start_s, bar.end_s) for bar in second] == [(1.0, 2.0), (2.0, 4.0)]


def test_a_bar_has_a_label_and_a_tooltip(view):
    bar = view.lines[1].ranks[1][1]
    assert (bar.instruction, bar.label) == ("backward", "0")
    assert bar.tip == "backward 1.0: 700 MHz, 3.00 s, 1.00 J, from 2.000 s"
    assert replace(bar, name="optimizer").label == "optimizer"


def test_headings_compare_with_the_first(view):
    assert view.heading(view.lines[0]) == "default: 6 s, 100 J, busy 50 %"
    assert view.heading(view.lines[1]) == "plan 3: 7.5 s, 80.0 J (time +25.0 %, energy −20.0 %), busy 50 %"


def test_clocks_share_one_scale(view):
    assert view.clocks_mhz == (700, 1050, 1400)
    assert [view.share(Setting(mhz)) for mhz in (700, 1050, 1400, None)] == [0.0, 0.5, 1.0, 1.0]
    alone = Timelines((view.lines[0],))
    assert alone.share(Setting(1400)) == 1.0


def test_colours_rise_in_lightness_from_cool_to_warm():
    def lightness(colour):
        red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    colours = [scale_colour(step / 20) for step in range(21)]
    rising = [lightness(colour) for colour in colours]
    assert all(after > before for before, after in pairwise(rising))
    assert scale_colour(-1) == scale_colour(0) == "#{:02x}{:02x}{:02x}".format(*STOPS[0])
    assert scale_colour(2) == scale_colour(1)
    assert ink_on(0.0) != ink_on(1.0)


def elements(svg, kind):
    return [found for found in ElementTree.fromstring(svg).iter() if found.get("class") == kind]


def test_the_drawing_has_a_bar_per_operation_and_a_lane_per_rank(view):
    svg = draw_timelines(view)
    bars = elements(svg, "bar")
    assert len(bars) == 8
    assert {bar.get("fill") for bar in bars} == {scale_colour(share) for share in (0.0, 0.5, 1.0)}
    tips = [title.text for bar in bars for title in bar]
    assert "backward 1.0: 700 MHz, 3.00 s, 1.00 J, from 2.000 s" in tips
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)


def test_the_file_stands_alone(view):
    svg = standalone_timelines(replace(view, simulated=True))
    root = ElementTree.fromstring(svg)
    assert root.get("width") == "1080"
    assert "--paper" in svg
    assert "(simulated)" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_bars_too_narrow_to_be_seen_are_drawn_as_one():
    count = 4000
    chain = WorkGraph.chain(tuple(Operation(f"forward 0.{n}", "0.forward") for n in range(count)))
    long = timeline("long", trial((1400,) * count, (0.001,) * count, 10.0, time_s=4.0, graph=chain))
    bars = elements(draw_timelines(Timelines((long,))), "bar")
    assert 500 < len(bars) < 1400
    assert "instructions, forward 0.0 to forward 0." in bars[0][0].text


def test_names_are_escaped(view):
    bad = replace(view.lines[0], title="<script>&")
    assert "<script>" not in draw_timelines(Timelines((bad,)))


def test_a_plain_terminal_shows_clocks_as_heights_and_waiting_as_dots(view):
    text = plain(text_timelines(view, width=67, coloured=False))
    rows = text.splitlines()
    assert rows[0].startswith("default: 6 s")
    assert rows[1] == "rank 0 " + "█" * 8 + "·" * 24 + "█" * 16
    assert rows[2] == "rank 1 " + "·" * 8 + "█" * 24 + "·" * 16
    assert rows[5] == "rank 0 " + "█" * 8 + "·" * 32 + "▅" * 20
    assert rows[6] == "rank 1 " + "·" * 8 + "█" * 8 + "▁" * 24 + "·" * 20
    assert rows[7].split() == ["0", "2", "4", "6", "s"]
    assert rows[8] == "700 ▁▂▃▄▅▆▇█ 1400 MHz   ·· waits"


def test_a_colour_terminal_shows_the_microbatches(view):
    lines = text_timelines(replace(view, simulated=True), width=67, coloured=True)
    highest = f"{ink_on(1.0)} on {scale_colour(1.0)}"
    assert styles(lines[1])[1:] == ["dim", f"{highest} italic", "dim", f"{highest} bold"]
    assert lines[1].plain.split()[-1] == "0"
    assert all(line.cell_len <= 67 for line in lines[:-1])
    assert "(simulated)" in plain(lines)


@pytest.mark.parametrize("width", [1, 20, 300])
def test_any_width_works(view, width):
    assert (
        len(text_timelines(view, width=width, coloured=False))
        == len(text_timelines(view, width=width, coloured=True))
        == 9
    )


def test_a_pipeline_at_driver_default_needs_no_scale(view):
    bars = tuple(tuple(replace(bar, setting=DRIVER_DEFAULT) for bar in rank) for rank in view.lines[0].ranks)
    plainly = Timelines((replace(view.lines[0], ranks=bars),))
    assert "default clock" in plain(text_timelines(plainly, width=60, coloured=False))
    assert "MHz</text>" not in draw_timelines(plainly)


def planned(*, simulated=False):
    clocks, durations_s = (1400, 1400, 700, 1050), (1.0, 1.0, 3.0, 2.5)
    return PlannedPipeline(
        PipelineShape("1f1b", 2, 1),
        60.0,
        Source("<p>.csv", "", simulated),
        trial((1400,) * 4, (1.0, 1.0, 2.0, 2.0), 100.0),
        Frontier(
            tuple(
                trial(clocks, durations_s, 90.0 - 5 * step, time_s=6.0 + step, bound_j=89.0 - 5 * step)
                for step in range(4)
            )
        ),
        "a test",
        chosen=2,
    )


def test_the_page_shows_timelines_frontier_and_every_plan():
    page = pipeline_page(planned(), made="today", tariff=Tariff())
    assert isinstance(page, Page)
    html = render_page(page)
    for words in ("timeline", "Every plan", "chosen", "&lt;p&gt;.csv", "no plan can lie below", "−20.0"):
        assert words in html
    assert html.count('<tr class="strong">') == 1
    assert "simulated" not in html.partition("</style>")[2]
    assert "simulated" in render_page(pipeline_page(planned(simulated=True), made="today", tariff=Tariff()))


def test_the_chart_has_the_bounds_below_the_plans():
    chart = plans_chart(planned())
    plans, bounds, default = chart.series
    assert all(low.y < high.y for low, high in zip(bounds.points, plans.points, strict=True))
    assert default.points[0].y == 100.0


def test_the_saving_of_a_plan_is_shown_in_kwh_and_money_per_gpu() -> None:
    found = planned()
    default, plan = found.default.cost, found.plan.cost
    kwh = (1 - plan.energy_j / default.energy_j) * default.power_w / found.shape.ranks
    figure = pipeline_page(found, made="today", tariff=Tariff(Price(0.5, "EUR"))).sections[0].figures[-1]
    assert figure.value == f"{number(kwh)} kWh, {number(0.5 * kwh)} EUR"
    assert figure.label == "saved per 1,000 GPU-hours"
