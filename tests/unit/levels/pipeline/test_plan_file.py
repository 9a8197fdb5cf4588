from __future__ import annotations

import json

import pytest

from pipelines import planned_at, planned_pipeline, profile_csv
from wattune.core.errors import PlanError
from wattune.levels.pipeline.plan_file import parse_plan, plan_text
from wattune.plans.plan import Plan
from wattune.plans.schedules import gpipe
from wattune.plans.shape import SCHEDULE_NAMES, PipelineShape, shape_of_order
from wattune.plans.stage_profile import parse_stage_profile


@pytest.fixture(scope="module")
def planned():
    return planned_pipeline()


def changed(planned, *path, to):
    """The plan file with one part replaced."""
    document = json.loads(plan_text(planned))
    part = document
    for step in path[:-1]:
        part = part[step]
    if to is KeyError:
        del part[path[-1]]
    else:
        part[path[-1]] = to
    return json.dumps(document)


def test_a_plan_round_trips(planned):
    again = parse_plan(plan_text(planned), file="plan.json")
    assert again == planned


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("early-recomputation", 1), ("zero-bubble", 1), ("interleaved", 2)]
)
def test_every_schedule_round_trips(schedule, chunks):
    text = profile_csv(4, instructions=("forward", "backward", "recompute", "weight"))
    planned = planned_pipeline(parse_stage_profile(text, file="p.csv"), schedule=schedule, chunks=chunks, points=4)
    assert parse_plan(plan_text(planned), file="plan.json") == planned


def test_knobs_and_the_simulated_mark_round_trip():
    header, *rows = profile_csv(2).splitlines()
    rows = [f"{row},norm_0-none-{12 if ',1400,' in row else 6}-1024,yes" for row in rows]
    text = "\n".join((f"{header},attention,simulated", *rows))
    planned = planned_pipeline(parse_stage_profile(text, file="p.csv"), points=4)
    again = parse_plan(plan_text(planned), file="plan.json")
    assert again == planned
    assert again.source.simulated
    assert again.plan.choice.choices[0].knobs


def test_the_file_keeps_its_layout(planned):
    lines = plan_text(planned).splitlines()
    keys = [line.split('"')[1] for line in lines if line.startswith('  "')]
    assert ", ".join(keys) == (
        "format, version, simulated, made_by, pipeline, blocking_power_w, profile, origins, instructions, switching, "
        "gpu, baseline, gpus_per_rank, options, chosen, default, frontier"
    )
    openings = [line for line in lines if line.startswith('  "') and not line.endswith(",")]
    assert openings == ['  "instructions": [', '  "options": {', '  "frontier": [']
    assert sum(line.startswith('    {"time_s": ') for line in lines) == len(planned.frontier)
    assert sum(line.startswith('    ["') for line in lines) == planned.shape.ranks


def test_the_file_names_the_origin_of_its_numbers(planned):
    document = json.loads(plan_text(planned))
    assert document["profile"] == {"file": "p.csv", "sha256": "0" * 64}
    assert {"options", "time_s", "energy_j", "bound_j", "blocking_power_w", "default"} <= set(document["origins"])
    assert document["frontier"][0]["bound_j"] <= document["frontier"][0]["energy_j"]


