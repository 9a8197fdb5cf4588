"""Traces whose truth is known, what is right of them, and the figures that come of it."""

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.signals.period import CycleKind, PeriodAnswer, PeriodCycle, Verdict, find_period
from wattune.signals.samples import PowerSamples
from wattune_bench.period import AnswerOutcome, judge, real_cases, share_percent
from wattune_bench.period.cases import KINDS, TraceCase, log_cases, simulated_cases
from wattune_bench.period.recorded import (
    BEAT,
    HIDDEN_STEPS,
    IDLE,
    UNEVEN,
    WINDOW,
    WINDOW_S,
    recorded_cases,
    windows,
)

NOTHING = PowerSamples(np.zeros(0), np.zeros(0))
STEPS = TraceCase(file="f", kind="k", samples=NOTHING, verdict=Verdict.PERIODIC, periods_s={"step": 1.0, "cycle": 20.0})
UNCLEAR = replace(STEPS, verdict=Verdict.NOT_OBSERVABLE)


def outcome(case, period_s=None, verdict=Verdict.NOT_OBSERVABLE):
    verdict = Verdict.PERIODIC if period_s else verdict
    return judge(case, PeriodAnswer(verdict=verdict, period_s=period_s), detector="d").outcome


@pytest.mark.parametrize(
    ("period_s", "worth"),
    [
        (1.04, AnswerOutcome.RIGHT),
        (19.5, AnswerOutcome.RIGHT),
        (1.08, AnswerOutcome.NEAR),
        (0.5, AnswerOutcome.HARMONIC),
        (3.0, AnswerOutcome.HARMONIC),
        (1.37, AnswerOutcome.WRONG),
        (None, AnswerOutcome.SILENT),
    ],
)
def test_what_an_answer_is_worth(period_s, worth):
    assert outcome(STEPS, period_s) is worth


def test_where_nothing_is_clear_silence_is_right_and_so_is_the_truth():
    assert outcome(UNCLEAR) is AnswerOutcome.RIGHT
    assert outcome(UNCLEAR, 1.02) is AnswerOutcome.RIGHT
    assert outcome(UNCLEAR, 2.0) is AnswerOutcome.WRONG
    assert outcome(UNCLEAR, verdict=Verdict.APERIODIC) is AnswerOutcome.WRONG
    assert outcome(replace(UNCLEAR, periods_s={}), 1.0) is AnswerOutcome.WRONG


def test_without_a_truth_nothing_is_judged():
    assert outcome(replace(STEPS, periods_s={}), 1.0) is AnswerOutcome.UNKNOWN
    assert share_percent([], AnswerOutcome.RIGHT) is None


def test_every_kind_is_drawn_for_every_gpu_and_alike_each_time():
    first, again = list(_some(simulated_cases(seed=3))), list(_some(simulated_cases(seed=3)))
    assert [case.kind for case in first] == list(KINDS)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.samples.power_w, other.samples.power_w)
    assert all(bool(case.periods_s) is (case.verdict is Verdict.PERIODIC) for case in first)


def _some(cases):
    for _, case in zip(range(len(KINDS)), cases, strict=False):
        yield case


def test_periods_of_traces_like_recorded_ones_are_found():
    cases = list(log_cases(seed=0))
    assert len({case.kind for case in cases}) == 3
    some = cases[::8] + cases[3::8]
    judged = [judge(case, find_period(case.samples), detector="d").outcome for case in some]
    assert sum(own in (AnswerOutcome.RIGHT, AnswerOutcome.NEAR) for own in judged) >= len(judged) - 1


def test_truths_beside_traces_are_read(tmp_path):
    rows = "".join(f"{0.05 * row},{100 + row % 20}\n" for row in range(200))
    (tmp_path / "a.csv").write_text("time_s,power_w\n" + rows, encoding="utf-8")
    (tmp_path / "truths.csv").write_text(
        "file,verdict,period_s\na.csv,periodic,1.0\na.csv,periodic,9\n", encoding="utf-8"
    )
    (case,) = real_cases(tmp_path)
    assert case.verdict is Verdict.PERIODIC
    assert [low_s for low_s, _ in case.spans_s.values()] == [1.0, 9.0]
    (tmp_path / "truths.csv").write_text("file,verdict,period_s\na.csv,sometimes,1.0\n", encoding="utf-8")
    with pytest.raises(InputError):
        list(real_cases(tmp_path))


@pytest.mark.parametrize("kind", [IDLE, WINDOW, HIDDEN_STEPS, BEAT])
def test_traces_as_users_record_them_are_answered(kind):
    cases = [case for case in recorded_cases(seed=11) if case.kind == kind][:4]
    judged = [judge(case, find_period(case.samples), detector="d") for case in cases]
    assert sum(own.outcome in (AnswerOutcome.RIGHT, AnswerOutcome.NEAR) for own in judged) >= 3
    # Of those, no answer is wrong by a factor.
    assert all(own.outcome is not AnswerOutcome.HARMONIC for own in judged)


def test_steps_of_varying_length_are_never_called_aperiodic():
    cases = [case for case in recorded_cases(seed=11) if case.kind == UNEVEN]
    assert all(find_period(case.samples).verdict is not Verdict.APERIODIC for case in cases)


def test_a_cycle_that_is_called_a_step_is_wrong():
    case = replace(STEPS, level=CycleKind.CYCLE)
    cycle = PeriodCycle(kind=CycleKind.CYCLE, period_s=20.0, error_s=0.1, strength=0.5)
    answer = PeriodAnswer(verdict=Verdict.PERIODIC, period_s=20.0, cycles=(cycle,))
    assert judge(case, answer, detector="d").outcome is AnswerOutcome.RIGHT
    named = replace(answer, cycles=(replace(cycle, kind=CycleKind.STEP),))
    assert judge(case, named, detector="d").outcome is AnswerOutcome.WRONG


def test_windows_of_a_real_trace_are_cut_from_its_active_part():
    case = next(case for case in recorded_cases(seed=11) if case.kind == IDLE)
    cut = list(windows(case))
    assert cut
    assert all(19.0 < own.samples.duration_s < WINDOW_S for own in cut)
    assert all(own.periods_s == case.periods_s for own in cut)
