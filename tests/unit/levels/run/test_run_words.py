"""Sentences about a run that was tuned."""

from dataclasses import replace

import pytest

from run_views import FIGURES, run_view, searched, window
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.levels.run.view.settings import EstimateWithError, held_intervals_of
from wattune.levels.run.view.view_model import ObservedPeriod, RunFigures, TuningStage, state_words
from wattune.levels.run.view.words import (
    closing_lines,
    estimate_words,
    even_words,
    headline,
    period_words,
    search_words,
    slowdown_words,
    sure_words,
    verdict,
)


def order(setting, purpose):
    return Order(setting=setting, purpose=purpose, least_s=1.0, most_s=2.0)


def test_the_closing_lines_say_what_was_saved_kept_spent_and_seen():
    assert closing_lines(run_view()) == (
        "simulated: 15.3 ± 0.6 % less energy and 3.1 ± 0.4 % more time than at the driver default, search included "
        "(1545 MHz was held)",
        "the promise was kept, which is more than 99.9 % sure (at most 5 % more time was promised)",
        "the search took 3 trials and 43.0 s, and spent 840 J less than the driver default would have",
        "break-even: after 15.2 s",
        "the power repeats every 800.0 ± 2.1 ms; also 13.40 ± 0.20 s (cycle)",
        "tuning took 0.61 % of one core",
    )
    assert not headline(run_view(simulated=False)).startswith("simulated")


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        (0.995, "the promise was kept, which is 99.5 % sure"),
        (0.93, "the promise was probably kept, which is 93 % sure"),
        (0.2, "the promise was probably not kept, which is 80 % sure"),
        (0.0001, "the promise was not kept, which is more than 99.9 % sure"),
        (None, "the promise was kept as far as was measured, but how sure that is cannot be told"),
    ],
)
def test_the_promise_is_judged_by_how_sure_it_is(confidence, words):
    assert slowdown_words(run_view(figures=replace(FIGURES, confidence=confidence))).startswith(words)


def test_what_cannot_be_told_is_said_to_be_so():
    nothing = run_view(windows=(), figures=RunFigures(), order=None, stage=TuningStage.OVER)
    assert "did not use the GPU" in headline(nothing)
    assert "cannot be told" in slowdown_words(nothing)
    assert headline(replace(nothing, why="stopped")).endswith("nothing was tuned (stopped)")
    blind = window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, step_time_s=None)
    assert "no progress of the program was seen" in headline(replace(nothing, windows=(blind,)))
    reckoned = replace(order(Setting(1545), Purpose.HOLD), why="4.0 ± 3.5 % slower, 5.9 % saved")
    held = replace(nothing, windows=(blind,), order=reckoned)
    assert headline(held).endswith("by power and utilisation alone it is reckoned: 4.0 ± 3.5 % slower, 5.9 % saved")
    assert "reckoned" not in headline(replace(held, order=order(DRIVER_DEFAULT, Purpose.HOLD)))
    assert "nothing but the baseline" in headline(replace(nothing, windows=searched()[:1]))
    assert slowdown_words(run_view(slowdown_limit=None)) == ""
    assert search_words(nothing) == even_words(nothing) == ""


def test_break_even_may_lie_ahead_or_nowhere():
    later = run_view(spent=Measurement(10.0, 1.0))
    assert even_words(later) == "break-even: expected after 15.2 s, 5.20 s more than it ran"
    assert even_words(run_view(figures=replace(FIGURES, break_even_s=0.0))) == "break-even: from the first trial on"
    assert even_words(run_view(figures=replace(FIGURES, break_even_s=None))) == "break-even: not in sight"
    costly = run_view(figures=replace(FIGURES, search_extra_j=500.0, search_s=9000.0))
    assert (
        search_words(costly)
        == "the search took 3 trials and 2.50 h, and spent 500 J more than the driver default would have"
    )


def test_more_energy_and_less_time_are_called_that():
    worse = run_view(
        figures=replace(FIGURES, saving=EstimateWithError(-0.01, None), slowdown=EstimateWithError(-0.004, 0.0003))
    )
    assert "1.00 % more energy and 0.40 ± 0.03 % less time" in headline(worse)


