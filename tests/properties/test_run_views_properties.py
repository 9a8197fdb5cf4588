"""Whatever a run did, what is shown of it is well-formed, free of NaN, and fits."""

from unicodedata import category
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.control.power_trace import PowerTrace
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart
from wattune.levels.run.view.page import run_file
from wattune.levels.run.view.settings import EstimateWithError
from wattune.levels.run.view.terminal import news, screen_lines
from wattune.levels.run.view.view_model import ObservedCycle, ObservedPeriod, RunEvent, RunFigures, RunView, TuningStage
from wattune.levels.run.view.words import closing_lines
from wattune.render.svg import draw

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
PERIODS = st.none() | st.builds(
    ObservedPeriod,
    st.sampled_from(["periodic", "aperiodic", "not_observable"]),
    st.none() | st.floats(1e-3, 100),
    st.none() | st.floats(0, 10),
    st.none(),
    st.lists(st.builds(ObservedCycle, st.floats(1e-3, 100), st.none() | st.floats(0, 10)), max_size=3).map(tuple),
)
READINGS = st.lists(
    st.builds(Reading, time_s=st.floats(0, 1e4), power_w=st.none() | st.floats(0, 1000), sm_mhz=st.none()), max_size=30
)
ORDERS = st.builds(Order, setting=SETTINGS, purpose=st.sampled_from(Purpose), least_s=st.just(1.0), most_s=st.just(2.0))
WORDS = st.text(max_size=30)
VIEWS = st.builds(
    RunView,
    program=WORDS,
    gpu=WORDS,
    simulated=st.booleans(),
    objective=st.just("energy:5%"),
    slowdown_limit=st.none() | st.floats(0, 1),
    gpus=st.integers(1, 8),
    stage=st.sampled_from(TuningStage),
    why=st.none() | WORDS,
    spent=COSTS,
    figures=FIGURES,
    windows=st.lists(WINDOWS, max_size=8).map(tuple),
    order=st.none() | ORDERS,
    trace=READINGS.map(lambda readings: PowerTrace().add(sorted(readings, key=lambda one: one.time_s))),
    period=PERIODS,
    events=st.lists(st.builds(RunEvent, st.floats(0, 1e6), WORDS), max_size=4).map(tuple),
    cpu_share=st.none() | st.floats(0, 1),
)


def is_clean(text: str) -> bool:
    return not any(category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text)


@settings(max_examples=25, deadline=None)
@given(view=VIEWS)
def test_pictures_and_page_are_well_formed_and_free_of_nan(view: RunView) -> None:
    for chart in (power_chart(view), close_chart(view), plane_chart(view)):
        if chart is not None:
            drawn = draw(chart)
            ElementTree.fromstring(drawn)
            for part in ElementTree.fromstring(drawn).iter():
                assert not any(value in ("nan", "inf", "-inf") for value in part.attrib.values())
    assert run_file(view, made="today", suffix=".html").endswith("</html>\n")
    assert all(closing_lines(view))


@settings(max_examples=30, deadline=None)
@given(view=VIEWS, width=st.integers(20, 160), height=st.integers(1, 50))
def test_the_screen_fits_and_has_no_control_characters(view: RunView, width: int, height: int) -> None:
    lines = screen_lines(view, width=width, height=height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert is_clean(line.plain)
    assert all(is_clean(line) for line in news(None, view))
