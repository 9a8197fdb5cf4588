"""What is said of a run without a screen, and the program's lines on one."""

import re
from dataclasses import replace

import pytest

from run_views import measuring, run_report
from wattune.control.state import Condition, Event, Waiting
from wattune.control.window_state import Settling
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose
from wattune.levels.run.view.opening import event_lines_of, numbered, opening_line
from wattune.levels.run.view.pane import LastLines, screen_with_pane

ALL = {"tunes": True, "may_set": True, "can_set": True, "steps": "a hook"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "(simulated): clocks may be set; at most 5 % slower; step times come from a hook"),
        ({"may_set": False}, "clocks may not be set for lack of permission (`wattune doctor`"),
        ({"may_set": False}, "so it only measures; step times come from a hook"),
        ({"can_set": False}, "nothing to set"),
        ({"tunes": False}, "sets nothing"),
    ],
)
def test_the_line_at_the_start(given, words):
    assert words in opening_line(run_report(), **(ALL | given))


def test_an_objective_without_a_slowdown_limit_is_named():
    assert "objective edp;" in opening_line(run_report(slowdown_limit=None, objective="edp"), **ALL)


def at(report, state, *events):
    return replace(report, progress=replace(report.progress, state=state, events=events))


def order(setting, purpose):
    return Order(setting=setting, purpose=purpose, least_s=2.0, most_s=4.0)


def test_each_event_and_each_beginning_has_one_short_line():
    report, said = run_report(), set()
    since = report.seen.trace.recent[0]
    base = at(report, Settling(order(DRIVER_DEFAULT, Purpose.BASELINE), since))
    assert "measuring the baseline (driver default)" in event_lines_of(base, events=0, said=said)[0]
    first = at(report, measuring(order(Setting(1200), Purpose.TRIAL)))
    second = at(report, measuring(order(Setting(1300), Purpose.TRIAL)))
    assert len(event_lines_of(first, events=0, said=said)) == 1
    assert event_lines_of(second, events=0, said=said) == ()  # one line for the search, not one per trial
    events = (Event(3.0, "known"), Event(4.0, "new " + 500 * "x"))
    held = at(report, measuring(order(Setting(1300), Purpose.HOLD)), *events)
    lines = event_lines_of(held, events=1, said=said)
    assert lines[0].startswith("4.0 s: new xxx")
    assert len(lines[0]) < 300
    assert lines[1].endswith("holding 1300 MHz")
    assert event_lines_of(held, events=2, said=said) == ()


def test_a_setting_that_is_held_again_has_a_line_again_unless_by_turns():
    report, said = run_report(), set()
    one, two = (at(report, measuring(order(Setting(mhz), Purpose.HOLD))) for mhz in (1300, 1200))
    assert [len(event_lines_of(each, events=0, said=said)) for each in (one, two, one, one)] == [1, 1, 1, 0]
    turns = [(Setting(1300), 40.0), (Setting(1200), 40.0), (Setting(1300), 40.0)]
    window = next(window for window in report.windows if window.purpose is Purpose.HOLD)
    windows = tuple(
        replace(window, setting=setting, cost=replace(window.cost, time_s=time_s)) for setting, time_s in turns
    )
    by_turns = [replace(each, progress=replace(each.progress, windows=windows)) for each in (two, one, two)]
    assert [len(event_lines_of(each, events=0, said=said)) for each in by_turns] == [1, 0, 0]


@pytest.mark.parametrize("purpose", [Purpose.TRIAL, Purpose.HOLD])
def test_a_setting_that_the_driver_may_still_refuse_has_no_line(purpose):
    report, said = run_report(), set()
    settling = at(report, Settling(order(Setting(1200), purpose), report.seen.trace.recent[0]))
    assert event_lines_of(settling, events=0, said=said) == ()
    assert len(event_lines_of(at(report, measuring(order(Setting(1200), purpose))), events=0, said=said)) == 1


def test_waiting_for_the_gpu_is_said_once_and_idling_by_its_event():
    report, said = run_report(), set()
    assert len(event_lines_of(at(report, Waiting(Condition.UNUSED)), events=0, said=said)) == 1
    assert event_lines_of(at(report, Waiting(Condition.UNUSED)), events=0, said=said) == ()
    assert event_lines_of(at(report, Waiting(Condition.IDLE)), events=0, said=said) == ()


def test_several_gpus_have_their_index():
    assert numbered([("a",)]) == ("a",)
    assert numbered([("a",), ("b", "c")]) == ("GPU 0: a", "GPU 1: b", "GPU 1: c")


# the program's lines


def lines_of(*parts, count=5):
    last = LastLines()
    for part in parts:
        last.feed(part)
    return last.last(count)


def test_lines_are_kept_as_a_terminal_shows_them():
    assert lines_of(b"one\ntwo\r\nthr", b"ee") == ("one", "two", "three")
    assert lines_of(b" 10%|# |\r", b" 20%|##|", b"\r 30%|##|\ndone\n") == (" 30%|##|", "done")
    assert lines_of(b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\n") == ("red x",)
    assert lines_of("über".encode()[:1], "über".encode()[1:]) == ("über",)
    assert lines_of(b"outer 1\ninner 1\x1b[A\router 2\n") == ("outer 2",)
    assert lines_of(b"\n".join(b"%d" % n for n in range(1000)), count=2) == ("998", "999")
    assert lines_of(b"\xff\x1b", count=0) == ()


@pytest.mark.parametrize(("width", "height"), [(60, 20), (80, 24), (120, 40), (20, 5), (10, 2)])
def test_the_screen_has_the_last_lines_and_the_keys_and_fits(width, height):
    output = LastLines()
    output.feed(b"".join(b"line %d\n" % n for n in range(50)))
    keys = "q: leave"
    lines = screen_with_pane((run_report(),), output=output, keys=keys, width=width, height=height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain == keys
    if height >= 20:
        assert lines[-2].plain == "line 49"
        assert any(line.plain.startswith("energy ") for line in lines)


def test_what_was_saved_so_far_is_an_amount_or_unknown():
    def saved(report):
        lines = screen_with_pane((report,), output=None, keys="", width=80, height=24)
        return next(line.plain for line in lines if line.plain.startswith("energy"))

    assert re.fullmatch(r"energy   −\S+ .* so far, −\S+ kJ", saved(run_report()))
    assert saved(run_report(figures=replace(run_report().figures, saving=None))) == "energy   unknown so far"
