from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import BLOCKING_W, HEADER, planned_pipeline
from wattune.core.measurement import energy_percent, time_percent
from wattune.levels.pipeline.plan_file import parse_plan, plan_text
from wattune.levels.pipeline.planned import Source, verify
from wattune.levels.pipeline.schedule_exchange import export_files, import_files
from wattune.levels.pipeline.straggler import answer_straggler
from wattune.plans.stage_profile import StageProfile, parse_stage_profile


@st.composite
def profiles(draw: st.DrawFn) -> StageProfile:
    """Stages with settings of any time and any energy above that at blocking power."""
    rows = []
    for stage in range(draw(st.integers(1, 3))):
        for instruction in ("forward", "backward"):
            clocks = draw(st.lists(st.integers(200, 2000), min_size=1, max_size=4, unique=True))
            for mhz in clocks:
                time_s = draw(st.floats(0.01, 0.2))
                power_w = draw(st.floats(BLOCKING_W + 1, 400))
                rows.append(f"{stage},{instruction},{mhz},{time_s!r},{time_s * power_w!r}")
    return parse_stage_profile("\n".join((HEADER, *rows)), file="p.csv")


@settings(max_examples=60, deadline=None)
@given(profiles(), st.integers(1, 5), st.sampled_from(["1f1b", "gpipe"]))
def test_plans_survive_files_and_take_as_long_as_predicted(
    profile: StageProfile, microbatches: int, schedule: str
) -> None:
    planned = planned_pipeline(profile, schedule=schedule, microbatches=microbatches, points=5)
    again = parse_plan(plan_text(planned), file="plan.json")
    assert again == planned
    for real, trial in zip(verify(again, profile), planned.frontier, strict=True):
        assert abs(time_percent(real, trial.cost)) < 1e-6
        assert abs(energy_percent(real, trial.cost)) < 1e-6
        assert trial.choice.bound_j <= trial.cost.energy_j * (1 + 1e-7)


@settings(max_examples=60, deadline=None)
@given(profiles(), st.integers(1, 5))
def test_plans_survive_schedule_files(profile: StageProfile, microbatches: int) -> None:
    planned = planned_pipeline(profile, microbatches=microbatches, points=5)
    again = import_files(
        export_files(planned, "perseus"),
        profile,
        source=Source("p.csv", "", False),
        blocking_power_w=BLOCKING_W,
        schedule="gpipe",
    )
    assert again.graph == planned.graph
    costs = [(trial.cost.time_s, trial.cost.energy_j) for trial in again.frontier]
    for trial in planned.frontier:
        near = min(costs, key=lambda cost: abs(cost[0] - trial.cost.time_s))
        assert abs(near[0] - trial.cost.time_s) <= 1e-9 * near[0]
        assert abs(near[1] - trial.cost.energy_j) <= 1e-9 * near[1]


@settings(max_examples=40, deadline=None)
@given(profiles(), st.floats(1, 3))
def test_a_straggler_never_costs_more_than_the_default(profile: StageProfile, factor: float) -> None:
    planned = planned_pipeline(profile, points=5)
    time_s = factor * max(planned.default.cost.time_s, planned.frontier.fastest.cost.time_s)
    answer = answer_straggler(planned, time_s)
    assert answer.trial.cost.time_s <= time_s
    assert answer.energy_j >= answer.trial.choice.bound_j * (1 - 1e-7)
