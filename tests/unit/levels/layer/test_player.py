"""Requests of a plan: ahead of time, round the step, never too close together."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeGpu
from wattune.control.stamps import HostStamp
from wattune.core.errors import PlanError
from wattune.core.setting import Setting
from wattune.levels.layer.player import LayerPlayer, LayerProgram, MadeFor, Request, RequestGate, due_times
from wattune.levels.layer.switching import FREE, SwitchCost
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph

LOW, HIGH = Setting(900), Setting(1410)
NAMES = ("forward/a", "forward/b", "backward/b", "backward/a", "optimizer")


def switching(latency_s, *, mem_s=None, dwell=1.0):
    mem_s = latency_s if mem_s is None else mem_s
    return SwitchCost(sm_latency_s=latency_s, mem_latency_s=mem_s, sm_stall_s=0.0, mem_stall_s=0.0, dwell=dwell)


def plan_of(*settings, names=NAMES, durations_s=None):
    graph = WorkGraph.chain(tuple(Operation(name, name) for name in names))
    durations_s = (1.0,) * len(names) if durations_s is None else durations_s
    return Plan(graph, tuple(StageChoice(setting) for setting in settings), durations_s)


def player_of(plan, switching=FREE, **options):
    return LayerPlayer(LayerProgram.of(plan, switching=switching, spec=FakeGpu().spec, **options))


def played(player, names):
    """What each layer requests."""
    found = []
    for name in names:
        player, requests = player.begin(name)
        found.append(requests)
    return found


def test_free_switching_requests_each_segment_at_its_start():
    player = player_of(plan_of(HIGH, HIGH, LOW, LOW, HIGH))
    assert played(player, NAMES * 2) == [
        *[(Request(HIGH),), (), (Request(LOW),), (), (Request(HIGH),)],
        *[(), (), (Request(LOW),), (), (Request(HIGH),)],
    ]


def test_requests_are_made_ahead_of_time_by_the_latency():
    player = player_of(plan_of(HIGH, HIGH, LOW, LOW, HIGH), switching(0.25))
    first = played(player, NAMES)
    assert first == [(Request(HIGH),), (Request(LOW, 0.75),), (), (Request(HIGH, 0.75),), ()]


def test_the_first_segment_is_requested_in_the_step_before():
    player = player_of(plan_of(HIGH, LOW, LOW, LOW, LOW), switching(0.5))
    assert played(player, NAMES * 2)[4:7] == [(Request(HIGH, 0.5),), (Request(LOW, 0.5),), ()]


def test_a_plan_of_one_setting_requests_it_once():
    player = player_of(plan_of(*[LOW] * 5), switching(0.5))
    assert played(player, NAMES * 3) == [(Request(LOW),), *[()] * 14]


def test_layers_that_are_not_heard_pass_their_requests_on():
    plan = plan_of(HIGH, LOW, LOW, LOW, LOW)
    player = player_of(plan, switching(0.5), heard=NAMES[:-1])
    assert player.program.names == NAMES[:-1]
    assert played(player, NAMES[:-1])[-1] == (Request(HIGH, 1.5),)


def test_a_step_may_begin_anew_and_passes_may_be_repeated():
    player = player_of(plan_of(HIGH, HIGH, LOW, LOW, HIGH))
    micro_steps = played(player, (*NAMES[:4], *NAMES[:4], "optimizer"))
    assert micro_steps[4] == (Request(HIGH),)  # the optimizer would have requested it
    assert micro_steps[6] == (Request(LOW),)
    broken = played(player, (*NAMES[:3], *NAMES))
    assert broken[3] == (Request(HIGH),)
    two_graphs = played(player, (*NAMES[:2], *NAMES[:2], *NAMES[2:4], *NAMES[2:4], "optimizer"))
    assert two_graphs[6] == ()


@pytest.mark.parametrize(
    "names", [("forward/a", "backward/b"), ("forward/b",), ("forward/a", "forward/c"), ("forward/a", "optimizer")]
)
def test_another_order_is_an_error_that_names_it(names):
    with pytest.raises(PlanError, match=f"'{names[-1]}' where the plan has 'forward/"):
        played(player_of(plan_of(*[LOW] * 5)), names)


def test_a_plan_for_other_layers_is_refused_with_the_difference():
    player = player_of(plan_of(*[LOW] * 5))
    player.program.check(NAMES)
    with pytest.raises(PlanError, match="runs 'forward/c' where the plan has 'forward/b'"):
        player.program.check(("forward/a", "forward/c", *NAMES[2:]))
    with pytest.raises(PlanError, match="runs 'extra' after the last layer"):
        player.program.check((*NAMES, "extra"))
    with pytest.raises(PlanError, match="the plan has 'optimizer' and the model runs no such layer"):
        player.program.check(NAMES[:-1])


def test_a_plan_for_another_gpu_or_batch_size_is_refused():
    with pytest.raises(PlanError, match="no core clock of 1234 MHz"):
        player_of(plan_of(*[Setting(1234)] * 5))
    made = MadeFor(gpu="A100", batch_size=64)
    made.check(gpu="A100", batch_size=64)
    made.check()
    with pytest.raises(PlanError, match="made for A100, and this GPU is V100"):
        made.check(gpu="V100")
    with pytest.raises(PlanError, match="batch size of 64, and this one is 32"):
        made.check(batch_size=32)


def test_a_plan_without_times_or_without_known_layers_is_refused():
    with pytest.raises(PlanError, match="no predicted times"):
        player_of(plan_of(*[LOW] * 5, durations_s=()))
    with pytest.raises(PlanError, match="no layer of the plan"):
        player_of(plan_of(*[LOW] * 5), heard=())


def test_segments_shorter_than_the_dwell_are_dropped():
    player = player_of(plan_of(HIGH, LOW, HIGH, LOW, LOW), switching(1.5))
    requests = [request for own in player.program.requests for request in own]
    assert 1 <= len(requests) <= 3


SETTINGS = [Setting(sm, mem) for sm in (900, 1005, 1410) for mem in (None, 1215)]


@given(
    layers=st.lists(st.tuples(st.sampled_from(SETTINGS), st.floats(1e-4, 0.1)), min_size=1, max_size=12),
    sm_s=st.floats(0, 0.2),
    mem_s=st.floats(0, 0.2),
    dwell=st.floats(1, 3),
)
def test_no_two_requests_are_closer_than_the_dwell(layers, sm_s, mem_s, dwell):
    settings, durations_s = zip(*layers, strict=True)
    cost = switching(sm_s, mem_s=mem_s, dwell=dwell)
    starts_s = tuple(accumulate(durations_s, initial=0.0))
    dues = due_times(settings, starts_s, switching=cost)
    dwell_s = cost.dwell_s(changes_memory=len({setting.mem_mhz for setting in settings}) > 1)
    times_s = [due_s for due_s, _ in dues]
    assert all(0 <= due_s <= starts_s[-1] for due_s in times_s)
    if len(dues) > 1:
        around = [*times_s, times_s[0] + starts_s[-1]]
        assert all(two - one >= dwell_s * (1 - 1e-6) - 1e-9 for one, two in pairwise(around))


@given(
    layers=st.lists(st.tuples(st.sampled_from([LOW, HIGH]), st.floats(0.1, 1.0)), min_size=1, max_size=12),
    latency_s=st.floats(0, 0.1),
)
def test_every_segment_gets_its_setting_in_time_where_all_are_long_enough(layers, latency_s):
    settings, durations_s = zip(*layers, strict=True)
    starts_s = tuple(accumulate(durations_s, initial=0.0))
    dues = due_times(settings, starts_s, switching=switching(latency_s))
    holds = [(due_s + latency_s + lap * starts_s[-1], setting) for lap in (-2, -1, 0) for due_s, setting in dues]
    for start_s, setting in zip(starts_s, settings, strict=False):
        assert [wanted for from_s, wanted in holds if from_s <= start_s + 1e-9][-1:] in ([setting], [])
    assert bool(dues) == (len(set(settings)) > 1)


class Passed(HostStamp):
    def __init__(self):
        super().__init__(0.0)
        self.done = False

    def passed(self):
        return self.done


def test_the_gate_waits_for_the_layer_the_time_and_the_dwell():
    now_s = 0.0
    gate = RequestGate(2.0, now_s=lambda: now_s)
    stamp = Passed()
    first = gate.reached(stamp, 0.5)
    assert not first()
    stamp.done, now_s = True, 1.0
    assert not first()
    now_s = 1.5
    assert first()
    second = gate.reached(stamp, 0.0)
    now_s = 3.0
    assert not second()
    now_s = 3.5
    assert second()
