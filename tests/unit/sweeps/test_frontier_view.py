from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from view_samples import sweep_history
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.render.page import Figures, Table
from wattune.sweeps.frontier_view import allowed_band, frontier_chart, sweep_page, tip, view_frontier, view_settings


def test_savings_and_slowdowns_are_against_the_driver_default() -> None:
    view = view_settings(sweep_history(), slowdown=0.05)
    assert view.reference_name == "driver default"
    row = next(row for row in view.rows if row.trial.choice.sm_mhz == 1200)
    assert row.saving_percent == pytest.approx(10.0)
    assert row.slowdown_percent == pytest.approx(4.0)
    assert row.names == ("within 5 %",)


def test_the_named_ones_go_from_fast_to_cheap() -> None:
    view = view_settings(sweep_history(), slowdown=0.05)
    assert [(row.title, row.trial.choice.sm_mhz) for row in view.picks] == [
        ("driver default", None),
        ("within 5 %", 1200),
        ("knee", 1000),
        ("cheapest", 800),
    ]


def test_without_the_default_the_fastest_is_the_reference() -> None:
    history = tuple(trial for trial in sweep_history() if trial.choice != DRIVER_DEFAULT)
    view = view_settings(history, slowdown=0.05)
    assert view.reference_name == "fastest"
    assert view.reference.choice.sm_mhz == 1410


def test_one_trial_takes_all_names() -> None:
    (row,) = view_settings((Trial(Setting(), Measurement(1.0, 2.0)),), slowdown=0.1).picks
    assert row.names == ("driver default", "within 10 %", "knee", "cheapest")


def test_a_reference_that_nothing_matches_leaves_that_name_out() -> None:
    trial = Trial("slow", Measurement(2.0, 1.0))
    view = view_frontier(
        (trial,), reference=Trial("fast", Measurement(1.0, 5.0)), reference_name="default", slowdown=0.05
    )
    assert view.picks[0].names == ("knee", "cheapest")


def test_percentages_of_nothing_are_unknown() -> None:
    nothing = Trial("none", Measurement(0.0, 0.0))
    (row,) = view_frontier((nothing,), reference=nothing, reference_name="default", slowdown=0.0).rows
    assert row.saving_percent is None
    assert row.slowdown_percent is None
    assert "–" in tip(row)


costs = st.builds(Measurement, st.integers(1, 40).map(float), st.integers(1, 40).map(float))


@given(st.lists(costs, min_size=1, max_size=25), st.sampled_from([0.0, 0.05, 0.5]))
def test_the_view_agrees_with_brute_force(found: list[Measurement], slowdown: float) -> None:
    history = tuple(Trial(index, cost) for index, cost in enumerate(found))
    reference = history[0]
    view = view_frontier(history, reference=reference, reference_name="default", slowdown=slowdown)
    for row in view.rows:
        cost = row.trial.cost
        beaten = any(
            other.time_s <= cost.time_s
            and other.energy_j <= cost.energy_j
            and (other.time_s, other.energy_j) != (cost.time_s, cost.energy_j)
            for other in found
        )
        assert not (row.on_frontier and beaten)
        assert row.on_frontier or beaten or any(other == cost for other in found)
    allowed = [cost.energy_j for cost in found if cost.time_s <= reference.cost.time_s * (1 + slowdown)]
    within = next(row for row in view.picks if any(name.startswith("within") for name in row.names))
    assert within.trial.cost.energy_j == min(allowed)
    assert len(view.rows) == len(history)


def test_the_chart_shows_every_trial_once_and_counts_those_left_out() -> None:
    far_off = Trial(Setting(sm_mhz=210), Measurement(50.0, 400.0))
    beaten = Trial(Setting(sm_mhz=700), Measurement(1.6, 215.0))
    view = view_settings((*sweep_history()[:5], beaten, far_off), slowdown=0.05)
    chart = frontier_chart(view, title="t")
    assert [(series.name, len(series.points)) for series in chart.series] == [
        ("frontier", 5),
        ("beaten in both; 1 far slower not shown", 1),
        ("driver default", 1),
    ]
    tones = [(series.tone, series.shape) for series in chart.series]
    assert len(set(tones)) == 3  # the default has a colour and a mark of its own
    assert chart.x.unit == "s"
    assert chart.notes[0].text == "driver default"
    band = allowed_band(view, slowdown=0.05)
    assert (band.start, band.end) == pytest.approx((1.0, 1.05))


def test_every_change_has_the_error_that_is_known() -> None:
    default = Trial(DRIVER_DEFAULT, Measurement(1.0, 200.0, 0.002, 1.0))
    slower = Trial(Setting(sm_mhz=1200), Measurement(1.04, 180.0, 0.002, 1.0))
    history = (default, slower)
    view = view_settings(history, slowdown=0.05)
    (note,) = (note for note in frontier_chart(view, title="").notes if note.x > 1)
    assert note.detail == "time +4.0 ± 0.3 %, energy −10.0 ± 0.7 %"
    page = sweep_page(view, title="", simulated=False, per="step", slowdown=0.05, how=(), made="")
    figures = next(section for section in page.sections if isinstance(section, Figures))
    assert figures.figures[0].value == "−10.0 ± 0.7 %"
    assert "time +4.0 ± 0.3 %" in (figures.figures[0].detail or "")
    table = next(section for section in page.sections if isinstance(section, Table))
    assert table.rows[1][5:7] == ("+4.0 ± 0.3 %", "−10.0 ± 0.7 %")
