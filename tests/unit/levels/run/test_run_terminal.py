"""A run that is being tuned, for a terminal."""

from dataclasses import replace

import pytest

from run_views import GPU, run_report, searched, settling, window
from view_samples import plain, styles
from wattune.control.power_trace import PowerTrace
from wattune.control.state import Condition, Event, Progress, Waiting
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.settings import setting_rows, table_lines
from wattune.levels.run.view.terminal import news, screen_lines, slowdown_line
from wattune.levels.run.view.words import clipped
from wattune.signals.period import PeriodAnswer, Verdict


def text(report, width=80, height=24):
    return plain(screen_lines(report, width=width, height=height))


REAL = replace(GPU, simulated=False)
EMPTY = RunReport(program="train", objective="energy:5%", slowdown_limit=0.05, progress=Progress(REAL))
IDLE = Waiting(Condition.IDLE)


def test_a_screen_of_80_by_24_shows_everything():
    shown = text(run_report())
    for words in (
        "wattune run  simulated  python train.py",
        "holding 1545 MHz",
        "+3.1 ± 0.4 % of 5 % allowed",
        "period 800.0 ± 2.1 ms",
        "╵",
        "● held",
        "driver default  776.7 ± 3.1 ms  300 W",
        "too slow",
        "61.0 s  the GPU could not be read",
    ):
        assert words in shown


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 12), (20, 6), (200, 60), (80, 3), (1, 1)])
@pytest.mark.parametrize(
    "report", [run_report(), EMPTY, run_report(period=None), run_report(slowdown_limit=None, state=IDLE)]
)
def test_no_screen_is_wider_or_higher_than_the_terminal(report, size):
    width, height = size
    lines = screen_lines(report, width=width, height=height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width, line.plain


def test_nothing_is_drawn_over_the_edge_of_a_wide_script_or_a_control_character():
    report = run_report(program="训练\x1b[31m" * 30, events=(Event(1.0, "火\n" * 80),))
    for line in screen_lines(report, width=60, height=20):
        assert line.cell_len <= 60
    assert "\x1b" not in text(report)
    assert clipped("a\tb", 10) == "a b"
    assert clipped("abc", 0) == ""


def test_before_the_first_reading_the_screen_shows_no_values():
    shown = text(EMPTY)
    assert "waiting for the program to use the GPU" in shown
    assert "unknown so far" in shown
    assert "simulated" not in shown


def test_the_bar_is_light_over_the_error_and_marked_at_the_limit():
    signs = plain([slowdown_line(run_report(), width=80)])
    bar = signs.removeprefix("slowdown ").split(" ")[0]
    assert bar.index("│") == len(bar) // 2
    assert 0 < bar.index("▒") < bar.index("│")
    late = run_report(figures=replace(run_report().figures, slowdown=replace(run_report().figures.slowdown, value=0.3)))
    assert set(styles(slowdown_line(late, width=80))) >= {"green", "bold red", "yellow"}
    assert "energy:5%" in plain([slowdown_line(run_report(slowdown_limit=None), width=80)])


def test_the_setting_that_is_set_now_is_marked_even_before_it_has_a_window():
    order = Order(setting=Setting(1500), purpose=Purpose.TRIAL, least_s=1.0, most_s=2.0)
    rows = setting_rows(run_report(state=settling(order)))
    assert rows[-1].cells[0] == "▸1500 MHz"
    assert rows[-1].cells[-1] == "settling …"
    assert setting_rows(run_report())[-1].cells[0] == "▸1545 MHz"
    assert not any(row.cells[0].startswith("▸") for row in setting_rows(run_report(ended=True)))


def test_of_too_many_settings_the_baseline_and_the_latest_are_shown():
    many = [
        window(Setting(1000 + 15 * place), Purpose.TRIAL, 20.0 + place, 1.0, power_w=200.0, step_time_s=1.0)
        for place in range(20)
    ]
    lines = plain(table_lines(setting_rows(run_report(windows=(*searched()[:1], *many), state=IDLE)), width=80, most=5))
    assert len(lines.splitlines()) == 5
    assert "driver default" in lines
    assert "1285 MHz" in lines
    assert "1000 MHz" not in lines
    assert table_lines((), width=80, most=5) == ()


def test_settings_of_an_earlier_phase_are_not_shown():
    changed = replace(searched()[-1], changed=True)
    assert setting_rows(run_report(windows=(*searched()[:-1], changed), state=IDLE)) == ()


def test_without_a_screen_each_event_is_one_line():
    before = run_report(windows=searched()[:4], events=run_report().progress.events[:1])
    assert news(before, run_report()) == (
        "61.0 s: the GPU could not be read: it is busy",
        "84.0 s: hold at 1545 MHz: 802.3 ± 1.6 ms per step, 242 W",
    )
    assert news(run_report(), run_report()) == ()
    assert news(None, EMPTY) == ("0.0 s: waiting for the program to use the GPU",)
    blind = run_report(windows=(window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 9.0, power_w=300.0, step_time_s=None),))
    assert "9.0 s: baseline at driver default: 300 W, no step time" in news(None, blind)


def test_periods_too_short_for_a_character_have_no_ticks():
    assert "╵" not in text(run_report(period=PeriodAnswer(verdict=Verdict.PERIODIC, period_s=0.01, error_s=0.001)))
    aperiodic = run_report(period=PeriodAnswer(verdict=Verdict.APERIODIC), figures=RunFigures())
    assert "the power has no period" in text(aperiodic)
    assert "╵" not in text(run_report(trace=PowerTrace()))
