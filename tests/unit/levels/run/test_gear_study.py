"""Where our policy looks next, when a gear must be proved before it is held."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window
from wattune.levels.run.constrained_choice import Choice, RunSoFar
from wattune.levels.run.orders import LOOKS_S, apart, look_s
from wattune.levels.run.policy import CurvePolicy
from wattune.levels.run.study import SLACK_S, doubtful, study
from wattune.response.evidence import EvidenceScale, evidence
from wattune.response.program_ensemble import ClockPoint
from wattune.response.program_posterior import ProgramPosterior

LIMIT = log(1.05)
BASE = ClockPoint(1.0, 1.0, np.inf)
POINTS = tuple(ClockPoint(x, 1.0, np.inf) for x in (0.7, 0.8, 0.9))


def choice(slower, *, doubt=(0.01, 0.01, 0.01), worth=(-0.2, -0.15, -0.1), safe=2, paid=(True, True, True)):
    slower, doubt, worth = (np.array(column) for column in (slower, doubt, worth))
    allowed = slower + 1.75 * doubt <= LIMIT
    return Choice(slower, doubt, worth, np.full(3, 0.005), LIMIT, allowed, np.array(paid), None, safe, None)


def posterior(doubt=(0.01, 0.01, 0.01)):
    """Each gear by itself: nothing is told of one by another; the baseline is known to 0.2 %."""
    return ProgramPosterior(
        points=(*POINTS, BASE),
        pivots=(BASE,),
        log_time=np.zeros(4),
        log_power=np.zeros(4),
        time_cov=np.array([[0.0], [0.0], [0.0], [0.002**2]]),
        time_var=np.array([*(np.array(doubt) ** 2), 0.002**2]),
        power_var=np.full(4, 1e-4),
        alive=100,
    )


def asked(found, *, windows=None, total_s=600.0, spare=6, least=0.0, of=None):
    so_far = RunSoFar({BASE: total_s}, {BASE: 3, **(windows or {})})
    return study(
        of or posterior(), found, base=BASE, so_far=so_far, sure=1.75, look_error=0.01, spare=spare, least=least
    )


def test_looks_at_what_may_save_most_within_the_promise():
    assert asked(choice((0.045, 0.035, 0.01))).target == 0
    assert asked(choice((0.3, 0.045, 0.01)), spare=2).target == 1


def test_nothing_to_gain_is_nothing_to_look_at():
    assert asked(choice((0.3, 0.3, 0.01)), windows=dict.fromkeys(POINTS, 50)) is None
    assert asked(choice((0.04, 0.03, 0.01), worth=(0.1, 0.1, -0.1)), windows=dict.fromkeys(POINTS, 50)) is None


def test_a_handful_is_looked_at_whatever_is_thought_of_it():
    hopeless = choice((0.2, 0.2, 0.01))
    assert asked(hopeless, spare=3) is not None
    assert asked(hopeless, spare=2) is None


def test_the_last_of_many_looks_is_kept():
    near = choice((0.045, 0.045, 0.01))
    assert asked(near, windows={POINTS[2]: 1}, spare=1) is None
    assert asked(near, windows={POINTS[2]: 1}, spare=2) is not None


def test_what_is_not_paid_for_waits_at_the_baseline():
    unpaid = choice((0.045, 0.035, 0.01), paid=(False, False, True))
    early = asked(unpaid, total_s=SLACK_S / 2)
    assert early is not None
    assert early.place is None
    assert asked(unpaid, total_s=SLACK_S * 2) is None


def test_the_less_certain_of_the_two_is_looked_at():
    rough = replace(
        posterior(),
        time_cov=np.array([[0.0], [0.0], [0.0], [0.02**2]]),
        time_var=np.array([1e-8, 1e-4, 1e-4, 0.02**2]),
    )
    of_base = asked(choice((0.045, 0.3, 0.01), doubt=(0.02, 0.01, 0.001)), windows={POINTS[0]: 90}, of=rough)
    assert of_base.place is None


def test_looks_that_do_not_pay_are_not_taken():
    near = choice((0.045, 0.3, 0.01))
    known = dict.fromkeys(POINTS, 4)
    assert asked(near, windows=known) is not None
    assert asked(near, windows=known, least=0.2) is None


def test_doubt_is_three_standard_errors():
    assert doubtful(choice((0.0, 0.0, LIMIT - 0.02)), 2, direct=(0.0, 0.001))
    assert not doubtful(choice((0.0, 0.0, LIMIT - 0.04)), 2, direct=(0.0, 0.001))


def test_the_windows_alone_must_keep_the_promise_too():
    sure = choice((0.0, 0.0, LIMIT - 0.04))
    assert doubtful(sure, 2, direct=(LIMIT, 0.001))
    assert doubtful(sure, 2, direct=None)


CLOCKS = GpuSpec(
    name="A100",
    uuid="GPU-0",
    clocks=(ClockTable(1215, tuple(range(210, 1411, 15))),),
    power_limits=PowerLimits(100.0, 400.0, 400.0),
)


def window(setting, step_time_s, *, sm_mhz=None, purpose=Purpose.TRIAL):
    return Window(
        setting=setting,
        purpose=purpose,
        start_s=0.0,
        cost=Measurement(10.0, 2000.0),
        settling=Measurement(0.0, 0.0),
        step_time_s=step_time_s,
        step_time_error_s=0.01 * step_time_s,
        sm_mhz=sm_mhz,
    )


def test_looks_are_long_where_that_tells_more():
    alike = [window(Setting(1200), 1.0) for _ in range(4)]
    lengths_s = (4.0, 20.0, 80.0, 240.0)
    flat = [replace(each, cost=Measurement(s, s * 200.0)) for each, s in zip(alike, lengths_s, strict=True)]
    falling = [replace(each, step_time_error_s=0.1 / each.cost.time_s) for each in flat]
    assert look_s(tuple(flat)) == LOOKS_S[0]
    assert look_s(tuple(falling)) >= look_s(tuple(flat))
    assert look_s(()) == LOOKS_S[0]


def test_settings_that_are_one_gear_count_once():
    settings = (Setting(1200, 1215), Setting(1200), Setting(1410, 1215))
    points = [EvidenceScale.of(CLOCKS).point(setting) for setting in settings]
    found, kept = apart(settings, points)
    assert kept == (Setting(1200), Setting(1410, 1215))
    assert len(set(found)) == 2


def step_times(*windows, spec=CLOCKS):
    scale = EvidenceScale.of(spec)
    measured = evidence(windows, scale)
    return [measured[scale.point(each.setting, each.sm_mhz)].log_step_time.value for each in windows]


@pytest.mark.parametrize(("step_time_s", "taken_s"), [(2.0, 1.0), (0.55, 1.1), (1.04, 1.04)])
def test_a_pace_that_was_detected_is_folded(step_time_s, taken_s):
    first = window(DRIVER_DEFAULT, 1.0, sm_mhz=1410.0, purpose=Purpose.BASELINE)
    assert step_times(first, window(Setting(1200), step_time_s, sm_mhz=1200.0))[1] == pytest.approx(log(taken_s))


def test_a_pace_that_was_counted_is_never_folded():
    first = window(DRIVER_DEFAULT, 1.0, sm_mhz=1410.0, purpose=Purpose.BASELINE)
    assert step_times(first, replace(window(Setting(1200), 2.0, sm_mhz=1200.0), counted=True))[1] == pytest.approx(
        log(2.0)
    )


def test_a_limit_may_slow_a_program_down_by_much():
    limits = replace(CLOCKS, clocks=())
    first = window(Setting(power_limit_w=400.0), 1.0, purpose=Purpose.BASELINE)
    slow = replace(window(Setting(power_limit_w=100.0), 2.4), counted=True)
    assert step_times(first, slow, spec=limits)[1] == pytest.approx(log(2.4))


def test_the_study_sets_a_few_gears_and_no_more():
    policy = CurvePolicy(objective=LeastEnergy(0.05), held_confidence=0.96, most_points=3)
    rng = np.random.default_rng(4)
    known = []
    for _ in range(60):
        order = policy.step(tuple(known), CLOCKS)
        mhz = order.setting.sm_mhz or 1410
        step_time_s = (0.6 + 0.4 * 1410 / mhz) * (1 + 0.01 * rng.standard_normal())
        power_w = 80.0 + 220.0 * (mhz / 1410) ** 2.5
        seen = window(order.setting, step_time_s, sm_mhz=float(mhz), purpose=order.purpose)
        known.append(
            replace(
                seen, cost=Measurement(order.least_s, order.least_s * power_w), step_time_error_s=0.0196 * step_time_s
            )
        )
    points = {each.setting for each in known} - {DRIVER_DEFAULT}
    assert 1 <= len(points) <= 3
