from __future__ import annotations

from wattune.core.reading import Reading, Trace
from wattune.render.trace_view import power_points, trace_chart, trace_words

READINGS = (
    Reading(time_s=10.0, power_w=100.0, energy_j=0.0, sm_mhz=1410, power_limit_w=400.0),
    Reading(time_s=11.0, power_w=300.0, energy_j=100.0),
    Reading(time_s=14.0, power_w=None, energy_j=None),
    Reading(time_s=15.0, power_w=200.0, energy_j=1200.0),
)


def test_points_count_from_the_start_and_keep_the_gap() -> None:
    points = power_points(READINGS, start_s=10.0)
    assert [(point.x, point.y) for point in points] == [(0.0, 100.0), (1.0, 300.0), (4.0, None), (5.0, 200.0)]
    assert points[0].tip == "0.00 s, 100 W, 1410 MHz"


def test_each_gpu_has_its_line_and_each_limit_its_rule() -> None:
    traces = (Trace("a", READINGS), Trace("b", READINGS[:1]), Trace("none", ()))
    chart = trace_chart(traces, title="Power")
    assert [series.name for series in chart.series] == ["a", "b", "none"]
    assert len({series.tone for series in chart.series}) == 3
    assert [rule.text for rule in chart.rules] == ["limit 400 W"]


def test_a_trace_in_words() -> None:
    assert trace_words(Trace("a", READINGS)) == "100 W to 300 W in 3 samples over 5.00 s, 240 W by the energy counter"


def test_a_silent_gpu_is_not_said_to_draw_nothing() -> None:
    assert trace_words(Trace("a", (Reading(time_s=0.0), Reading(time_s=2.0)))) == "no power told in 2.00 s"
