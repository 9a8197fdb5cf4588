"""How long a setting will be held."""

import pytest

from synthetic_job import GPU, finished, remembered
from wattune.levels.job.profile import WINDOW_S, windows_to_come
from wattune.response.setting_search import HORIZON


def test_nothing_is_known_of_a_new_job():
    assert windows_to_come(remembered(), GPU, 128) == HORIZON


def test_a_new_size_is_held_for_a_run_and_an_old_one_for_as_many_more_as_there_were():
    runs = [finished(order, 128, 18) for order in range(3)]
    one = runs[0].cost.time_s / WINDOW_S
    assert windows_to_come(remembered(*runs), GPU, 256) == pytest.approx(one)
    assert windows_to_come(remembered(*runs), GPU, 128) == pytest.approx(4 * one)


def test_the_horizon_is_limited():
    runs = [finished(order, 128, 18) for order in range(300)]
    assert windows_to_come(remembered(*runs), GPU, 128) == windows_to_come(remembered(*runs[:250]), GPU, 128)