@pytest.mark.parametrize(
    ("path", "to", "words"),
    [
        (("format",), "a recipe", "not a pipeline plan"),
        (("version",), 2, "version 2, not 1"),
        (("pipeline", "schedule"), "2f2b", "no schedule '2f2b'"),
        (("pipeline", "stages"), 4, "pipeline.ranks: is 3, and stages and chunks make 4"),
        (("pipeline", "microbatches"), 5, "instructions[0]: 8 entries where the schedule has 10 instructions"),
        (("pipeline", "microbatches"), True, "pipeline.microbatches: True is not a finite number"),
        (("pipeline", "microbatches"), 0, "pipeline: microbatches is 0, which is not above 0"),
        (("pipeline", "microbatches"), 10**9, "pipeline: microbatches is 1000000000, which is not above 0 and at most"),
        (("pipeline",), [], "pipeline: [] is not an object"),
        (("pipeline",), KeyError, "pipeline: is missing"),
        (("blocking_power_w",), -1, "blocking_power_w is -1, which is negative"),
        (("blocking_power_w",), "60", "blocking_power_w: '60' is not a finite number"),
        (("blocking_power_w",), 10**400, "blocking_power_w"),
        (("instructions", 1, 0), "backward 1.0", "instructions[1][0]: is 'backward 1.0' where the schedule has"),
        (("instructions",), [], "instructions: 0 ranks where the schedule has 3"),
        (("options", "0.forward", 0, "time_s"), 0, "options.0.forward[0]: time_s is 0.0, which is not above 0"),
        (("options", "0.forward", 0, "time_s"), float("nan"), "options.0.forward[0].time_s: nan is not"),
        (("options", "0.forward", 0, "sm_mhz"), 1.5, "sm_mhz: 1.5 is not a whole number"),
        (("options", "0.forward", 0, "sm_mhz"), -5, "options.0.forward[0]: sm_mhz is -5, which is not above 0"),
        (("options", "0.forward", 0, "knobs"), {"attention": 3}, "knobs.attention: 3 is not a text"),
        (("frontier", 0, "ranks", 0, 0), 99, "frontier[0].ranks[0][0]: 0.forward has no option 99"),
        (("frontier", 0, "ranks", 0, 0), -1, "frontier[0].ranks[0][0]: 0.forward has no option -1"),
        (("frontier", 0, "ranks", 0, 0), True, "frontier[0].ranks[0][0]: True is not a finite number"),
        (("frontier", 0, "ranks", 0), [0], "frontier[0].ranks[0]: 1 entries where the schedule has 8 instructions"),
        (("frontier", 0, "ranks"), [], "frontier[0].ranks: 0 ranks where the schedule has 3"),
        (("frontier", 0, "time_s"), 0.5, "frontier[0].time_s: is 0.5 where the options add up to"),
        (("frontier", 1, "energy_j"), 1.0, "frontier[1].energy_j: is 1 where the options add up to"),
        (("frontier", 1, "bound_j"), -1.0, "frontier[1].bound_j: is -1, which is negative"),
        (("default", "time_s"), 0.5, "default.time_s: is 0.5 where the options add up to"),
        (("frontier",), [], "chosen is 0, and frontier has 0 plans"),
        (("frontier",), {}, "frontier: {} is not a list"),
        (("chosen",), 99, "chosen is 99, and frontier has"),
        (("chosen",), "0", "chosen: '0' is not a finite number"),
        (("simulated",), 0, "simulated: 0 is not true or false"),
        (("profile",), "p.csv", "profile: 'p.csv' is not an object"),
        (("profile",), ["x" * 10_000], "profile: ['xxx"),
    ],
)
def test_a_wrong_part_is_named(planned, path, to, words):
    with pytest.raises(PlanError) as failure:
        parse_plan(changed(planned, *path, to=to), file="plan.json")
    assert words in failure.value.message
    assert len(failure.value.message) <= 300
    assert failure.value.hint


def test_a_frontier_out_of_order_is_refused(planned):
    document = json.loads(plan_text(planned))
    document["frontier"].reverse()
    with pytest.raises(PlanError, match="fast and expensive"):
        parse_plan(json.dumps(document), file="plan.json")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", "[" * 100_000, '{"format":' * 50_000, "\x00", "__import__('os')", "9" * 5000]
)
def test_other_texts_are_refused_in_one_line(text):
    with pytest.raises(PlanError) as failure:
        parse_plan(text, file="plan.json")
    assert "\n" not in failure.value.message
    assert "plan.json" in failure.value.message


def test_a_listed_order_round_trips_and_a_wrong_instruction_is_named():
    order = tuple(tuple(reversed(rank[:4])) + rank[4:] for rank in gpipe(2, 4))
    planned = planned_at(order, (1400, 900))
    assert planned.shape.schedule == "listed"
    assert parse_plan(plan_text(planned), file="plan.json") == planned
    with pytest.raises(PlanError, match=r"instructions\[0\]\[1\]: 'forward one' is not an instruction"):
        parse_plan(changed(planned, "instructions", 0, 1, to="forward one"), file="plan.json")
    with pytest.raises(PlanError, match="runs the same piece twice"):
        parse_plan(changed(planned, "instructions", 0, 1, to="forward 0.3"), file="plan.json")


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_the_order_of_a_named_schedule_is_recognised(schedule):
    shape = PipelineShape(schedule, 4, 4, 2 if schedule == "interleaved" else 1)
    assert shape_of_order(shape.order) == shape


def test_a_plan_has_as_many_choices_and_predictions_as_operations(planned):
    plan = planned.plan.choice
    with pytest.raises(PlanError, match="one choice per operation: 24, not 23"):
        Plan(plan.graph, plan.choices[1:])
    with pytest.raises(PlanError, match="24 predicted times and energies, or none, not 23"):
        Plan(plan.graph, plan.choices, plan.durations_s[1:])
