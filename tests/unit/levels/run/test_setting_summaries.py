"""What windows say together of each setting that a run was at."""

import pytest

from run_views import BASE_S, searched, window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, phases_of
from wattune.levels.run.summaries import EstimateWithError, phase_summaries


def test_windows_at_one_setting_are_one_row_in_the_order_of_their_first_window():
    (phase,) = phase_summaries(searched())
    assert [point.setting for point in phase.points] == [
        DRIVER_DEFAULT,
        Setting(1440),
        Setting(1620),
        Setting(1545),
    ]
    assert phase.point(Setting(1545)).purposes == {Purpose.TRIAL, Purpose.HOLD}
    assert phase.point(Setting(1545)).seconds == pytest.approx(9 + 40 + 2)


def test_a_pooled_step_time_is_more_certain_than_each_and_nearest_to_the_most_certain():
    more = window(Setting(1545), Purpose.HOLD, 90.0, 9.0, power_w=243.0, step_time_s=1.034 * BASE_S)
    (phase,) = phase_summaries((*searched(), more))
    pooled = phase.point(Setting(1545)).step_time
    assert pooled.error < 0.002 * 1.033 * BASE_S
    assert 1.033 * BASE_S < pooled.value < 1.0335 * BASE_S


def test_the_trial_for_which_a_setting_was_chosen_does_not_judge_it():
    (phase,) = phase_summaries(searched())
    assert phase.point(Setting(1545)).step_time.value == pytest.approx(1.033 * BASE_S)
    assert phase.point(Setting(1545)).power.value == pytest.approx(242.0)


def test_windows_that_disagree_make_the_pooled_error_larger():
    differing = [
        window(DRIVER_DEFAULT, Purpose.BASELINE, start_s, 10.0, power_w=300.0, step_time_s=step_time_s, error=0.001)
        for start_s, step_time_s in ((0.0, 1.0), (20.0, 1.05))
    ]
    (phase,) = phase_summaries(differing)
    assert phase.baseline.step_time.error > 0.02


def test_a_step_time_without_an_error_makes_the_pooled_error_unknown():
    known = window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, step_time_s=1.0, error=None)
    (phase,) = phase_summaries([known, known])
    assert phase.baseline.step_time == EstimateWithError(1.0, None)
    assert phase.baseline.unit.energy_error_j is None


def test_slowdown_and_saving_are_against_the_baseline_of_the_same_phase():
    first = searched()[:2]
    second = (
        window(DRIVER_DEFAULT, Purpose.BASELINE, 30.0, 10.0, power_w=200.0, step_time_s=2.0),
        window(Setting(1440), Purpose.TRIAL, 42.0, 10.0, power_w=150.0, step_time_s=2.2),
    )
    changed = window(Setting(1440), Purpose.HOLD, 25.0, 4.0, power_w=232.0, step_time_s=None, changed=True)
    early, late = phase_summaries((*first, changed, *second))
    assert early.slowdown(early.point(Setting(1440))).value == pytest.approx(0.062)
    assert late.slowdown(late.point(Setting(1440))).value == pytest.approx(0.1)
    assert late.saving(late.point(Setting(1440))).value == pytest.approx(1 - 150 * 2.2 / 400)
    assert len(phases_of((*first, changed))) == 2
    assert phases_of((*first, changed))[-1] == ()


def test_without_a_step_time_or_a_baseline_nothing_is_compared():
    (blind,) = phase_summaries([window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, step_time_s=None)])
    assert blind.baseline.step_time is None
    assert blind.baseline.unit is None
    assert blind.saving(blind.baseline) is None
    (alone,) = phase_summaries([window(Setting(1440), Purpose.TRIAL, 0.0, 10.0, power_w=300.0, step_time_s=1.0)])
    assert alone.baseline is None
    assert alone.slowdown(alone.points[0]) is None
    assert phase_summaries(()) == ()
