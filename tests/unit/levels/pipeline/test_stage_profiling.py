"""A stage profile that ranks measure one clock after another, and that can be continued."""

from dataclasses import replace

import pytest

from fakes import FakeGpu
from pipelines import profile_csv as some_profile
from wattune.control.ranks import Alone
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.integrations.profile_run import profile_listener, profile_target
from wattune.levels.pipeline.online import OnlinePlanning, PlanDisabled, PlanProfiled, RankReading
from wattune.levels.pipeline.profile_parts import (
    PartState,
    ProfilePart,
    ProfileRequest,
    doubts,
    merged_parts,
    read_parts,
    write_request,
)
from wattune.levels.pipeline.stage_profiling import StageProfiling, merged, profile_csv, remaining, rows_of
from wattune.plans.schedules import one_forward_one_backward, work_graph
from wattune.plans.stage_profile import parse_stage_profile

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
    """Every state of a profiling, and the rows after each clock."""
    profiling = StageProfiling(policy)
    states = [policy.start()]
    assert profiling.rows(states[0]) == {}
    for setting in policy.settings:
        half = profiling.step(states[-1], [reading(policy, 0, setting)])
        assert half == states[-1]  # a kind is missing
        states.append(profiling.step(half, [reading(policy, rank, setting) for rank in range(2)]))
    return states, [profiling.rows(state) for state in states[1:]]


def test_every_clock_is_measured_and_reported():
    states, reported = profiled(planning())
    assert [len(rows["0.forward"]) for rows in reported] == [1, 2, 3]
    last = states[-1]
    assert isinstance(last, PlanProfiled)
    assert last.waiting_w == 70.0
    assert planning().steps(last, pipeline=0, rank=0) == ()
    assert not planning().is_uncertain(last)
    profiling = StageProfiling(planning())
    assert profiling.rows(PlanDisabled("x")) == {}
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


def listener_of(target):
    return profile_listener(ORDER, gpu=FakeGpu(), actuator=None, stamp=None, ranks=Alone(), rank=0, target=target)


def test_a_complete_file_needs_no_profiling(tmp_path, caplog):
    _, reported = profiled(planning())
    file = tmp_path / "p.csv"
    text = profile_csv(reported[-1], simulated=True)
    file.write_text(text)
    listener = listener_of(profile_target(file, len(SETTINGS)))
    assert listener.has_profile
    listener.start()
    listener.begin(ORDER[0][0])  # no clock is set: there is no actuator
    listener.end(ORDER[0][0])
    listener.finish()
    assert file.read_text() == text
    assert "already has all clocks" in caplog.text


def test_a_profile_goes_to_its_file_or_to_the_command_that_runs_the_program(tmp_path, monkeypatch):
    monkeypatch.delenv("WATTUNE_PROFILE_FOLDER", raising=False)
    with pytest.raises(InputError, match="no file to go to"):
        profile_target(None, None)
    listener_of(profile_target(tmp_path / "p.csv", None))
    assert not (tmp_path / "p.csv").exists()  # nothing is measured yet
    write_request(tmp_path, ProfileRequest(str(tmp_path / "q.csv"), 3))
    monkeypatch.setenv("WATTUNE_PROFILE_FOLDER", str(tmp_path))
    assert not listener_of(profile_target(None, None)).has_profile
    (part,) = read_parts(tmp_path)
    assert (part.state, part.stages, part.clocks_mhz) == (PartState.MEASURING, 2, (1410, 1005, 900))
    assert (part.simulated, part.profile, part.measured_mhz) == (True, "", ())
    (tmp_path / "request.json").unlink()
    with pytest.raises(InputError, match="cannot read"):
        profile_target(None, None)


def part(clocks=SETTINGS, *, slower=1.0, state=PartState.COMPLETE, **changes):
    """What a pipeline measured at some of the clocks."""
    _, reported = profiled(planning())
    rows = {
        kind: [replace(own, cost=replace(own.cost, time_s=slower * own.cost.time_s)) for own in trials]
        for kind, trials in reported[-1].items()
    }
    kept = {kind: [own for own in trials if own.choice in clocks] for kind, trials in rows.items()}
    text = profile_csv(kept, simulated=True) if clocks else ""
    mhz = tuple(setting.sm_mhz for setting in SETTINGS)
    return replace(ProfilePart("GPU (simulated)", True, 2, mhz, text, state, None, 70.0), **changes)


def test_the_parts_of_pipelines_become_one_profile():
    merged_profile = merged_parts([part(), part(slower=1.2)])
    times_s = [trial.cost.time_s for trial in merged_profile.rows["1.forward"]]
    assert times_s == pytest.approx([1100 / setting.sm_mhz for setting in SETTINGS])
    assert merged_profile.spread == pytest.approx(0.1 / 1.1)
    behind = merged_parts([part(), part(SETTINGS[:1])])
    assert [trial.choice for trial in behind.rows["0.backward"]] == [SETTINGS[0]]
    assert part(SETTINGS[:2]).measured_mhz == (1410, 1005)
    assert merged_parts([part(), part(())]).rows == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"gpu": "another"}, "different GPUs"), ({"stages": 3}, "numbers of stages"), ({"clocks_mhz": (5,)}, "clocks")],
)
def test_parts_of_unlike_pipelines_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        merged_parts([part(), part(**changes)])


def test_what_looks_wrong_in_a_profile_is_said():
    profile = parse_stage_profile(part().profile, file="p.csv")
    assert doubts(profile, spread=0.0, waiting_w=70.0) == ()
    _, apart = doubts(profile, spread=0.3, waiting_w=1e4)
    assert "draws 10000.0 W" in apart
    text = part().profile.replace(repr(1000 / 900), repr(0.5))
    wrong = doubts(parse_stage_profile(text, file="p.csv"), spread=0.0, waiting_w=None)
    assert len(wrong) == 4
    assert "a higher clock" in wrong[0]
