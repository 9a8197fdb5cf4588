"""Sentences about a run that was tuned."""

from dataclasses import replace

import pytest

from run_views import FIGURES, GPU, measuring, run_report, searched, settling, window
from wattune.control.progress_estimator import ONLY_OPTIMIZERS
from wattune.control.state import Condition, Disabled, Event, Waiting
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.levels.run.figures import RunFigures, figures_of
from wattune.levels.run.summaries import EstimateWithError, phase_summaries
from wattune.levels.run.view.settings import setting_rows, verdict
from wattune.levels.run.view.words import (
    closing_lines,
    compared_words,
    estimate_words,
    even_words,
    headline,
    measured_hold_words,
    period_words,
    search_words,
    slowdown_words,
    state_words,
    sure_words,
)
from wattune.render.quantity import duration
from wattune.signals.period import PeriodAnswer, Verdict


def order(setting, purpose):
    return Order(setting=setting, purpose=purpose, least_s=1.0, most_s=2.0)


def test_the_closing_lines_report_saving_slowdown_search_and_period():
    assert closing_lines(run_report()) == (
        "simulated: time +3.1 ± 0.4 %, energy −15.3 ± 0.6 % against the driver default, search included "
        "(held: 1545 MHz for 41.0 s)",
        "the slowdown limit of 5 % was met (more than 99.9 % sure)",
        "the search took 3 trials and 43.0 s, and spent 840 J less than the driver default would have",
        "break-even: after 15.2 s",
        "the power repeats every 800.0 ± 2.1 ms; also 13.40 ± 0.20 s (cycle)",
        "wattune took 510 ms of processor time with its start, 0.61 % of one core",
    )
    assert not headline(run_report(spec=replace(GPU, simulated=False))).startswith("simulated")


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        (0.995, "the slowdown limit of 5 % was met (99.5 % sure)"),
        (0.93, "the slowdown limit of 5 % was probably met (93 % sure)"),
        (0.2, "the slowdown limit of 5 % was probably not met (80 % sure)"),
        (0.0001, "the slowdown limit of 5 % was not met (more than 99.9 % sure)"),
        (None, "the slowdown limit of 5 % was met as far as was measured"),
    ],
)
def test_the_slowdown_limit_is_judged_by_how_sure_it_is(confidence, words):
    assert slowdown_words(run_report(figures=replace(FIGURES, confidence=confidence))).startswith(words)


@pytest.mark.parametrize(
    ("given", "hinted"),
    [
        ({}, True),
        ({"source": "utilisation"}, True),
        ({"source": "hook"}, False),  # steps were seen, but the program ended before they were compared
        ({"events": (Event(0.0, ONLY_OPTIMIZERS),)}, False),  # it follows the simulated GPU already
    ],
)
def test_a_hint_names_what_would_show_steps_where_none_were_seen(given, hinted):
    blind = window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, step_time_s=None)
    given = {"windows": (blind,), "figures": RunFigures(), "ended": True, **given}
    assert any(line.startswith("hint: ") for line in closing_lines(run_report(**given))) is hinted
    followed = closing_lines(run_report(**given, follows_gpu=True))
    assert not any("simulate --follow" in line for line in followed)
    assert any("only optimizer steps of PyTorch follow" in line for line in followed) is hinted


def test_unknown_values_are_called_unknown():
    nothing = {"windows": (), "figures": RunFigures(), "ended": True}
    assert "is unknown" in slowdown_words(run_report(**nothing))
    blind = window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, step_time_s=None)
    unseen = {**nothing, "windows": (blind,)}
    assert "unknown: no step time of the program was found" in headline(run_report(**unseen))
    predicted = replace(order(Setting(1545), Purpose.HOLD), why="4.0 ± 3.5 % slower, 5.9 % saved")
    held = headline(run_report(**unseen, state=measuring(predicted)))
    assert held.endswith("an estimate of the policy, not a measurement of the run: 4.0 ± 3.5 % slower, 5.9 % saved")
    default = headline(run_report(**unseen, state=measuring(replace(predicted, setting=DRIVER_DEFAULT))))
    assert default.endswith("(the driver default was held)")
    short = (searched()[0], window(Setting(1545), Purpose.HOLD, 12.0, 10.0, power_w=250.0, step_time_s=None))
    assert "unknown: step times were not seen for long enough" in headline(run_report(**{**nothing, "windows": short}))
    assert slowdown_words(run_report(slowdown_limit=None)) == ""
    assert search_words(run_report(**nothing)) == even_words(run_report(**nothing)) == ""


