"""Plans of layers survive their file, whatever they switch and wait."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.frontier import Frontier
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.layer.costs import SCOPES, LayerCosts
from wattune.levels.layer.plan_file import LayerPlans, layer_plan_text, parse_layer_plans
from wattune.levels.layer.switching import SwitchCost, charged

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
SECONDS = st.floats(0, 10)


@st.composite
def layer_plans(draw: st.DrawFn) -> LayerPlans:
    """Plans of any settings per layer, switching charged."""
    settings_ = (DRIVER_DEFAULT, Setting(1200), Setting(900, 5001), Setting(power_limit_w=120.5))
    names = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time_s = random.uniform(0.001, 2.0, (len(names), len(settings_)))
    costs = LayerCosts(
        workload=draw(TEXTS),
        gpu=draw(TEXTS),
        simulated=draw(st.booleans()),
        names=tuple(names),
        settings=settings_,
        time_s=time_s,
        energy_j=random.uniform(50.0, 300.0, time_s.shape) * time_s,
        waiting_w=draw(st.floats(0, 100)),
    )
    switching = SwitchCost(
        sm_latency_s=draw(SECONDS),
        mem_latency_s=draw(SECONDS),
        sm_stall_s=draw(SECONDS),
        mem_stall_s=draw(SECONDS),
        dwell=draw(st.floats(1, 9)),
    )
    columns = st.lists(st.integers(0, len(settings_) - 1), min_size=len(names), max_size=len(names))
    trials = [
        charged(costs, np.array(own), switching, bound_j=draw(st.floats(0, 1)))
        for own in draw(st.lists(columns, min_size=1, max_size=6))
    ]
    frontier = Frontier.of(trials)
    return LayerPlans(
        workload=costs.workload,
        batch_size=draw(st.none() | st.integers(1, 4096)),
        precision=draw(st.none() | TEXTS),
        scope=draw(st.sampled_from(SCOPES)),
        gpu=costs.gpu,
        simulated=costs.simulated,
        switching=switching,
        strategy=draw(TEXTS),
        default=charged(costs, np.zeros(len(names), dtype=np.intp), switching),
        frontier=frontier,
        chosen=draw(st.integers(0, len(frontier) - 1)),
    )


@settings(max_examples=150, deadline=None)
@given(layer_plans())
def test_plans_survive_files(plans: LayerPlans) -> None:
    text = layer_plan_text(plans)
    again = parse_layer_plans(text, file="plan.json")
    assert again == plans
    assert layer_plan_text(again) == text
