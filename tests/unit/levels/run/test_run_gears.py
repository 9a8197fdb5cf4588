"""What windows say together of each setting that a run was at."""

import pytest

from run_views import BASE_S, searched, window
from wattune.core.run_window import Purpose
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.view.settings import Estimate, chapters_of, cut


def test_windows_at_one_setting_are_one_gear_in_the_order_of_their_first_window():
    (chapter,) = chapters_of(searched())
    assert [gear.setting for gear in chapter.gears] == [DRIVER_DEFAULT, Setting(1440), Setting(1620), Setting(1545)]
    assert chapter.gear(Setting(1545)).purposes == {Purpose.TRIAL, Purpose.HOLD}
    assert chapter.gear(Setting(1545)).seconds == pytest.approx(9 + 40 + 2)


def test_a_pooled_pace_is_surer_than_its_parts_and_nearest_to_the_surest():
    (chapter,) = chapters_of(searched())
    pooled = chapter.gear(Setting(1545)).pace
    assert pooled.error < 0.002 * 1.033 * BASE_S
    assert 1.033 * BASE_S < pooled.value < 1.0335 * BASE_S


def test_windows_that_disagree_make_the_pooled_error_larger():
    apart = [
        window(DRIVER_DEFAULT, Purpose.BASELINE, start_s, 10.0, power_w=300.0, pace_s=pace_s, error=0.001)
        for start_s, pace_s in ((0.0, 1.0), (20.0, 1.05))
    ]
    (chapter,) = chapters_of(apart)
    assert chapter.baseline.pace.error > 0.02


def test_a_pace_without_an_error_makes_the_pooled_error_unknown():
    told = window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, pace_s=1.0, error=None)
    (chapter,) = chapters_of([told, told])
    assert chapter.baseline.pace == Estimate(1.0, None)
    assert chapter.baseline.unit.energy_error_j is None


def test_slowdown_and_saving_are_against_the_baseline_of_the_same_chapter():
    first = searched()[:2]
    second = (
        window(DRIVER_DEFAULT, Purpose.BASELINE, 30.0, 10.0, power_w=200.0, pace_s=2.0),
        window(Setting(1440), Purpose.TRIAL, 42.0, 10.0, power_w=150.0, pace_s=2.2),
    )
    changed = window(Setting(1440), Purpose.HOLD, 25.0, 4.0, power_w=232.0, pace_s=None, changed=True)
    early, late = chapters_of((*first, changed, *second))
    assert early.slowdown(early.gear(Setting(1440))).value == pytest.approx(0.062)
    assert late.slowdown(late.gear(Setting(1440))).value == pytest.approx(0.1)
    assert late.saving(late.gear(Setting(1440))).value == pytest.approx(1 - 150 * 2.2 / 400)
    assert len(cut((*first, changed))) == 2
    assert cut((*first, changed))[-1] == ()


def test_without_a_pace_or_a_baseline_nothing_is_compared():
    (blind,) = chapters_of([window(DRIVER_DEFAULT, Purpose.BASELINE, 0.0, 10.0, power_w=300.0, pace_s=None)])
    assert blind.baseline.pace is None
    assert blind.baseline.unit is None
    assert blind.saving(blind.baseline) is None
    (alone,) = chapters_of([window(Setting(1440), Purpose.TRIAL, 0.0, 10.0, power_w=300.0, pace_s=1.0)])
    assert alone.baseline is None
    assert alone.slowdown(alone.gears[0]) is None
    assert chapters_of(()) == ()