def test_errors_keep_their_meaning():
    assert estimate_words(EstimateWithError(-0.0312, 0.006)) == "−3.1 ± 0.6 %"
    assert estimate_words(EstimateWithError(0.0312, 0.0002)) == "+3.12 ± 0.02 %"
    assert estimate_words(EstimateWithError(0.0, 0.0)) == "0.0 %"
    assert estimate_words(None) == "–"
    assert sure_words(0.9899) == "98.9 %"
    assert sure_words(1.0) == "more than 99.9 %"


def test_a_gear_is_judged_against_the_promise():
    (held_interval,) = held_intervals_of(searched())
    assert [verdict(held_interval, point, slowdown_limit=0.05) for point in held_interval.points] == [
        "baseline",
        "too slow",
        "fast enough",
        "fast enough",
    ]
    assert verdict(held_interval, held_interval.points[3], slowdown_limit=0.033) == "unsure"
    assert verdict(held_interval, held_interval.points[3], slowdown_limit=None) == ""
    refused = window(Setting(900), Purpose.TRIAL, 90.0, 2.0, power_w=250.0, step_time_s=1.0, held=False)
    silent = window(Setting(800), Purpose.TRIAL, 95.0, 2.0, power_w=250.0, step_time_s=None)
    (held_interval,) = held_intervals_of((*searched(), refused, silent))
    assert [verdict(held_interval, point, slowdown_limit=0.05) for point in held_interval.points[-2:]] == [
        "not applied",
        "no pace",
    ]


def test_periods_in_words():
    assert period_words(None) == ""
    assert period_words(ObservedPeriod("aperiodic")) == "nothing repeats in the power"
    assert period_words(ObservedPeriod("not_observable")) == "its sensor cannot show what repeats"
    assert period_words(ObservedPeriod("periodic", 0.5)) == "the power repeats every 500 ms"


def test_periods_are_marked_from_their_phase_or_from_the_end():
    assert ObservedPeriod("periodic", 2.0, None, 1.0).marks_s(0.0, 6.0) == (1.0, 3.0, 5.0)
    assert ObservedPeriod("periodic", 2.0).marks_s(0.5, 6.0) == (2.0, 4.0, 6.0)
    assert ObservedPeriod("aperiodic").marks_s(0.0, 6.0) == ObservedPeriod("periodic", 2.0).marks_s(6.0, 6.0) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "holding 1545 MHz"),
        ({"order": order(DRIVER_DEFAULT, Purpose.HOLD)}, "holding the driver default"),
        (
            {"order": order(Setting(1440), Purpose.TRIAL), "windows": searched()[:3]},
            "searching: 3 of about 5 (1440 MHz)",
        ),
        ({"order": order(Setting(1440), Purpose.TRIAL), "about_trials": None}, "searching: 4 (1440 MHz)"),
        ({"order": order(DRIVER_DEFAULT, Purpose.BASELINE)}, "looking at the baseline (driver default)"),
        ({"order": order(Setting(1800), Purpose.REFERENCE)}, "looking at counters (1800 MHz)"),
        ({"stage": TuningStage.SETTLING}, "holding 1545 MHz, settling"),
        ({"stage": TuningStage.WAITING, "why": "idle"}, "waiting: the program is idle"),
        ({"stage": TuningStage.WAITING}, "waiting for the program to use the GPU"),
        ({"stage": TuningStage.DISABLED, "why": "no permission"}, "not tuning any more: no permission"),
        ({"stage": TuningStage.OVER}, "the program has ended"),
        ({"order": None}, "nothing is ordered"),
    ],
)
def test_the_state_in_one_line(changes, words):
    assert state_words(run_view(**changes)) == words


def test_what_is_held_is_known_from_the_order_or_the_windows():
    assert run_view(order=None).held == Setting(1545)
    assert run_view(windows=(), order=None).held is None
    assert run_view().label == "NVIDIA GeForce RTX 3080 Ti (simulated)"
    assert run_view(gpus=4, simulated=False).label == "4 × NVIDIA GeForce RTX 3080 Ti"
