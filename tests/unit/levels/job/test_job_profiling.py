"""The pure steps of profiling: warm up, measure, decide, hold; refused settings and earlier profiles."""

from dataclasses import astuple, replace

import pytest

from wattune.control.window_state import Measuring, Settling
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import LeastCost
from wattune.core.setting import Setting
from wattune.levels.job.gpus import job_settings
from wattune.levels.job.options import JobKnob, knob_named
from wattune.levels.job.profiling import (
    ONE_INTERVAL,
    Checking,
    Interval,
    IntervalWindow,
    ProfileHeld,
    ProfilingProgress,
    SettingProfiling,
    Windows,
    standard_error,
    window_cost,
    windows_for,
)
from wattune.response.setting_search import SettingSearch

LIMITS = tuple(Setting(power_limit_w=float(watts)) for watts in (150, 200, 250, 300))
STEP = {150: (1.6, 145.0), 200: (1.08, 190.0), 250: (1.02, 230.0), 300: (1.0, 260.0)}
"""Seconds and watts of an iteration at each limit."""


def policy(**changes):
    search = SettingSearch(objective=LeastCost(0.5, 300.0), max_power_w=300.0)
    return replace(SettingProfiling(search=search, candidates=LIMITS), **changes)


def work(setting, steps, *, scale=1.0, joined=True):
    time_s, power_w = STEP[int(setting.power_limit_w)]
    return Interval(steps, steps * time_s, steps * time_s * power_w * scale, joined)


def settling(setting, **changes):
    return ProfilingProgress(Settling(setting, Interval(0, 0.0, 0.0)), **changes)


def measuring(setting, step_s):
    return ProfilingProgress(Measuring(setting, IntervalWindow(step_s)))


def played(profiling, progress, *, scale=1.0):
    """Return the states that the policy goes through until it holds."""
    states = [progress]
    while not isinstance(states[-1].state, ProfileHeld):
        assert len(states) < 500
        now = states[-1]
        states.append(profiling.step(now, work(now.setting, profiling.steps(now), scale=scale)))
    return states


def test_a_run_goes_from_warming_to_measuring_to_holding():
    profiling = policy()
    states = played(profiling, profiling.start())
    assert [type(each.state) for each in states[:2]] == [Settling, Measuring]
    assert states[0].setting == LIMITS[-1]
    assert states[-1].setting == LIMITS[1]
    assert profiling.steps(states[-1]) is None
    assert all(
        abs(trial.cost.time_s - STEP[int(trial.choice.power_limit_w)][0]) < 0.02 for trial in states[-1].state.trials
    )


def test_a_window_is_as_long_as_the_counter_needs():
    slow, quick = (policy(windows=Windows(counter_period_s=period_s)) for period_s in (0.5, 0.01))
    assert slow.steps(measuring(LIMITS[-1], 0.1)) == 50
    assert quick.steps(measuring(LIMITS[-1], 0.1)) == 10


def test_what_scatters_is_measured_for_longer_but_not_for_ever():
    profiling = policy()
    state, intervals = measuring(LIMITS[-1], 1.0), 0
    while isinstance(state.state, Measuring):
        slower = 1.3 if intervals % 2 else 1.0
        state = profiling.step(state, Interval(1, slower, slower * 250.0, True))
        intervals += 1
    assert intervals == 14  # 15 s
    calm = played(profiling, measuring(LIMITS[-1], 1.0))
    assert [type(one.state) for one in calm].index(Settling) == 5  # as long as the counter needs


def test_one_iteration_that_takes_minutes_is_a_window():
    profiling = policy()
    state = profiling.step(measuring(LIMITS[-1], 100.0), Interval(1, 100.0, 26000.0))
    assert isinstance(state.state, Settling)
    assert len(state.windows) == 1


def test_pieces_of_short_epochs_add_up_to_a_window():
    profiling = policy()
    state = measuring(LIMITS[-1], 0.01)
    pieces = 0
    while isinstance(state.state, Measuring):
        state = profiling.step(state, Interval(30, 0.3, 78.0, joined=False))
        pieces += 1
    assert 10 < pieces <= 51


