from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines import planned_pipeline
from wattune.core.errors import InputError, PlanError
from wattune.levels.layer.costs import simulated_costs
from wattune.levels.layer.plan_file import LayerPlans, layer_plan_text, parse_layer_plans, read_layer_plans
from wattune.levels.layer.planner import EXHAUSTIVE, SEGMENTS, plan_layers
from wattune.levels.layer.switching import SwitchCost, charged, switches_of
from wattune.levels.pipeline.plan_file import parse_plan, plan_text
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload


@pytest.fixture(scope="module")
def plans() -> LayerPlans:
    model, workload = load_model("a4000"), make_workload("resnet50:64")
    costs = simulated_costs(model, workload)
    switching = SwitchCost.of(model.spec(), model.change).at(0.001)
    frontier = plan_layers(costs, switching, SEGMENTS, points=8)
    default = charged(costs, np.zeros(len(costs.names), dtype=np.intp), switching)
    return LayerPlans(
        workload="resnet50:64",
        batch_size=64,
        precision="fp32",
        scope="step",
        gpu=model.name,
        simulated=True,
        switching=switching,
        strategy=SEGMENTS,
        default=default,
        frontier=frontier,
        chosen=len(frontier) // 2,
    )


def changed(plans: LayerPlans, *path: str | int, to: object) -> str:
    """Return the plan file with one part replaced, or removed by KeyError."""
    document = json.loads(layer_plan_text(plans))
    part: Any = document
    for step in path[:-1]:
        part = part[step]
    if to is KeyError:
        del part[path[-1]]
    else:
        part[path[-1]] = to
    return json.dumps(document)


def test_plans_with_stalls_round_trip(plans, tmp_path):
    assert any(switches_of(trial.choice) for trial in plans.frontier)
    path = tmp_path / "plan.json"
    path.write_text(layer_plan_text(plans), encoding="utf-8")
    assert read_layer_plans(path) == plans


def test_waits_of_short_segments_round_trip():
    model, workload = load_model("a4000"), make_workload("resnet50:8")
    costs = simulated_costs(model, workload).only("forward")
    switching = SwitchCost.of(model.spec(), model.change)
    frontier = plan_layers(costs, switching, EXHAUSTIVE)
    default = charged(costs, np.zeros(len(costs.names), dtype=np.intp), switching)
    plans = LayerPlans("w", None, None, "forward", model.name, True, switching, EXHAUSTIVE, default, frontier)
    assert parse_layer_plans(layer_plan_text(plans), file="plan.json") == plans


def test_a_plan_is_a_line_and_so_are_the_options_of_a_layer(plans):
    lines = layer_plan_text(plans).splitlines()
    assert sum('"bound_j"' in line and '"ranks"' in line for line in lines) == len(plans.frontier)
    assert sum(line.startswith('    "forward/') and '"sm_mhz"' in line for line in lines) >= 10


def test_there_is_only_the_plan_that_is_chosen(plans):
    assert plans.plan == plans.frontier.trials[plans.chosen]
    with pytest.raises(PlanError, match="there is no plan 99"):
        replace(plans, chosen=99)


@pytest.mark.parametrize(
    ("path", "to", "words"),
    [
        (("format",), "a recipe", "not a layer plan"),
        (("version",), 2, "version 2, not 1"),
        (("workload",), KeyError, "workload: is missing"),
        (("batch_size",), 0, "batch_size is 0, which is not above 0"),
        (("scope",), "sideways", "scope is 'sideways', which is none of forward, backward, step"),
        (("simulated",), 1, "simulated: 1 is not true or false"),
        (("switching", "sm_latency_s"), -1, "switching: latencies and stalls are not negative"),
        (("switching", "dwell"), 0.5, "switching: a setting holds for at least one switching latency"),
        (("switching", "mem_stall_s"), "long", "switching.mem_stall_s: 'long' is not a finite number"),
        (("layers",), [], "layers is empty"),
        (("layers", 0), "optimizer", "layers has 'optimizer' twice"),
        (("layers", 0), "forward/other", "frontier[0].ranks[0][0]: forward/other has no option"),
        (("options", "optimizer", 0, "time_s"), 0, "options.optimizer[0]: time_s is 0.0, which is not above 0"),
        (("frontier", 0, "ranks", 0, 0), 99, "frontier[0].ranks[0][0]: "),
        (("frontier", 0, "ranks", 0), [0], "frontier[0].ranks[0]: 1 entries where the network has 41 layers"),
        (("frontier", 0, "ranks"), [], "frontier[0].ranks: 0 ranks where the network has 1"),
        (("frontier", 0, "time_s"), 0.5, "frontier[0].time_s: is 0.5 where the options add up to"),
        (("frontier", 1, "energy_j"), 1.0, "frontier[1].energy_j: is 1 where the options add up to"),
        (("frontier", 1, "bound_j"), -1.0, "frontier[1].bound_j: is -1, which is negative"),
        (("default", "time_s"), 0.5, "default.time_s: is 0.5 where the options add up to"),
        (("chosen",), 999, "chosen is 999, and frontier has"),
    ],
)
def test_a_wrong_part_is_named(plans, path, to, words):
    with pytest.raises(PlanError) as failure:
        parse_layer_plans(changed(plans, *path, to=to), file="plan.json")
    assert words in failure.value.message
    assert failure.value.message.startswith("plan.json")
    assert failure.value.hint


def test_a_plan_of_the_other_kind_is_refused_by_name(plans):
    with pytest.raises(PlanError, match=r"plan\.json is a layer plan, not a pipeline plan") as failure:
        parse_plan(layer_plan_text(plans), file="plan.json")
    assert "played_layers" in failure.value.hint
    with pytest.raises(PlanError, match=r"plan\.json is a pipeline plan, not a layer plan") as failure:
        parse_layer_plans(plan_text(planned_pipeline()), file="plan.json")
    assert "wattune pipeline show" in failure.value.hint


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "[" * 100_000, '{"format":' * 50_000, "\x00", "9" * 5000])
def test_other_texts_are_refused_in_one_line(text):
    with pytest.raises(PlanError) as failure:
        parse_layer_plans(text, file="plan.json")
    assert "\n" not in failure.value.message
    assert "plan.json" in failure.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.json"):
        read_layer_plans(tmp_path / "none.json")
