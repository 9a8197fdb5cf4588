"""The closing report of a run that was tuned."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from run_views import BASE_S, GPU, PERIOD, PERIOD_S, run_report, run_result, searched
from wattune.control.power_trace import PowerTrace
from wattune.control.state import Event, Progress
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.charts import close_chart, period_marks, plane_chart, power_chart
from wattune.levels.run.view.page import run_file, run_page
from wattune.levels.run.view.settings import setting_rows
from wattune.render.page import render_page
from wattune.render.svg import draw
from wattune.signals.period import Verdict

REAL = replace(GPU, simulated=False)
EMPTY = RunReport(program="train", objective="energy:5%", slowdown_limit=0.05, progress=Progress(REAL), ended=True)


def html(view):
    return run_file(run_result(view), made="made today", suffix=".html").replace("\u00a0", " ")


def test_the_page_has_figures_charts_settings_and_events():
    page = html(run_report(ended=True))
    for words in (
        '<div class="badge">simulated</div>',
        "−15.3 ± 0.6 %",
        "5 % allowed; met, more than 99.9 % sure",
        "Power, and what was set",
        "The last 11 periods",
        "Time and energy per step",
        "95 % interval",
        "up to 5 % slower",
        "802.3 ± 1.6 ms",
        "too slow",
        "The slowdown limit of 5 % was met (more than 99.9 % sure)",
        "Break-even: after 15.2 s.",
        "After 61.0 s: the GPU could not be read: it is busy",
        "Time and energy come from",
        "made today",
    ):
        assert words in page, words
    assert "nan" not in page.lower().replace("nano", "")


def test_a_real_gpu_is_never_called_simulated():
    assert "simulated" not in html(run_report(spec=REAL)).partition("<body>")[2].lower()


def test_external_text_is_escaped():
    view = run_report(program="<script>x</script>", spec=replace(GPU, name="<b>&"), events=(Event(1.0, "<i>text</i>"),))
    page = html(view)
    assert "<script>x" not in page
    assert "<i>text" not in page
    assert "&lt;script&gt;" in page
    assert "<b>&" not in page


def test_a_run_without_measurements_has_a_page():
    page = html(EMPTY)
    assert "Energy saved and time lost are unknown" in page
    assert "Nothing out of the ordinary" in page
    assert "was met is unknown" in page
    assert "0 J" not in page
    assert "0 kWh" not in page
    assert power_chart(EMPTY).bands == ()
    assert close_chart(EMPTY) is None
    assert plane_chart(EMPTY) is None


def test_the_page_says_only_what_was_done():
    tried = html(run_report(ended=True))
    assert "then other settings were tried, and the best was held." in tried
    only = html(run_report(windows=searched()[:1], figures=RunFigures(), ended=True))
    assert "was measured first, and no other setting after it." in only
    assert "the best was held" not in html(EMPTY)
    unseen = replace(PERIOD, verdict=Verdict.NOT_OBSERVABLE, period_s=None, error_s=None, cycles=())
    assert "period" not in html(run_report(period=unseen, ended=True)).partition("How to read it")[2]


def test_the_page_says_how_long_each_setting_was_held_and_calls_none_of_them_too_slow():
    """A setting that takes turns with another may be slower than the limit, which holds for the whole run."""
    *before, last = searched()
    slow = replace(last, setting=Setting(1440), step_time_s=1.062 * BASE_S)
    turns = (last, replace(slow, start_s=90.0), replace(last, start_s=131.0), replace(slow, start_s=172.0))
    text = re.sub("<[^>]+>", " ", html(run_report(windows=(*before, *turns), ended=True)))
    assert "held 82.0 s" in text
    assert "too slow" not in text


def test_the_power_of_a_window_without_length_is_unknown():
    empty = replace(searched()[0], cost=Measurement(0.0, 0.0), step_time_s=None, step_time_error_s=None)
    report = run_report(windows=(empty,), figures=RunFigures(), ended=True)
    assert "0 W" not in re.sub("<[^>]+>", " ", html(report)).partition("Settings that were measured")[2]
    assert not any(cell == "0 W" for row in setting_rows(report) for cell in row.cells)


def test_the_title_says_once_that_the_gpu_is_simulated():
    for name in ("A100", "A100 (simulated)"):
        title = re.findall("<title>.*</title>", html(run_report(spec=replace(GPU, name=name))))[0]
        assert title.count("(simulated)") == 1


def test_what_was_not_compared_is_unknown_on_the_page():
    text = run_file(run_result(figures=RunFigures(), ended=True), made="", suffix=".html")
    assert text.count(">unknown<") >= 3
    assert "more than 99.9" not in text


def test_a_program_that_changed_has_a_table_for_each_phase_and_of_many_events_the_latest():
    changed = replace(searched()[-1], changed=True)
    events = tuple(Event(float(place), f"event number {place}") for place in range(130))
    page = html(run_report(windows=(*searched()[:-1], changed, *searched()[:2]), events=events))
    assert "phase 1 of 2" in page
    assert "phase 2 of 2" in page
    assert "30 earlier events are left out." in page
    assert "event number 29" not in page
    assert "event number 129" in page


def test_neighbouring_windows_of_one_kind_are_one_band():
    more = replace(searched()[-1], start_s=85.0)
    bands = power_chart(run_report(windows=(*searched(), more))).bands
    assert [band.text for band in bands] == ["baseline", "1440 MHz", "1620 MHz", "1545 MHz", "1545 MHz"]
    assert bands[-1].end == pytest.approx((85.0 + 40.0) * bands[0].end / (2.0 + 12.0))


def test_periods_begin_at_the_troughs_of_the_power_or_are_counted_from_the_end():
    marks_s = period_marks(run_report(), start_s=1060.0, end_s=1068.0)
    assert [later - earlier for earlier, later in pairwise(marks_s)] == pytest.approx([PERIOD_S] * (len(marks_s) - 1))
    # The power of `trace` is a sine, which is lowest after three quarters of a period.
    assert (marks_s[0] - 1000.0) % PERIOD_S == pytest.approx(0.75 * PERIOD_S, abs=0.05)
    unknown = run_report(trace=PowerTrace())
    assert period_marks(unknown, start_s=0.0, end_s=1.7)[-1] == 1.7
    assert period_marks(unknown, start_s=1.7, end_s=1.7) == ()
    assert period_marks(run_report(period=None), start_s=0.0, end_s=9.0) == ()


def test_charts_are_well_formed():
    for chart in (power_chart(run_report()), close_chart(run_report()), plane_chart(run_report()), power_chart(EMPTY)):
        ElementTree.fromstring(draw(chart))
    ElementTree.fromstring(run_file(run_result(), made="", suffix=".svg"))


def test_bars_only_where_errors_are_known_and_no_close_up_without_a_period():
    bare = [replace(one, step_time_error_s=None) for one in searched()]
    chart = plane_chart(run_report(windows=tuple(bare)))
    assert [series.name for series in chart.series] == ["frontier", "baseline"]
    assert close_chart(run_report(period=None)) is None
    assert close_chart(run_report(trace=PowerTrace())) is None
    page = render_page(run_page(run_result(figures=RunFigures(), gpus=2, period=None, cpu=None), made=""))
    assert "2 GPUs were tuned as one" in page


def test_the_name_of_a_band_is_in_no_other_band():
    wide, narrow = (draw(power_chart(run_report()), width=width, height=420) for width in (880, 300))
    assert ">1440 MHz</text>" in wide
    assert re.search(r"rotate[^>]*><text[^>]*>1440 MHz</text>", narrow)
    assert "<title>1440 MHz</title>" in narrow


def test_the_page_shows_kilowatt_hours_and_what_a_thousand_hours_save():
    shown = html(run_report(ended=True))
    assert "kWh" in shown
    assert "saved per 1,000 GPU-hours" in shown
    assert "saved per 1,000 GPU-hours" not in html(run_report(figures=RunFigures(), ended=True))