def test_a_replay_passes_one_interval_per_window():
    profiling = policy(windows=replace(ONE_INTERVAL, counter_period_s=0.0))
    states = played(profiling, profiling.start())
    windows = states[-1].windows
    assert len(windows) == len(states) - 1
    for trial in windows:
        time_s, power_w = STEP[int(trial.choice.power_limit_w)]
        cost = Measurement(
            time_s, time_s * power_w, SIGMAS_95 * 0.01 * time_s, SIGMAS_95 * 0.01 * 2**0.5 * time_s * power_w
        )
        assert astuple(trial.cost) == pytest.approx(astuple(cost))


def test_a_refused_setting_is_never_proposed_again():
    profiling = policy()
    state = profiling.refused(profiling.start())
    assert state.setting == LIMITS[2]
    held = played(profiling, state)[-1]
    assert LIMITS[3] in held.refused
    assert held.setting in LIMITS[:3]
    again = profiling.refused(held)
    assert isinstance(again.state, ProfileHeld)
    assert again.setting not in (held.setting, LIMITS[3])


def test_where_everything_is_refused_nothing_is_set():
    profiling, tried = policy(), []
    state = profiling.start()
    while state.setting is not None:
        tried.append(state.setting)
        state = profiling.refused(state)
    assert isinstance(state.state, ProfileHeld)
    assert sorted(tried) == list(LIMITS)
    assert profiling.refused(state) == state


def test_without_candidates_nothing_is_set_or_measured():
    profiling = policy(candidates=())
    state = profiling.start()
    assert isinstance(state.state, ProfileHeld)
    assert state.setting is None


CACHED = tuple(Trial(limit, Measurement(100 * STEP[int(limit.power_limit_w)][0], 1.0)) for limit in LIMITS)
CACHED = tuple(
    Trial(trial.choice, replace(trial.cost, energy_j=trial.cost.time_s * STEP[int(trial.choice.power_limit_w)][1]))
    for trial in CACHED
)


def test_an_earlier_profile_is_checked_by_one_epoch():
    profiling = policy(cached=CACHED)
    state = profiling.start()
    assert state == ProfilingProgress(Checking(LIMITS[1]))
    assert profiling.steps(state) == 0
    assert profiling.step(state, LONGER) == ProfilingProgress(ProfileHeld(LIMITS[1]))


LONGER = Interval(1, 115.0, 115.0 * 191.0)
"""An epoch at the best limit; the data have grown a little."""


def test_a_long_run_measures_the_default_again_before_it_holds_what_it_knows():
    profiling = policy(cached=CACHED, windows=replace(Windows(), compares=True))
    state = profiling.step(profiling.start(), LONGER)
    assert state.setting == LIMITS[-1]
    states = played(profiling, state)
    assert {one.setting for one in states[:-1]} == {LIMITS[-1]}
    assert states[-1] == ProfilingProgress(ProfileHeld(LIMITS[1]))
    assert profiling.refused(state) == replace(states[-1], refused=frozenset({LIMITS[-1]}))


@pytest.mark.parametrize(("run_s", "compares"), [(None, False), (300.0, False), (900.0, True)])
def test_the_default_is_measured_again_where_that_is_a_thousandth_of_a_run(run_s, compares):
    assert windows_for(run_s, counter_period_s=0.02).compares == compares
    assert not windows_for(run_s, counter_period_s=0.1).compares


def test_a_valid_earlier_profile_gets_extra_windows_where_they_pay():
    half = CACHED[1::2]  # 200 and 300 W; what 250 W costs is not known
    profiling = policy(cached=half, search=replace(policy().search, horizon=5000.0))
    state = profiling.step(profiling.start(), LONGER)
    assert state == settling(LIMITS[1], again=True)
    held = played(profiling, state)[-1]
    measured = [trial.choice for trial in held.windows]
    assert measured[0] == LIMITS[1]
    assert LIMITS[2] in measured
    assert len(measured) <= 1 + profiling.extra_windows
    assert held.setting == LIMITS[1]
    for trial in held.state.trials:  # per iteration, the earlier ones too
        assert abs(trial.cost.time_s - STEP[int(trial.choice.power_limit_w)][0]) < 0.03
    assert {LIMITS[1], LIMITS[2], LIMITS[3]} <= {trial.choice for trial in held.state.trials}


