"""Settings per phase, planned from a few windows of a run."""

from dataclasses import replace

import pytest

from wattune.control.stamps import HostStamp
from wattune.core.errors import PlanError
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, PhaseCost, PhaseSetting, Purpose, Window, by_phase_words
from wattune.levels.layer.phase_policy import (
    OneSetting,
    PhasePlan,
    PhasePolicy,
    PhaseRequests,
    measured_phases,
    plan_phases,
    too_short,
    worse,
)
from wattune.levels.layer.switching import SwitchCost
from wattune.physics.catalog import load_model

SPEC = load_model("rtx-a4000").spec()
SWITCHING = SwitchCost.of(SPEC)
TOP_MHZ = 1740.0
HELD = Setting(1590)


def cost_of(share, mhz, *, time_s=2.0):
    """A phase of which so large a share depends on the core clock; its power falls with the clock."""
    x = mhz / TOP_MHZ
    took_s = time_s * (share / x + 1.0 - share)
    return Measurement(took_s, took_s * (40.0 + 90.0 * x**2.5))


def window(setting, purpose, shares, *, time_s=2.0, **others):
    mhz = float(setting.sm_mhz or TOP_MHZ)
    phases = tuple(PhaseCost(name, cost_of(share, mhz, time_s=time_s), mhz) for name, share in shares.items())
    step_s, step_j = (sum(getattr(one.cost, name) for one in phases) for name in ("time_s", "energy_j"))
    return Window(
        setting=setting,
        purpose=purpose,
        start_s=0.0,
        cost=Measurement(7 * step_s, 7 * step_j),
        settling=Measurement(0.0, 0.0),
        step_time_s=step_s,
        step_time_error_s=0.001 * step_s,
        phases=phases,
        **others,
    )


def run_of(shares, *, time_s=2.0):
    return (
        window(DRIVER_DEFAULT, Purpose.BASELINE, shares, time_s=time_s),
        window(Setting(1185), Purpose.TRIAL, shares, time_s=time_s),
        window(HELD, Purpose.HOLD, shares, time_s=time_s),
    )


UNLIKE = {"forward": 1.0, "optimizer": 0.0}
ALIKE = {"forward": 0.9, "backward": 0.9}


def planned(windows, *, slowdown=0.05, switching=SWITCHING):
    return plan_phases(windows, SPEC, switching, slowdown=slowdown, single=HELD)


def test_unlike_phases_get_settings_of_their_own():
    plan = planned(run_of(UNLIKE))
    assert isinstance(plan, PhasePlan)
    forward, optimizer = plan.by_phase
    assert forward.setting.sm_mhz is None or forward.setting.sm_mhz > 1500
    assert optimizer.setting.sm_mhz < 1200
    assert plan.more_saving > 0.01


def test_the_plan_keeps_the_slowdown_limit_by_what_phases_really_cost():
    windows = run_of(UNLIKE)
    plan = planned(windows)
    took_s = sum(cost_of(UNLIKE[one.name], one.setting.sm_mhz or TOP_MHZ).time_s for one in plan.by_phase)
    assert took_s <= 1.05 * windows[0].step_time_s


def test_phases_alike_are_held_at_one_setting():
    assert isinstance(planned(run_of(ALIKE)), OneSetting)


def test_one_setting_measured_is_too_little_to_plan():
    (baseline, *_), wanted = run_of(UNLIKE), "too few"
    found = plan_phases((baseline,), SPEC, SWITCHING, slowdown=0.05, single=DRIVER_DEFAULT)
    assert isinstance(found, OneSetting)
    assert wanted in found.why


@pytest.mark.parametrize(("time_s", "is_short"), [(0.04, True), (0.39, True), (0.45, False), (3.0, False)])
def test_phases_shorter_than_the_least_dwell_are_too_short(time_s, is_short):
    phases = window(DRIVER_DEFAULT, Purpose.BASELINE, UNLIKE, time_s=time_s).phases
    found = too_short(phases, SWITCHING)
    assert (found is not None) is is_short
    if found is not None:
        assert "a clock takes 80 ms to change" in found.why


def test_neighbouring_short_phases_may_share_a_setting():
    phases = [PhaseCost(name, Measurement(time_s, 1.0)) for name, time_s in (("a", 0.3), ("b", 0.3), ("c", 1.0))]
    assert too_short(phases, SWITCHING) is None
    assert too_short(phases[:2], SWITCHING) is not None


def test_windows_that_were_not_held_or_had_other_phases_are_left_out():
    baseline, trial, held = run_of(UNLIKE)
    other = replace(held, phases=held.phases[:1])
    per_phase = replace(held, by_phase=(PhaseSetting("forward", HELD, 1.0),))
    found = measured_phases((baseline, replace(trial, held=False), other, per_phase))
    assert set(found) == {DRIVER_DEFAULT}