def test_where_nothing_was_set_nothing_was_saved_or_lost():
    nothing = {"windows": (), "figures": figures_of((), gpus=1, slowdown_limit=0.05, was_set=False)}
    unset = {**nothing, "ended": True, "was_set": False}
    based, blind = searched()[:1], replace(searched()[0], step_time_s=None, step_time_error_s=None)
    reached = Reading(time_s=1084.0)
    for changes, why in (
        ({"state": Waiting(Condition.STOPPED)}, "the program was stopped"),
        ({"state": Waiting(Condition.UNUSED)}, "the program was not using the GPU"),
        # a short run: its steps show that it worked
        ({"state": Waiting(Condition.UNUSED), "stepped": reached}, "ended after 84.0 s, before the baseline"),
        ({"state": settling(order(DRIVER_DEFAULT, Purpose.BASELINE))}, "ended after 84.0 s, before the baseline"),
        ({"windows": based, "state": measuring(order(Setting(1440), Purpose.TRIAL))}, "before another setting was"),
        ({"windows": based}, "1545 MHz was best as far as is known"),
        ({"windows": (blind,)}, "no step time of the program was found at the baseline"),
        ({"state": Disabled("no permission")}, "no permission"),
    ):
        report = run_report(**{**unset, **changes})
        assert headline(report).startswith("simulated: nothing was set, so nothing was saved or lost: ")
        assert why in headline(report)
        assert "was met (more than 99.9 % sure)" in slowdown_words(report)


def test_break_even_may_be_in_the_future_or_never():
    later = run_report(last=Reading(time_s=1010.0, energy_j=1.0))
    assert even_words(later) == "break-even: expected after 15.2 s, 5.20 s more than it ran"
    assert even_words(run_report(figures=replace(FIGURES, break_even_s=0.0))) == "break-even: from the first trial on"
    assert even_words(run_report(figures=replace(FIGURES, break_even_s=None))) == "break-even: not expected"
    costly = run_report(figures=replace(FIGURES, search_extra_j=500.0, search_s=9000.0))
    assert (
        search_words(costly)
        == "the search took 3 trials and 2.50 h, and spent 500 J more than the driver default would have"
    )


def test_more_energy_and_less_time_are_reported():
    worse = run_report(
        figures=replace(FIGURES, saving=EstimateWithError(-0.01, None), slowdown=EstimateWithError(-0.004, 0.0003))
    )
    assert "time −0.40 ± 0.03 %, energy +1.0 %" in headline(worse)


def test_small_errors_keep_their_digits():
    assert estimate_words(EstimateWithError(-0.0312, 0.006)) == "−3.1 ± 0.6 %"
    assert estimate_words(EstimateWithError(0.0312, 0.0002)) == "+3.12 ± 0.02 %"
    assert estimate_words(EstimateWithError(0.0, 0.0)) == "0.0 %"
    assert estimate_words(None) == "–"
    assert sure_words(0.9899) == "98.9 %"
    assert sure_words(1.0) == "more than 99.9 %"


def test_a_setting_is_judged_against_the_slowdown_limit():
    (phase,) = phase_summaries(searched())
    assert [verdict(phase, point, slowdown_limit=0.05) for point in phase.points] == [
        "baseline",
        "too slow",
        "fast enough",
        "fast enough",
    ]
    assert verdict(phase, phase.points[3], slowdown_limit=0.033) == "unsure"
    assert verdict(phase, phase.points[3], slowdown_limit=None) == ""
    refused = window(Setting(900), Purpose.TRIAL, 90.0, 2.0, power_w=250.0, step_time_s=1.0, held=False)
    silent = window(Setting(800), Purpose.TRIAL, 95.0, 2.0, power_w=250.0, step_time_s=None)
    (phase,) = phase_summaries((*searched(), refused, silent))
    assert [verdict(phase, point, slowdown_limit=0.05) for point in phase.points[-2:]] == [
        "not applied",
        "no step time",
    ]


