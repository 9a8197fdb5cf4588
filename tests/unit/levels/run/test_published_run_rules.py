"""The published run-level rules on programs of plain numbers, where what they should find is known."""

import pytest

from plain_program import PerfectModels, PlainProgram, played
from wattune.core.gpu_spec import GpuSpec, PowerLimits
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Purpose
from wattune.levels.run.gpoeo.policy import GpoeoPolicy, untaught
from wattune.physics.catalog import catalog_names, load_model
from wattune_bench.run import odpp
from wattune_bench.run.mf_gpoeo import MfGpoeoPolicy
from wattune_bench.run.odpp import OdppPolicy
from wattune_bench.run.zeus_limit import ZeusLimitPolicy

SPEC = load_model("3080ti").spec()
RULES = (
    GpoeoPolicy(learn=untaught),
    OdppPolicy(learn=odpp.untaught),
    MfGpoeoPolicy(),
    ZeusLimitPolicy(),
)


def names(rules):
    return pytest.mark.parametrize("rule", rules, ids=[rule.name for rule in rules])


def slowdown(program, setting):
    return program.step_s(setting) / program.step_s() - 1


@names(RULES)
def test_a_policy_saves_within_its_slowdown_limit_without_noise(rule):
    program = PlainProgram(SPEC)
    held = played(rule, program)[-1].setting
    saving = 1 - program.energy_j(held) / program.energy_j()
    # ODPP compares with 1920 MHz and not with the default, which costs it up to 4 % more.
    assert slowdown(program, held) <= (0.09 if rule.name == "odpp" else 0.05)
    assert saving > 0.03


@names(RULES)
@pytest.mark.parametrize("gpu", catalog_names())
def test_a_policy_orders_only_settings_that_the_gpu_has(rule, gpu):
    program = PlainProgram(load_model(gpu).spec())
    windows = played(rule, program, until=lambda windows: sum(w.purpose is Purpose.HOLD for w in windows) == 2)
    assert windows[-1].setting == windows[-2].setting


@names(RULES)
def test_a_policy_does_not_tune_a_program_without_step_time_and_counters(rule):
    program = PlainProgram(SPEC, has_step_time=False, has_counters=False)
    assert played(rule, program)[-1].setting == DRIVER_DEFAULT


@names([GpoeoPolicy(learn=untaught), MfGpoeoPolicy(), ZeusLimitPolicy()])
def test_counters_replace_a_step_time(rule):
    program = PlainProgram(SPEC, has_step_time=False)
    held = played(rule, program)[-1].setting
    assert held != DRIVER_DEFAULT
    assert slowdown(program, held) <= 0.05


@names(RULES)
def test_a_gpu_without_settings_is_not_tuned(rule):
    spec = GpuSpec(name="Fixed", uuid="GPU-fixed", clocks=(), power_limits=None)
    order = rule.step((), spec)
    assert (order.setting, order.purpose) == (DRIVER_DEFAULT, Purpose.HOLD)


@names(RULES[:3])
def test_clock_policies_do_not_tune_a_gpu_with_power_limits_only(rule):
    spec = GpuSpec(name="Limits", uuid="GPU-limits", clocks=(), power_limits=PowerLimits(100, 250, 250))
    assert rule.step((), spec).setting == DRIVER_DEFAULT


@names([GpoeoPolicy(learn=untaught), OdppPolicy(learn=odpp.untaught), MfGpoeoPolicy()])
def test_a_program_that_changes_is_searched_again(rule):
    program = PlainProgram(SPEC)
    windows = played(rule, program)
    program.factor, program.host_s = 0.5, 3.0
    for _ in range(20):
        windows.append(program.window(rule.step(tuple(windows), SPEC)))
        if windows[-1].purpose is not Purpose.HOLD:
            return
    pytest.fail(f"{rule.name} did not notice")


def test_gpoeo_with_good_models_needs_no_bracket_above():
    program = PlainProgram(SPEC)
    models = PerfectModels(program)
    windows = played(GpoeoPolicy(learn=lambda _: models), program)
    trials = [window.setting.sm_mhz for window in windows if window.purpose is Purpose.TRIAL]
    held = windows[-1].setting
    assert max(trials) - min(trials) < 600
    assert slowdown(program, held) <= 0.045 + 1e-3


def test_gpoeo_spends_minutes_on_its_search():
    program = PlainProgram(SPEC)
    models = PerfectModels(program)
    windows = played(GpoeoPolicy(learn=lambda _: models), program)
    assert 100 < windows[-1].start_s < 300
    reference = [window for window in windows if window.purpose is Purpose.REFERENCE]
    assert {window.setting.sm_mhz for window in reference} == {1800}
    assert {window.setting.mem_mhz for window in reference} == {9251}
    assert sum(window.cost.time_s for window in reference) == pytest.approx(
        25 + 4.4 * program.step_s(reference[0].setting)
    )


def test_gpoeo_measures_the_default_once():
    program = PlainProgram(SPEC)
    windows = played(GpoeoPolicy(learn=untaught), program)
    assert sum(window.purpose is Purpose.BASELINE for window in windows) == 1


def test_odpp_measures_seven_clocks():
    windows = played(OdppPolicy(learn=odpp.untaught), PlainProgram(SPEC))
    assert [window.setting.sm_mhz for window in windows[:4]] == [450, 945, 1425, 1920]
    assert len({window.setting.sm_mhz for window in windows[:-1]}) == 7


def test_mf_gpoeo_lowers_the_memory_clock_of_a_program_that_hardly_uses_it():
    program = PlainProgram(SPEC, memory_s=0.001)
    assert played(MfGpoeoPolicy(), program)[-1].setting.mem_mhz in (5001, 810)
    assert played(MfGpoeoPolicy(), PlainProgram(SPEC, memory_s=0.6))[-1].setting.mem_mhz is None
