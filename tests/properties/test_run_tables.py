"""For any recorded sweep: only its settings are set, and a run under the session ends as it should."""

from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import Setting
from wattune.levels.run.policy import CurvePolicy
from wattune_bench.run.table import RecordedWorkload, TableBench, play_workload

ASKED = TableBench(tables=(Path("any.csv"),))

rows = st.lists(st.tuples(st.floats(0.8, 3.0), st.floats(0.5, 1.5)), min_size=1, max_size=9)


def recorded(costs):
    """Costs in any order at limits of 100 W and more."""
    found = {
        Setting(power_limit_w=100.0 + 20 * place): Measurement(time_s, 300 * energy_j)
        for place, (time_s, energy_j) in enumerate(costs)
    }
    return RecordedWorkload.of("any.csv", "net", found)


def physical(bound, exponent, count, column):
    """A program of which the share `bound` takes longer at a lower clock; at clocks, or at limits that reach them."""
    found = {}
    for place in range(count):
        relative = 1.0 - 0.5 * place / max(count - 1, 1)
        time_s, power_w = 1.0 - bound + bound / relative, 80 + 220 * relative**exponent
        setting = Setting(power_limit_w=round(power_w, 1)) if column == "limit" else Setting(round(1400 * relative))
        found[setting] = Measurement(time_s, time_s * power_w)
    return RecordedWorkload.of("any.csv", "net", found)


@settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    bound=st.floats(0.0, 1.0),
    exponent=st.floats(1.5, 3.0),
    count=st.integers(1, 9),
    column=st.sampled_from(["limit", "clock"]),
    seed=st.integers(0, 5),
)
def test_a_sweep_is_played_within_its_rows_and_the_slowdown_limit(bound, exponent, count, column, seed):
    workload = physical(bound, exponent, count, column)
    policy = CurvePolicy(
        objective=LeastEnergy(0.05), candidates=tuple(sorted(workload.costs)), baseline=workload.reference
    )
    played = play_workload(workload, policy, ASKED, seed=seed)
    assert played.held in workload.costs
    assert all(window.setting in workload.costs for window in played.windows)
    assert played.end.cost.time_s <= 1.06 * workload.oracle(0.05).default.time_s
    assert played.end == play_workload(workload, policy, ASKED, seed=seed).end


@settings(max_examples=60, deadline=None)
@given(costs=rows, slowdown=st.floats(0.0, 0.3))
def test_the_oracle_is_within_the_limit_and_no_worse_than_the_default(costs, slowdown):
    best = recorded(costs).oracle(slowdown)
    assert best.saving >= 0.0
    assert best.cost.time_s <= best.default.time_s * (1 + slowdown) * (1 + 1e-9)