def test_an_earlier_best_that_is_refused_when_it_is_measured_again_leaves_a_search_from_its_beginning():
    half = CACHED[1:2]
    profiling = policy(cached=half, search=replace(policy().search, horizon=5000.0))
    state = profiling.step(profiling.start(), LONGER)
    assert state == settling(LIMITS[1], again=True)
    held = played(profiling, profiling.refused(state))[-1]
    assert held.setting is not None
    assert held.setting != LIMITS[1]
    assert held.state.trials


def test_an_earlier_profile_is_not_measured_again_for_whole_epochs():
    profiling = policy(cached=CACHED[1::2], search=replace(policy().search, horizon=5000.0)).by_epoch()
    assert isinstance(profiling.step(profiling.start(), LONGER).state, ProfileHeld)


@pytest.mark.parametrize("epoch", [Interval(1, 108.0, 108.0 * 150.0), Interval(1, 160.0, 160.0 * 190.0)])
def test_an_earlier_profile_that_no_longer_holds_is_measured_again(epoch):
    profiling = policy(cached=CACHED)
    state = profiling.step(profiling.start(), epoch)
    assert state == settling(LIMITS[-1])
    assert played(profiling, state, scale=0.8)[-1].state.trials


def test_an_earlier_best_that_is_above_the_cap_of_today_is_not_used():
    profiling = policy(cached=CACHED, candidates=LIMITS[:1])
    assert profiling.start().setting == LIMITS[0]


def test_by_epoch_every_epoch_is_a_window():
    profiling = policy().by_epoch()
    state, epochs = profiling.start(), 0
    while not isinstance(state.state, ProfileHeld):
        state = profiling.step(state, work(state.setting, 1))
        epochs += 1
    assert epochs == len(state.windows)
    assert state.setting == LIMITS[1]


def test_the_counter_adds_its_error_once_for_every_unbroken_part():
    joined = tuple(Interval(10, 1.0, 200.0, joined=True) for _ in range(4))
    broken = tuple(replace(interval, joined=False) for interval in joined)
    assert window_cost(joined, 0.1).energy_error_j < window_cost(broken, 0.1).energy_error_j
    assert standard_error(window_cost(joined, 0.1)) == pytest.approx(0.0120, abs=0.001)
    assert standard_error(Measurement(1.0, 1.0)) == 1.0


def spec(**changes):
    known = GpuSpec(
        name="part",
        uuid="GPU-part",
        clocks=(ClockTable(1215, tuple(range(210, 1411, 15))),),
        power_limits=PowerLimits(100.0, 300.0, 400.0),
    )
    return replace(known, **changes)


def test_core_clocks_where_the_part_locks_them_else_limits_else_nothing():
    assert job_settings(spec(), JobKnob.AUTO, limit_w=300.0)[-1] == Setting(sm_mhz=1410)
    assert job_settings(spec(clocks=()), JobKnob.AUTO, limit_w=300.0)[-1] == Setting(power_limit_w=300.0)
    assert job_settings(spec(clocks=(), power_limits=None), JobKnob.AUTO, limit_w=None) == ()
    assert job_settings(spec(), JobKnob.NONE, limit_w=300.0) == ()


@pytest.mark.parametrize("cap_w", [100.0, 137.0, 250.0, 300.0, 400.0])
def test_no_limit_goes_above_the_one_that_was_found(cap_w):
    limits = [one.power_limit_w for one in job_settings(spec(), JobKnob.POWER_LIMIT, limit_w=cap_w)]
    assert limits[-1] == cap_w
    assert limits[0] >= 100.0
    assert limits == sorted(set(limits))


def test_a_wide_range_of_limits_does_not_make_many():
    wide = spec(power_limits=PowerLimits(200.0, 1000.0, 1200.0))
    assert len(job_settings(wide, JobKnob.POWER_LIMIT, limit_w=1200.0)) <= 14


def test_an_unknown_knob_is_one_line():
    assert knob_named("sm-clock") is JobKnob.SM_CLOCK
    with pytest.raises(InputError, match="no knob 'fan'"):
        knob_named("fan")
