"""Our policy for running programs: few trials, then hold, within the slowdown limit."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.objective import EnergyDelay, LeastCost, LeastEnergy, PowerBudget
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import SEVERAL_STEPS, Purpose, Window
from wattune.levels.run.policy import CurvePolicy, error_by_length
from wattune.physics.catalog import load_model
from wattune.response.ensemble import programs_at
from wattune.response.evidence import evidence
from wattune.response.points import ClockPoint, PointScale, candidates_of
from wattune.response.posterior import posterior_of
from wattune_bench.family import family
from wattune_bench.run.family_program import FamilyProgram, play_program

A100 = GpuSpec(
    name="A100",
    uuid="GPU-0",
    clocks=(ClockTable(1215, tuple(range(210, 1411, 15))),),
    power_limits=PowerLimits(100.0, 400.0, 400.0),
)
TOP_MHZ = 1410


def time_of(sm_mhz):
    """A program that is half compute: the rest does not feel the clock."""
    return 0.5 + 0.5 * TOP_MHZ / sm_mhz


def power_of(sm_mhz):
    volt = 1.0 + max(sm_mhz - 990, 0) / (TOP_MHZ - 990) * 0.44
    return 60.0 + 0.11 * sm_mhz * volt**2


def seen(setting, purpose=Purpose.TRIAL, *, error=0.002, start_s=0.0, length_s=10.0, luck=0.0, **more):
    sm_mhz = setting.sm_mhz or TOP_MHZ
    step_time_s, power_w = time_of(sm_mhz) * (1 + luck), power_of(sm_mhz)
    window = Window(
        setting=setting,
        purpose=purpose,
        start_s=start_s,
        cost=Measurement(length_s, power_w * length_s, None, 0.004 * power_w * length_s),
        settling=Measurement(0.0, 0.0),
        step_time_s=step_time_s,
        step_time_error_s=1.96 * error * step_time_s,
        sm_mhz=float(sm_mhz),
    )
    return replace(window, **more)


def played(policy, *, windows=14, luck=None, spec=A100):
    """The windows and orders of a run in which everything is as `time_of` and `power_of` say."""
    found, orders, start_s = [], [], 0.0
    for number in range(windows):
        order = policy.step(tuple(found), spec)
        orders.append(order)
        found.append(
            seen(
                order.setting,
                order.purpose,
                start_s=start_s,
                length_s=order.least_s,
                luck=0.0 if luck is None else luck[number],
            )
        )
        start_s += order.least_s
    return found, orders


def best_within(slowdown):
    allowed = [mhz for mhz in A100.sm_clocks_mhz if time_of(mhz) <= 1 + slowdown]
    return min(allowed, key=lambda mhz: time_of(mhz) * power_of(mhz))


def test_the_policy_starts_with_a_baseline_of_given_precision():
    order = CurvePolicy(objective=LeastEnergy(0.05)).step((), A100)
    assert order.purpose is Purpose.BASELINE
    assert order.setting == DRIVER_DEFAULT
    assert order.precision is not None
    assert order.least_s <= order.most_s


def test_the_same_windows_give_the_same_order():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows = (seen(DRIVER_DEFAULT, Purpose.BASELINE), seen(Setting(1200)))
    assert policy.step(windows, A100) == policy.step(windows, A100)


def test_holds_near_the_optimum_after_few_trials():
    _, orders = played(CurvePolicy(objective=LeastEnergy(0.05)))
    assert sum(order.purpose is Purpose.TRIAL for order in orders) <= 4
    held = [order for order in orders if order.purpose is Purpose.HOLD][-1]
    assert held.setting.sm_mhz == pytest.approx(best_within(0.05), abs=45)


@pytest.mark.parametrize("slowdown", [0.0, 0.02, 0.1])
def test_the_whole_run_meets_the_slowdown_limit(slowdown):
    policy = CurvePolicy(objective=LeastEnergy(slowdown))
    beyond = []
    for seed in range(10):
        found, _ = played(policy, luck=0.002 * np.random.default_rng(seed).standard_normal(14))
        took_s = sum(window.cost.time_s for window in found)
        default_s = sum(window.cost.time_s / time_of(window.setting.sm_mhz or TOP_MHZ) for window in found)
        beyond.append(took_s / default_s - 1 - slowdown)
    # At 98 % confidence a decision may be wrong, and then by less than the error of a window.
    assert sum(one > 1e-9 for one in beyond) <= 1
    assert max(beyond) <= 0.001


def test_every_order_is_a_setting_that_the_gpu_has():
    model = load_model("3080ti")
    program = FamilyProgram.of(model, family()[11], seconds=300.0)
    outcome = play_program(program, CurvePolicy(objective=LeastEnergy(0.05)), slowdown=0.05, seed=0)
    assert outcome.windows
    for window in outcome.windows:
        model.spec().check(window.setting)


def test_a_program_that_is_slower_than_expected_is_rolled_back():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    found, orders = played(policy, windows=8)
    held = next(order.setting for order in reversed(orders) if order.setting != DRIVER_DEFAULT)
    slow = replace(
        seen(held, Purpose.HOLD, start_s=900.0, length_s=600.0, error=0.001), step_time_s=time_of(held.sm_mhz) * 1.2
    )
    order = policy.step((*found, slow), A100)
    assert (order.setting.sm_mhz or TOP_MHZ) > held.sm_mhz


def test_a_change_starts_again_with_a_baseline():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    found, _ = played(policy, windows=6)
    order = policy.step((*found[:-1], replace(found[-1], changed=True)), A100)
    assert order.purpose is Purpose.BASELINE


def test_half_of_a_unit_does_not_mislead_the_policy():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows = (seen(DRIVER_DEFAULT, Purpose.BASELINE), seen(Setting(1200)), seen(Setting(1200)))
    halved = (
        *windows[:2],
        replace(windows[2], step_time_s=windows[2].step_time_s / 2, step_time_error_s=windows[2].step_time_error_s / 2),
    )
    assert policy.step(halved, A100).setting == policy.step(windows, A100).setting


def blind(setting, purpose, **more):
    return seen(setting, purpose, step_time_s=None, step_time_error_s=None, sm_util=0.99, mem_util=None, **more)


def test_without_step_times_nothing_is_set():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows, orders = [blind(DRIVER_DEFAULT, Purpose.BASELINE)], []
    for _ in range(8):
        orders.append(policy.step(tuple(windows), A100))
        windows.append(blind(orders[-1].setting, orders[-1].purpose))
    assert {order.setting for order in orders} == {DRIVER_DEFAULT}
    remarks = [order.remark for order in orders if order.remark]
    assert len(remarks) == 1
    assert "no step time of the program is known" in remarks[0]
    assert "not a measurement" in remarks[0]
    # The search begins as soon as a baseline shows them.
    later = policy.step((*windows, seen(DRIVER_DEFAULT, Purpose.BASELINE)), A100)
    assert later.setting != DRIVER_DEFAULT


def test_settings_without_a_step_time_are_left_and_then_given_up():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows, orders = [seen(DRIVER_DEFAULT, Purpose.BASELINE)], []
    for _ in range(6):
        orders.append(policy.step(tuple(windows), A100))
        made = seen if orders[-1].setting == DRIVER_DEFAULT else blind
        windows.append(made(orders[-1].setting, orders[-1].purpose))
    tried = [order.setting for order in orders if order.setting != DRIVER_DEFAULT]
    assert 1 <= len(tried) == len(set(tried)) <= 2
    assert (orders[-1].setting, orders[-1].purpose) == (DRIVER_DEFAULT, Purpose.HOLD)
    assert any("nothing is held that cannot be checked" in order.remark for order in orders)


@pytest.mark.parametrize("step_s", [3.0, 20.0])
def test_windows_are_long_enough_for_several_steps(step_s):
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows = [replace(seen(DRIVER_DEFAULT, Purpose.BASELINE), step_time_s=step_s, step_time_error_s=0.002 * step_s)]
    for _ in range(6):
        order = policy.step(tuple(windows), A100)
        if order.purpose is not Purpose.BASELINE:
            assert order.most_s >= SEVERAL_STEPS * step_s
        own_s = step_s * time_of(order.setting.sm_mhz or TOP_MHZ)
        windows.append(replace(seen(order.setting, order.purpose), step_time_s=own_s, step_time_error_s=0.002 * own_s))


def test_a_gpu_without_any_setting_is_not_tuned():
    fixed = replace(A100, clocks=(), power_limits=None)
    windows = (seen(DRIVER_DEFAULT, Purpose.BASELINE),)
    order = CurvePolicy(objective=LeastEnergy(0.05)).step(windows, fixed)
    assert (order.setting, order.purpose) == (DRIVER_DEFAULT, Purpose.HOLD)


def test_limits_are_tried_where_clocks_cannot_be_set():
    limits = replace(A100, clocks=())
    assert all(setting.power_limit_w for setting in candidates_of(limits))
    window = replace(seen(DRIVER_DEFAULT, Purpose.BASELINE), sm_mhz=None)
    order = CurvePolicy(objective=LeastEnergy(0.2)).step((window,), limits)
    assert order.setting.power_limit_w is not None


@pytest.mark.parametrize(
    ("objective", "low_mhz", "high_mhz"),
    [
        (LeastCost(1.0, 400.0), 700, 1100),
        (LeastCost(0.0, 400.0), 1380, 1410),
        (EnergyDelay(1.0), 900, 1200),
        (PowerBudget(200.0), 900, 1200),
    ],
)
def test_other_objectives(objective, low_mhz, high_mhz):
    _, orders = played(CurvePolicy(objective=objective))
    assert low_mhz <= (orders[-1].setting.sm_mhz or TOP_MHZ) <= high_mhz


def test_idle_states_of_the_memory_are_for_idle_memories():
    spec = load_model("3080ti").spec()
    usual = {setting.mem_mhz for setting in candidates_of(spec, traffic=0.3)}
    assert usual == {None, 9251, 5001}
    assert {setting.mem_mhz for setting in candidates_of(spec, traffic=0.001)} == {None, 9251, 5001, 810, 405}


def test_the_ensemble_is_monotone_and_within_physical_bounds():
    points = tuple(ClockPoint(x, 1.0, np.inf) for x in np.linspace(0.2, 1.0, 17).round(3))
    fields = programs_at(points)
    assert (np.diff(fields.log_time, axis=1) <= 1e-12).all()
    assert (np.diff(fields.log_power, axis=1) >= -1e-9).all()
    # Nothing gets slower by more than the clock, but for the way to the memory, which may lose a little more.
    assert (fields.log_time[:, 8] - fields.log_time[:, -1] <= 1.2 * log(1.0 / points[8].x) + 1e-9).all()


def test_measurements_shrink_the_error_and_move_the_mean():
    scale = PointScale.of(A100)
    settings = tuple(Setting(mhz) for mhz in (900, 1110, 1200, 1410))
    points = tuple(scale.point(setting, setting.sm_mhz) for setting in settings)
    base = scale.point(DRIVER_DEFAULT, 1410.0)
    one = (seen(DRIVER_DEFAULT, Purpose.BASELINE),)
    before = posterior_of(points, evidence(one, scale), free_power=False).slower(base)
    after = posterior_of(points, evidence((*one, seen(Setting(1110))), scale), free_power=False).slower(base)
    assert after[1][1] < 0.005 < before[1][1]
    assert exp(after[0][1]) == pytest.approx(time_of(1110) / time_of(1410), rel=0.006)
    assert exp(after[0][2]) == pytest.approx(time_of(1200) / time_of(1410), rel=0.01)


def test_errors_by_window_length_are_estimated():
    alike = tuple(seen(Setting(1200), length_s=length_s, error=0.01) for length_s in (4.0, 20.0, 80.0, 240.0))
    assert error_by_length(alike)(80.0) == pytest.approx(0.01, rel=0.15)
    falling = tuple(seen(Setting(1200), length_s=s, error=0.01 / (s / 4) ** 0.5) for s in (4.0, 20.0, 80.0, 240.0))
    assert error_by_length(falling)(80.0) == pytest.approx(0.01 / 20**0.5, rel=0.2)


def test_a_program_that_does_not_follow_the_clock_is_left_alone():
    policy = CurvePolicy(objective=LeastEnergy(0.05))
    windows = [seen(DRIVER_DEFAULT, Purpose.BASELINE, source="steps", sm_util=1.0, mem_util=0.3)]
    for _ in range(14):
        order = policy.step(tuple(windows), A100)
        own = seen(order.setting, order.purpose, source="steps", sm_util=1.0, mem_util=0.3)
        windows.append(replace(own, step_time_s=1.0, step_time_error_s=0.002))
    doubtful = (*windows, replace(seen(Setting(360), source="steps"), step_time_s=1.0, step_time_error_s=0.002))
    order = policy.step(doubtful, A100)
    assert (order.setting, order.purpose) == (DRIVER_DEFAULT, Purpose.HOLD)
    assert "does not follow the clock" in order.remark
    again = [*doubtful[:-1], replace(doubtful[-1], changed=True), windows[0]]
    for _ in range(6):  # also after a change of the program, so that what is held fits what was said
        order = policy.step(tuple(again), A100)
        assert order.setting == DRIVER_DEFAULT
        again.append(seen(order.setting, order.purpose, source="steps", sm_util=1.0, mem_util=0.3))
