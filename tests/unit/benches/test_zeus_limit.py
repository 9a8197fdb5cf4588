"""Zeus's power limit: the limits it profiles, and what it selects."""

import pytest

from plain_program import PlainProgram, played
from wattune.core.measurement import Measurement
from wattune.physics.catalog import load_model
from wattune_bench.run.zeus_limit import ZeusLimitPolicy, lowest_limit_w, power_limits_w

SPEC = load_model("3080ti").spec()
LIMITS_W = (300.0, 275.0, 250.0, 225.0, 200.0)
COSTS = tuple(
    Measurement(time_s, energy_j)
    for time_s, energy_j in ((1.0, 290.0), (1.01, 270.0), (1.04, 255.0), (1.06, 235.0), (1.2, 231.0))
)


def test_the_limits_go_from_the_highest_down_in_steps_of_25_w():
    limits_w = power_limits_w(SPEC)
    assert (limits_w[0], limits_w[1], limits_w[-1], len(limits_w)) == (380.0, 355.0, 105.0, 12)


def test_every_limit_is_profiled_once_and_then_one_is_held():
    program = PlainProgram(SPEC)
    windows = played(ZeusLimitPolicy(), program)
    profiled = [window.setting.power_limit_w for window in windows[1:-1]]
    assert profiled == list(power_limits_w(SPEC))
    assert program.step_s(windows[-1].setting) <= 1.05 * program.step_s(windows[0].setting)


def test_the_lowest_limit_within_the_slowdown_is_selected():
    assert lowest_limit_w(LIMITS_W, COSTS, slowdown=0.05) == 250.0
    assert lowest_limit_w(LIMITS_W, COSTS, slowdown=0.0) == 300.0


@pytest.mark.parametrize("slowdown", [0.05, 0.0])
def test_the_selection_is_that_of_the_package(slowdown):
    zeus = pytest.importorskip("zeus.optimizer.power_limit")
    theirs = zeus.MaxSlowdownConstraint(1.0 + slowdown)
    measured = [
        zeus.PowerLimitMeasurement(power_limit=int(limit_w), energy=cost.energy_j, time=cost.time_s)
        for limit_w, cost in zip(LIMITS_W, COSTS, strict=True)
    ]
    assert lowest_limit_w(LIMITS_W, COSTS, slowdown=slowdown) == theirs.select(measured)
