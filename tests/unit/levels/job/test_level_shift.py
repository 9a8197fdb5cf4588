"""Detect shifts of the level of a repeated measurement."""

import numpy as np
import pytest

from wattune.levels.job.level_shift import shifts


def scattered(count, level, *, seed=0, sd=0.1, kinds=(1,)):
    generator = np.random.default_rng(seed)
    return [
        (kinds[i % len(kinds)], level + kinds[i % len(kinds)] + sd * generator.normal(), 0.01) for i in range(count)
    ]


def test_scatter_is_no_change_and_is_measured():
    for seed in range(30):
        found = shifts(scattered(150, 2.0, seed=seed), sd=0.12)
        assert set(found.interval) == {0}
        assert found.sd == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("change", [0.4, 0.9, -0.5])
def test_a_change_is_found_within_a_few_values_and_dated(change):
    for seed in range(10):
        values = scattered(30, 2.0, seed=seed) + scattered(5, 2.0 + change, seed=seed + 100)
        found = shifts(values, sd=0.12)
        assert found.interval[0] == 1
        assert found.interval[-1] == 0
        assert abs(found.interval.index(0) - 30) <= 6  # the sum may have begun to rise by chance before


def test_a_change_that_all_kinds_share_is_found_whichever_is_seen():
    values = scattered(40, 0.0, kinds=(1, 2, 3)) + scattered(6, 0.6, seed=1, kinds=(3, 1))
    assert shifts(values, sd=0.12).interval[-1] == 0
    assert max(shifts(values, sd=0.12).interval) == 1


def test_a_single_outlier_is_no_change():
    values = [*scattered(30, 2.0), (1, 9.0, 0.01), *scattered(5, 2.0, seed=3)]
    assert set(shifts(values, sd=0.12).interval) == {0}


def test_a_streak_of_bad_luck_is_taken_back_once_all_is_as_before():
    before, streak = scattered(40, 2.0), [(1, 3.35, 0.01)] * 6
    assert max(shifts([*before, *streak], sd=0.12).interval) == 1
    assert set(shifts([*before, *streak, *scattered(60, 2.0, seed=5)], sd=0.12).interval) == {0}


def test_changes_may_follow_each_other():
    values = scattered(20, 0.0) + scattered(20, 1.0, seed=1) + scattered(20, 0.2, seed=2)
    assert max(shifts(values, sd=0.12).interval) == 2


def test_nothing_is_no_change():
    assert shifts([], sd=0.12).interval == ()
