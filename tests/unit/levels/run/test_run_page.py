"""The closing report of a run that was tuned."""

from dataclasses import replace
from xml.etree import ElementTree

from run_views import run_view, searched
from wattune.control.power_trace import PowerTrace
from wattune.core.window import Purpose
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart, spells
from wattune.levels.run.view.page import run_file, run_page
from wattune.levels.run.view.view_model import RunEvent, RunFigures, RunView, TuningStage
from wattune.render.page import render_page
from wattune.render.svg import draw

EMPTY = RunView(
    program="train", gpu="A100", simulated=False, objective="energy:5%", slowdown_limit=0.05, stage=TuningStage.OVER
)


def html(view):
    return run_file(view, made="made today", suffix=".html").replace("\u00a0", " ")


def test_the_page_has_the_figures_the_pictures_the_gears_and_the_events():
    page = html(run_view(stage=TuningStage.OVER, order=None))
    for words in (
        '<div class="badge">simulated</div>',
        "+15.3 ± 0.6 %",
        "5 % promised; kept, more than 99.9 % sure",
        "Power, and what was set",
        "The last 11 periods",
        "Time and energy per step",
        "95 % interval",
        "up to 5 % slower",
        "802.5 ± 1.4 ms",
        "too slow",
        "The promise was kept, which is more than 99.9 % sure",
        "Break-even: after 15.2 s.",
        "After 61.0 s: the GPU could not be read: it is busy",
        "The GPU is simulated",
        "made today",
    ):
        assert words in page, words
    assert "nan" not in page.lower().replace("nano", "")


def test_a_real_gpu_is_never_called_simulated():
    assert "simulated" not in html(run_view(simulated=False)).partition("<body>")[2].lower()


def test_everything_that_comes_from_outside_is_escaped():
    view = run_view(program="<script>x</script>", gpu="<b>&", events=(RunEvent(1.0, "<i>odd</i>"),))
    page = html(view)
    assert "<script>x" not in page
    assert "<i>odd" not in page
    assert "&lt;script&gt;" in page
    assert "<b>&" not in page


def test_a_run_of_which_nothing_is_known_has_a_page_too():
    page = html(EMPTY)
    assert "Nothing was tuned" in page
    assert "Nothing out of the ordinary" in page
    assert "whether it was kept cannot be told" in page
    assert power_chart(EMPTY).bands == ()
    assert close_chart(EMPTY) is None
    assert plane_chart(EMPTY) is None


def test_a_program_that_changed_has_a_table_for_each_part_and_of_many_events_the_latest():
    changed = replace(searched()[-1], changed=True)
    events = tuple(RunEvent(float(place), f"event number {place}") for place in range(130))
    page = html(run_view(windows=(*searched()[:-1], changed, *searched()[:2]), events=events))
    assert "part 1 of 2" in page
    assert "part 2 of 2" in page
    assert "30 earlier events are left out." in page
    assert "event number 29" not in page
    assert "event number 129" in page


def test_neighbouring_windows_of_one_kind_are_one_spell():
    more = replace(searched()[-1], start_s=85.0)
    found = spells((*searched(), more))
    assert [spell.purpose for spell in found][-2:] == [Purpose.TRIAL, Purpose.HOLD]
    assert found[-1].end_s == 85.0 + 40.0


def test_pictures_are_well_formed():
    for chart in (power_chart(run_view()), close_chart(run_view()), plane_chart(run_view()), power_chart(EMPTY)):
        ElementTree.fromstring(draw(chart))
    ElementTree.fromstring(run_file(run_view(), made="", suffix=".svg"))


def test_bars_only_where_errors_are_known_and_no_close_look_without_a_period():
    bare = [replace(one, step_time_error_s=None) for one in searched()]
    chart = plane_chart(run_view(windows=tuple(bare)))
    assert [series.name for series in chart.series] == ["frontier"]
    assert close_chart(run_view(period=None)) is None
    assert close_chart(run_view(trace=PowerTrace())) is None
    page = render_page(run_page(run_view(figures=RunFigures(), gpus=2, period=None, cpu_share=None), made=""))
    assert "2 GPUs were tuned as one" in page


def test_the_name_of_a_stretch_stands_in_no_other_stretch():
    wide, narrow = (draw(power_chart(run_view()), width=width, height=420) for width in (880, 300))
    assert ">1440 MHz</text>" in wide
    assert ">1440 MHz</text>" not in narrow
    assert "<title>1440 MHz</title>" in narrow
