"""GPOEO's comparison, its search over clocks, and the cubic at its end."""

import numpy as np
import pytest

from plain_program import PlainProgram
from wattune.levels.run.gpoeo.search import (
    UNMEASURED,
    CoreSearch,
    GpoeoPoint,
    GpoeoRule,
    cubic,
    ladder_of,
    search_memory,
)
from wattune.physics.catalog import load_model

SPEC = load_model("3080ti").spec()
LADDER = ladder_of(SPEC)
RULE = GpoeoRule(GpoeoPoint(1.0, 100.0), 0.045)


def finished(procedure):
    """What a procedure comes back with that never gives an order."""
    with pytest.raises(StopIteration) as over:
        next(procedure)
    return over.value.value


def measuring(program, asked):
    def measure(setting, why):
        asked.append(setting)
        return GpoeoPoint(program.step_s(setting), program.energy_j(setting))
        yield

    return measure


def test_of_two_allowed_settings_the_better_reward_wins():
    slow_and_cheap, fast_and_costly = GpoeoPoint(1.04, 80.0), GpoeoPoint(1.0, 100.0)
    assert RULE.better(slow_and_cheap, fast_and_costly)
    assert not RULE.better(slow_and_cheap, fast_and_costly, factor=0.85)
    assert not RULE.better(GpoeoPoint(1.04, 95.0), fast_and_costly)  # 95·1.04² is more than 100


def test_a_setting_that_is_too_slow_is_worse_than_any_allowed_one():
    assert RULE.better(GpoeoPoint(1.04, 500.0), GpoeoPoint(1.05, 1.0))
    assert RULE.better(GpoeoPoint(1.06, 500.0), GpoeoPoint(1.07, 1.0))
    assert not RULE.better(UNMEASURED, GpoeoPoint(2.0, 1.0))


def test_the_highest_clock_is_best_where_none_is_allowed():
    assert RULE.best([GpoeoPoint(1.2, 1.0), GpoeoPoint(1.1, 1.0), GpoeoPoint(1.3, 1.0)]) == 2


def test_the_ladder_begins_at_450_mhz():
    assert (LADDER.sm_mhz[0], LADDER.sm_mhz[-1], LADDER.count) == (450, 2055, 124)
    assert LADDER.mem_mhz == (405, 810, 5001, 9251, 9501)
    assert not LADDER.allows(0, 405)


def test_a_ladder_at_a_memory_clock_has_the_clocks_of_that_table():
    assert LADDER.at(9251) == LADDER
    assert LADDER.at(405).sm_mhz == LADDER.sm_mhz  # none of its clocks is searched at all
    assert LADDER.nearest(1000) == LADDER.sm_mhz.index(1005)


@pytest.mark.parametrize("start", [0, 40, 80, len(LADDER.sm_mhz) - 1])
def test_the_search_ends_near_the_best_clock_from_any_start(start):
    program, asked = PlainProgram(SPEC), []
    rule = GpoeoRule(GpoeoPoint(program.step_s(), program.energy_j()), 0.045)
    search = CoreSearch(measuring(program, asked), rule, LADDER, mem_mhz=9501, wide=False)
    found = LADDER.setting(finished(search.run(start)), 9501)
    every = [GpoeoPoint(program.step_s(setting), program.energy_j(setting)) for setting in LADDER.settings(9501)]
    best = rule.reward(every[rule.best(every)])
    assert program.step_s(found) / program.step_s() - 1 <= 0.045 + 2e-3
    assert rule.reward(GpoeoPoint(program.step_s(found), program.energy_j(found))) <= 1.03 * best
    assert len(asked) == len(set(asked)) <= 16


def test_the_memory_search_tries_the_neighbours_and_keeps_the_best():
    program, asked = PlainProgram(SPEC), []
    rule = GpoeoRule(GpoeoPoint(program.step_s(), program.energy_j()), 0.045)
    chosen = finished(
        search_memory(measuring(program, asked), rule, LADDER, point=LADDER.nearest(2010), predicted=9251)
    )
    assert [setting.mem_mhz for setting in asked] == [9251, 9501, 5001]
    assert chosen in (9251, 9501)


def test_a_memory_clock_that_is_too_slow_makes_the_search_go_up():
    program, asked = PlainProgram(SPEC), []
    rule = GpoeoRule(GpoeoPoint(program.step_s(), program.energy_j()), 0.045)
    finished(search_memory(measuring(program, asked), rule, LADDER, point=LADDER.top, predicted=5001))
    assert [setting.mem_mhz for setting in asked] == [5001, 9501, 9251]


def test_a_cubic_through_four_or_more_points_equals_numpys():
    points, values = [3, 20, 41, 77, 90], [5.0, 4.1, 3.9, 4.4, 5.2]
    at = range(3, 91)
    assert cubic(points, values, at) == pytest.approx(np.polyval(np.polyfit(points, values, 3), at))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_cubic_through_fewer_points_still_passes_through_them(count):
    points, values = [10, 40, 80][:count], [2.0, 1.5, 1.8][:count]
    found = cubic(points, values, range(10, 81))
    assert [found[point - 10] for point in points] == pytest.approx(values)
