"""One rank's cursor through its plan."""

import pytest

from fakes import FakeGpu
from wattune.core.errors import PlanError, SettingRefused
from wattune.core.setting import Setting
from wattune.levels.pipeline.player import PlanPlayer
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph

SLOW, FAST = Setting(900), Setting(1410)
SPEC = FakeGpu().spec


def plan(*settings):
    operations = tuple(Operation(f"forward 0.{number}", "0.forward") for number in range(len(settings)))
    return Plan(WorkGraph.chain(operations), tuple(StageChoice(setting) for setting in settings))


def played(player, iterations=1):
    asked = []
    for _ in range(iterations):
        player = player.from_start()
        for step in player.steps:
            player, wanted = player.begin(step.span)
            asked.append(wanted)
    return asked


def test_a_setting_is_asked_for_only_where_it_changes():
    player = PlanPlayer.of(plan(FAST, FAST, SLOW), 0, spec=SPEC)
    assert played(player, iterations=2) == [FAST, None, SLOW, FAST, None, SLOW]


def test_a_plan_of_one_setting_asks_once():
    assert played(PlanPlayer.of(plan(SLOW, SLOW), 0, spec=SPEC), iterations=3) == [SLOW, *[None] * 5]


def test_another_plan_starts_from_what_was_asked_for_last():
    player, _ = PlanPlayer.of(plan(FAST, SLOW), 0, spec=SPEC).begin("forward 0.0")
    assert played(player.following(plan(FAST, FAST).ranks[0])) == [None, None]


def test_an_instruction_that_is_not_the_next_is_refused_by_name():
    player = PlanPlayer.of(plan(FAST, SLOW), 0, spec=SPEC)
    with pytest.raises(PlanError, match=r"'backward 0.0' begins where the plan has 'forward 0.0'"):
        player.begin("backward 0.0")


def test_more_instructions_than_planned_are_refused():
    player, _ = PlanPlayer.of(plan(FAST), 0, spec=SPEC).begin("forward 0.0")
    with pytest.raises(PlanError, match="has only 1 instructions"):
        player.begin("forward 0.0")
    assert player.from_start().begin("forward 0.0")[1] is None


def test_a_rank_that_the_plan_lacks_and_a_clock_that_the_part_lacks():
    with pytest.raises(PlanError, match="1 ranks and nothing for rank 1"):
        PlanPlayer.of(plan(FAST), 1, spec=SPEC)
    with pytest.raises(SettingRefused, match="1000 MHz"):
        PlanPlayer.of(plan(Setting(1000)), 0, spec=SPEC)


def test_the_next_setting_is_asked_for_ahead_and_not_again():
    player, first = PlanPlayer.of(plan(FAST, FAST, SLOW), 0, spec=SPEC).begin("forward 0.0")
    assert first == FAST
    player, wanted = player.ahead()
    assert wanted is None  # the same holds on
    player, _ = player.begin(player.steps[1].span)
    player, wanted = player.ahead()
    assert wanted == SLOW
    assert player.ahead() == (player, None)
    player, wanted = player.begin(player.steps[2].span)
    assert wanted is None
    assert player.ahead() == (player, None)  # the iteration is over
