"""A stage profile that ranks measure one clock after another, and that can be continued."""

import pytest

from fakes import FakeGpu
from pipelines import profile_csv as some_profile
from wattune.control.ranks import Alone
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.integrations.profile_run import profile_listener
from wattune.levels.kernel.online import OnlinePlanning, PlanDisabled, PlanProfiled, RankReading
from wattune.levels.kernel.schedules import one_forward_one_backward, work_graph
from wattune.levels.kernel.stage_profile import parse_stage_profile
from wattune.levels.kernel.stage_profiling import StageProfiling, merged, profile_csv, remaining, rows_of

ORDER = one_forward_one_backward(2, 3)
SETTINGS = (Setting(1410), Setting(1005), Setting(900))


def planning(settings=SETTINGS):
    return OnlinePlanning(graph=work_graph(ORDER), spec=FakeGpu().spec, settings=settings, slowdown=0.0)


def reading(policy, rank, setting, *, waiting_w=70.0):
    trials = tuple(
        (kind, Trial(setting, Measurement(1000 / setting.sm_mhz, float(setting.sm_mhz))))
        for kind in policy.kinds_by_rank[rank]
    )
    return RankReading(0, rank, 1.0, trials, waiting_w)


def profiled(policy):
    """Every state of a profiling, and the rows that it reported."""
    reported = []
    profiling = StageProfiling(policy, reported.append)
    states = [policy.start()]
    for setting in policy.settings:
        half = profiling.step(states[-1], [reading(policy, 0, setting)])
        assert half == states[-1]  # a kind is missing
        states.append(profiling.step(half, [reading(policy, rank, setting) for rank in range(2)]))
    return states, reported


def test_every_clock_is_measured_and_reported():
    states, reported = profiled(planning())
    assert [len(rows["0.forward"]) for rows in reported] == [1, 2, 3]
    last = states[-1]
    assert isinstance(last, PlanProfiled)
    assert last.waiting_w == 70.0
    assert planning().steps(last, pipeline=0, rank=0) == ()
    assert not planning().is_uncertain(last)
    profiling = StageProfiling(planning(), reported.append)
    assert profiling.step(last, []) == last
    assert profiling.step(PlanDisabled("x"), []) == PlanDisabled("x")
    text = profile_csv(reported[-1], simulated=True)
    profile = parse_stage_profile(text, file="p.csv")
    assert (profile.stages, profile.simulated) == (2, True)
    assert profile.default["1.backward"].cost == Measurement(1000 / 1410, 1410.0)
    assert profile_csv(rows_of(profile), simulated=True) == text


def test_a_profile_that_was_begun_is_continued():
    _, reported = profiled(planning())
    begun = parse_stage_profile(profile_csv(reported[0], simulated=True), file="p.csv")
    rest = remaining(planning(), rows_of(begun), simulated=True, begun=begun)
    assert rest.settings == SETTINGS[1:]
    _, again = profiled(rest)
    assert profile_csv(merged(rows_of(begun), again[-1]), simulated=True) == profile_csv(reported[-1], simulated=True)


def test_files_that_do_not_fit_are_refused():
    _, reported = profiled(planning())
    measured = parse_stage_profile(profile_csv(reported[0], simulated=False), file="p.csv")
    with pytest.raises(InputError, match="mixes simulated"):
        remaining(planning(), rows_of(measured), simulated=True, begun=measured)
    other = parse_stage_profile(some_profile(3), file="p.csv")
    with pytest.raises(PlanError, match="does not run"):
        remaining(planning(), rows_of(other), simulated=False, begun=other)
    limited = "stage,instruction,frequency,time,energy,power_limit_w\n0,forward,1410,1,100,250\n"
    with pytest.raises(InputError, match="more than core clocks"):
        rows_of(parse_stage_profile(limited, file="p.csv"))


def test_a_complete_file_needs_no_profiling(tmp_path):
    _, reported = profiled(planning())
    file = tmp_path / "p.csv"
    file.write_text(profile_csv(reported[-1], simulated=True))
    gpu = FakeGpu()
    with pytest.raises(InputError, match="already has all clocks"):
        profile_listener(
            ORDER, gpu=gpu, actuator=None, stamp=None, ranks=Alone(), rank=0, out=file, clocks=len(SETTINGS)
        )
