"""Whatever a run did, what is shown of it is well-formed, free of NaN, and fits."""

from dataclasses import replace
from unicodedata import category
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from run_views import GPU, measuring, run_result, settling, with_figures
from wattune.control.power_trace import PowerTrace
from wattune.control.progress_estimator import ProgressSeen
from wattune.control.state import Condition, Disabled, Event, Progress, Waiting
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.report import ProcessorTime, RunReport
from wattune.levels.run.summaries import EstimateWithError
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart
from wattune.levels.run.view.page import run_file
from wattune.levels.run.view.terminal import news, screen_lines
from wattune.levels.run.view.words import closing_lines
from wattune.render.svg import draw
from wattune.signals.period import CycleKind, PeriodAnswer, PeriodCycle, Verdict

SETTINGS = st.just(DRIVER_DEFAULT) | st.builds(
    Setting, st.none() | st.integers(100, 2000), st.none() | st.integers(400, 5001), st.none() | st.floats(1, 700)
)
NONE_OR_MORE = st.just(0.0) | st.floats(1e-3, 1e6)
COSTS = st.builds(Measurement, NONE_OR_MORE, NONE_OR_MORE, st.none(), st.none() | NONE_OR_MORE)
SMALL = st.floats(1e-6, 1e4)
WINDOWS = st.builds(
    Window,
    setting=SETTINGS,
    purpose=st.sampled_from(Purpose),
    start_s=st.floats(0, 1e6),
    cost=COSTS,
    settling=COSTS,
    step_time_s=st.none() | SMALL,
    step_time_error_s=st.none() | st.just(0.0) | st.floats(1e-6, 1e3),
    held=st.booleans(),
    changed=st.booleans(),
)
ESTIMATES = st.none() | st.builds(EstimateWithError, st.floats(-10, 10), st.none() | st.floats(0, 10))
FIGURES = st.builds(
    RunFigures,
    saving=ESTIMATES,
    slowdown=ESTIMATES,
    confidence=st.none() | st.floats(0, 1),
    held_saving=ESTIMATES,
    held_slowdown=ESTIMATES,
    evaluations=st.integers(0, 99),
    search_s=st.floats(0, 1e6),
    search_extra_j=st.none() | st.floats(-1e9, 1e9),
    break_even_s=st.none() | st.floats(0, 1e7),
)
CYCLES = st.builds(
    PeriodCycle,
    kind=st.sampled_from(CycleKind),
    period_s=st.floats(1e-3, 100),
    error_s=st.floats(0, 10),
    strength=st.floats(0, 1),
)
PERIODS = st.none() | st.builds(
    PeriodAnswer,
    verdict=st.sampled_from(Verdict),
    period_s=st.none() | st.floats(1e-3, 100),
    error_s=st.none() | st.floats(0, 10),
    cycles=st.lists(CYCLES, max_size=3).map(tuple),
)
READINGS = st.lists(
    st.builds(Reading, time_s=st.floats(0, 1e4), power_w=st.none() | st.floats(0, 1000), sm_mhz=st.none()), max_size=30
)
ORDERS = st.builds(Order, setting=SETTINGS, purpose=st.sampled_from(Purpose), least_s=st.just(1.0), most_s=st.just(2.0))
WORDS = st.text(max_size=30)
STATES = (
    ORDERS.map(measuring)
    | ORDERS.map(settling)
    | st.builds(Waiting, st.sampled_from(Condition))
    | st.builds(Disabled, WORDS)
)
TIMES = st.none() | st.builds(Reading, time_s=st.floats(0, 1e6), energy_j=st.none() | st.floats(0, 1e9))
PROGRESS = st.builds(
    Progress,
    spec=st.builds(lambda name, simulated: replace(GPU, name=name, simulated=simulated), WORDS, st.booleans()),
    state=STATES,
    windows=st.lists(WINDOWS, max_size=8).map(tuple),
    events=st.lists(st.builds(Event, st.floats(0, 1e6), WORDS), max_size=4).map(tuple),
    first=TIMES,
    last=TIMES,
)
SEEN = st.builds(
    ProgressSeen,
    trace=READINGS.map(lambda readings: PowerTrace().add(sorted(readings, key=lambda one: one.time_s))),
    period=PERIODS,
)
REPORTS = st.builds(
    lambda figures, **fields: with_figures(RunReport(**fields), figures),
    program=WORDS,
    objective=st.just("energy:5%"),
    slowdown_limit=st.none() | st.floats(0, 1),
    progress=PROGRESS,
    figures=FIGURES,
    gpus=st.integers(1, 8),
    seen=SEEN,
    cpu=st.none() | st.builds(ProcessorTime, st.floats(0, 1), st.floats(1, 2), st.booleans()),
    ended=st.booleans(),
)


def is_clean(text: str) -> bool:
    return not any(category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text)


@settings(max_examples=25, deadline=None)
@given(report=REPORTS)
def test_pictures_and_page_are_well_formed_and_free_of_nan(report: RunReport) -> None:
    for chart in (power_chart(report), close_chart(report), plane_chart(report)):
        if chart is not None:
            drawn = draw(chart)
            ElementTree.fromstring(drawn)
            for part in ElementTree.fromstring(drawn).iter():
                assert not any(value in ("nan", "inf", "-inf") for value in part.attrib.values())
    assert run_file(run_result(report), made="today", suffix=".html").endswith("</html>\n")
    assert all(closing_lines(report))


@settings(max_examples=30, deadline=None)
@given(report=REPORTS, width=st.integers(20, 160), height=st.integers(1, 50))
def test_the_screen_fits_and_has_no_control_characters(report: RunReport, width: int, height: int) -> None:
    lines = screen_lines(report, width=width, height=height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert is_clean(line.plain)
    assert all(is_clean(line) for line in news(None, report))