class Inside:
    """A policy that holds one setting."""

    name, tunes, uses_history, needs_counters = "inside", True, True, False

    def __init__(self):
        self.given = []

    def step(self, windows, spec):
        del spec
        self.given.append(windows)
        return Order(setting=HELD, purpose=Purpose.HOLD, least_s=5.0, most_s=5.0)


def policy():
    return PhasePolicy(Inside(), 0.05, lambda: SWITCHING)


def without_phases(windows):
    return tuple(replace(one, phases=()) for one in windows)


def test_orders_are_those_of_the_policy_inside_without_phases():
    own, windows = policy(), without_phases(run_of(UNLIKE))
    assert own.step(windows, SPEC) == Inside().step(windows, SPEC)
    assert own.inner.given == [windows]


def test_short_phases_change_nothing_but_a_remark_after_the_baseline():
    own, windows = policy(), run_of(UNLIKE, time_s=0.05)
    first = own.step(windows[:1], SPEC)
    assert "one setting is held" in first.remark
    assert replace(first, remark="") == Inside().step((), SPEC)
    assert own.step(windows, SPEC) == Inside().step((), SPEC)


def test_long_phases_that_differ_are_held_per_phase_with_windows_of_enough_steps():
    windows = run_of(UNLIKE)
    order = policy().step(windows, SPEC)
    assert order.by_phase
    assert order.setting == HELD
    assert order.least_s >= 7 * sum(one.cost.time_s for one in windows[0].phases)


def test_settings_per_phase_are_planned_only_for_a_setting_that_was_measured():
    baseline, trial, _ = run_of(UNLIKE)
    assert policy().step((baseline, trial), SPEC).by_phase == ()


def test_a_baseline_without_a_step_time_is_measured_again_for_longer():
    baseline = replace(run_of(UNLIKE)[0], step_time_s=None)
    order = policy().step((baseline,), SPEC)
    assert order.purpose is Purpose.BASELINE
    assert order.least_s > 20.0


def held_per_phase(windows, *, slower, saved):
    order = policy().step(windows, SPEC)
    base, unit = windows[0].step_time_s, windows[2].unit
    step_s = base * (1 + slower)
    power_w = unit.energy_j * (1 - saved) / step_s
    own = replace(
        windows[2], by_phase=order.by_phase, step_time_s=step_s, cost=Measurement(7 * step_s, 7 * step_s * power_w)
    )
    return (*windows, own)


def test_settings_per_phase_are_kept_while_they_save_within_the_limit():
    windows = held_per_phase(run_of(UNLIKE), slower=0.045, saved=0.05)
    assert worse(windows, slowdown=0.05) is None
    order = policy().step(windows, SPEC)
    assert order.by_phase == windows[-1].by_phase


@pytest.mark.parametrize(
    ("slower", "saved", "why"), [(0.07, 0.05, "takes 7.0 % longer"), (0.04, -0.01, "saves nothing more")]
)
def test_settings_per_phase_end_where_they_are_too_slow_or_save_nothing(slower, saved, why):
    own = policy()
    windows = held_per_phase(run_of(UNLIKE), slower=slower, saved=saved)
    order = own.step(windows, SPEC)
    assert why in order.remark
    assert order.by_phase == ()
    assert own.inner.given[-1] == windows[:-1]  # windows per phase are no evidence about one setting
    later = (*windows, window(HELD, Purpose.HOLD, UNLIKE))
    assert own.step(later, SPEC).by_phase == ()


BY_PHASE = (PhaseSetting("forward", Setting(1635), 2.0), PhaseSetting("optimizer", Setting(1020), 1.0))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_requests_are_made_ahead_of_each_phase():
    clock = Clock()
    player = PhaseRequests(BY_PHASE, switching=SWITCHING, spec=SPEC, now_s=clock)
    assert player.begin("optimizer", HostStamp(clock())) == ()  # it begins with a whole step
    player.begin("forward", HostStamp(clock()))
    player.begin("optimizer", HostStamp(clock()))
    ((setting, is_due),) = player.begin("forward", HostStamp(clock()))
    assert setting == Setting(1020)
    assert not is_due()
    clock.now_s += 2.0 - SWITCHING.sm_latency_s - 0.01
    assert not is_due()
    clock.now_s += 0.02
    assert is_due()


def test_an_unknown_phase_is_refused():
    player = PhaseRequests(BY_PHASE, switching=SWITCHING, spec=SPEC, now_s=Clock())
    player.begin("forward", HostStamp(0.0))
    with pytest.raises(PlanError, match="evaluation"):
        player.begin("evaluation", HostStamp(0.0))


def test_settings_per_phase_in_words():
    same = (*BY_PHASE, PhaseSetting("all-reduce", Setting(1020), 1.0))
    assert by_phase_words(same) == "forward 1635 MHz; optimizer, all-reduce 1020 MHz"
    assert by_phase_words(()) == ""