def test_periods_in_words():
    assert period_words(None) == ""
    assert period_words(PeriodAnswer(verdict=Verdict.APERIODIC)) == "the power has no period"
    assert period_words(PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE)) == (
        "the power sensor is too slow to show a period"
    )
    assert period_words(PeriodAnswer(verdict=Verdict.PERIODIC, period_s=0.5)) == "the power repeats every 500 ms"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "holding 1545 MHz"),
        ({"state": measuring(order(DRIVER_DEFAULT, Purpose.HOLD))}, "holding the driver default"),
        (
            {"state": measuring(order(Setting(1440), Purpose.TRIAL)), "windows": searched()[:3]},
            "searching: 3 of about 5 (1440 MHz)",
        ),
        (
            {"state": measuring(order(Setting(1440), Purpose.TRIAL)), "windows": 2 * searched()},
            "searching: 7 (1440 MHz)",
        ),
        ({"state": measuring(order(DRIVER_DEFAULT, Purpose.BASELINE))}, "measuring the baseline (driver default)"),
        ({"state": measuring(order(Setting(1800), Purpose.REFERENCE))}, "reading counters (1800 MHz)"),
        ({"state": settling(order(Setting(1545), Purpose.HOLD))}, "holding 1545 MHz, settling"),
        ({"state": Waiting(Condition.IDLE)}, "waiting: the program is idle"),
        ({"state": Waiting(Condition.UNUSED)}, "waiting for the program to use the GPU"),
        ({"state": Disabled("no permission")}, "not tuning any more: no permission"),
        ({"ended": True}, "the program has ended"),
    ],
)
def test_the_state_in_one_line(changes, words):
    assert state_words(run_report(**changes)) == words


def test_the_held_setting_comes_from_the_order_or_the_windows():
    waiting = Waiting(Condition.IDLE)
    assert run_report(state=waiting).held == Setting(1545)
    assert run_report(state=waiting, windows=()).held is None
    assert run_report().label == "NVIDIA GeForce RTX 3080 Ti (simulated)"
    assert run_report(gpus=4, spec=replace(GPU, simulated=False)).label == "4 × NVIDIA GeForce RTX 3080 Ti"


def test_settings_that_are_held_by_turns_are_both_named():
    *before, first = searched()
    turns = (
        first,
        replace(first, setting=Setting(1620), start_s=90.0),
        replace(first, start_s=130.0),
    )
    report = run_report(windows=(*before, *turns))
    assert report.alternates == (Setting(1620), Setting(1545))
    assert "(held by turns: 1545 MHz for 82.0 s, 1620 MHz for 41.0 s)" in headline(report)
    assert not any("too slow" in cell for row in setting_rows(report)[2:] for cell in row.cells)
    assert run_report(windows=(*before, *turns[:2])).alternates == ()
    assert (
        run_report(windows=(*before, *turns, replace(first, start_s=170.0, cost=Measurement(800.0, 8e4)))).alternates
        == ()
    )


def test_the_compared_part_is_named_where_the_whole_run_is_unknown():
    blind = replace(searched()[-1], setting=Setting(1200), step_time_s=None, step_time_error_s=None, start_s=200.0)
    blind = replace(blind, cost=Measurement(100.0, 1e4))
    windows = (*searched(), blind)
    figures = figures_of(windows, gpus=1, slowdown_limit=0.05)
    words = closing_lines(run_report(windows=windows, figures=figures))
    assert "unknown" in words[0]
    assert f"in the {duration(figures.compared_s)} that were compared (" in words[1]
    assert "some time was not compared" in words[2]
    assert compared_words(run_report()) == ""


def test_a_program_that_a_simulated_gpu_does_not_slow_down_is_named():
    follows = "only with `wattune simulate --follow"
    assert not any(follows in line for line in closing_lines(run_report()))
    printed = {"source": "pattern"}
    assert follows in closing_lines(run_report(**printed))[-1]
    assert not any("hint" in line for line in closing_lines(run_report(**printed, follows_gpu=True)))
    assert not any(follows in line for line in closing_lines(run_report(**printed, spec=replace(GPU, simulated=False))))


def test_a_search_without_extra_energy_has_no_figure_of_it():
    early = run_report(figures=replace(FIGURES, search_extra_j=0.0))
    assert search_words(early) == "the search took 3 trials and 43.0 s"


def test_figures_of_holding_name_the_setting_that_a_window_held():
    newest = replace(order(Setting(870), Purpose.HOLD), why="")
    report = run_report(state=measuring(newest))
    assert "(held: 1545 MHz for 41.0 s)" in headline(report)
    assert measured_hold_words(report) == "1545 MHz"
    assert measured_hold_words(run_report(windows=searched()[:4], state=measuring(newest))) == "870 MHz"
